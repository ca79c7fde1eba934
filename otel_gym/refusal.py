"""How an application says that it cannot start, in the way that servers heed."""

from __future__ import annotations

from otel_gym.asgi import Receive, Scope, Send


async def refuse(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Fail the server's start with the text of the error, and raise it, as Starlette does for its own.

    Servers take what is only raised in the lifespan for an application without one, and go on.

    Raises:
        Exception: the error.
    """
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.failed", "message": str(error)})
    raise error.with_traceback(None)
