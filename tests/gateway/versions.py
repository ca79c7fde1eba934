"""An upstream that answers with how it was asked."""

from __future__ import annotations

import json

from otel_gym.asgi import Receive, Scope, Send


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one ASGI connection."""
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    while (await receive()).get("more_body", False):
        pass
    body = json.dumps({"http_version": scope["http_version"], "path": scope["path"]}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
