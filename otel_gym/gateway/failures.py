"""What the gateway itself answers, in the words of the API that was called; and how its requests end otherwise.

    GatewayFailure              an answer of the gateway's own: status, what went wrong, code
    ClientLeft                  (asyncio.CancelledError) the client hung up
    UpstreamConnectionError     (ConnectionError) the upstream failed behind the first byte of its answer
    └── UpstreamTimeoutError    (TimeoutError) … because it fell silent

Only the first is ever said to a client; behind the first byte of an answer the connection is all there is to close.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from otel_gym.asgi import Scope, Send
from otel_gym.correlation import PREFIX, find_route
from otel_gym.errors import OtelGymError
from otel_gym.gateway.outcomes import OUTCOME_HEADER, Outcome

_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    504: "timeout_error",
}
_OPENAI_TYPES: Final = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
}


class ClientLeft(asyncio.CancelledError):
    """The client of this request hung up: what it asked for is given up, at the upstream too."""


class UpstreamConnectionError(OtelGymError, ConnectionError):
    """The upstream failed behind the first byte of its answer."""


class UpstreamTimeoutError(UpstreamConnectionError, TimeoutError):
    """The upstream fell silent behind the first byte of its answer."""


class GatewayFailure(OtelGymError):  # noqa: N818  it is an answer, and may be one of several
    """An answer of the gateway's own.

    Attributes:
        status: HTTP.
        message: for the client: what happened and what to do.
        code: short, for programs.
        outcome: what became of the upstream attempt.
    """

    def __init__(self, status: int, code: str, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.outcome = outcome


def error_body(scope: Scope, status: int, code: str, message: str) -> bytes:
    """The error object of the API that the request was for."""
    error: dict[str, Any]
    if speaks_messages(scope):
        kind = _ANTHROPIC_TYPES.get(status, "api_error")
        error = {"type": "error", "error": {"type": kind, "message": message}}
    else:
        kind = _OPENAI_TYPES.get(status, "server_error")
        error = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return json.dumps(error).encode("ascii")


def speaks_messages(scope: Scope) -> bool:
    """Whether the client speaks Anthropic's API: by its path, else by the version header that its SDKs send."""
    path: str = scope["path"]
    if path.startswith(PREFIX) and (route := find_route(scope)) is not None:
        path = route.rest
    if path.startswith(("/v1/chat/", "/v1/responses")):
        return False
    return path.startswith("/v1/messages") or any(name == b"anthropic-version" for name, _ in scope["headers"])


async def send_failure(scope: Scope, send: Send, failure: GatewayFailure) -> None:
    """Answer with it; the header says to a gateway in front of this one that no model has answered."""
    body = error_body(scope, failure.status, failure.code, failure.message)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode("ascii")),
        (OUTCOME_HEADER, failure.outcome.header()),
    ]
    if failure.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": failure.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
