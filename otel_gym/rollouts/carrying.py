"""Model calls of an HTTP client that was made once, each under the rollout that it is made for.

    client = AsyncOpenAI(http_client=carry(DefaultAsyncHttpxClient()), base_url="http://h:1/v1", api_key="…")
    with otel_gym.rollout("3-1"):
        await client.responses.create(...)      # goes to http://h:1/ng-rollout/3-1/v1/responses

Only calls to a known model server (the setting `model_servers`) are changed, only while capture is on, and a path that
has a prefix already keeps it. Nothing here imports an HTTP library: httpx, and its successor that the SDKs of OpenAI
and Anthropic use, look alike in what is needed.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from opentelemetry import propagate, trace

from otel_gym.correlation import PREFIX, current_rollout_id
from otel_gym.rollouts.ids import rollout_path_prefix
from otel_gym.rollouts.model_servers import ModelServers
from otel_gym.rollouts.urls import process_settings
from otel_gym.settings import Settings

C = TypeVar("C")

_PREFIX = PREFIX.encode()


class Carrier:
    """Puts the current rollout, and the current trace, into requests to known model servers.

    Args:
        settings: those of the process when not given.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        settings = process_settings() if settings is None else settings
        self._servers = ModelServers(settings.model_servers if settings.observability_enabled else {})

    def put_into(self, request: Any) -> None:
        """Change URL and headers of a request of httpx, where there is a rollout and the server is known."""
        rollout_id = current_rollout_id()
        if rollout_id is None:
            return
        url = request.url
        path = url.raw_path
        root = self._servers.root_of(url.scheme, url.host, url.port, path)
        if root is None:
            return
        if not path.startswith(root + _PREFIX):
            prefix = rollout_path_prefix(rollout_id).encode()
            request.url = url.copy_with(raw_path=root + prefix + path[len(root) :])
        if trace.get_current_span().get_span_context().is_valid and "traceparent" not in request.headers:
            propagate.inject(request.headers)


def carry(client: C, *, settings: Settings | None = None) -> C:
    """Let the requests of an httpx client, sync or async, carry the rollout that they are made for.

    Args:
        client: `httpx.Client`, `httpx.AsyncClient`, or what an SDK makes of them (`openai.DefaultHttpxClient()`).
        settings: those of the process when not given.

    Returns:
        the same client, with one more event hook.

    Raises:
        TypeError: the client has no event hooks.
    """
    hooks = getattr(client, "event_hooks", None)
    if not isinstance(hooks, dict):
        raise TypeError(f"carry() takes an httpx client, not {type(client).__name__}: pass it as the SDK's http_client")
    carrier = Carrier(settings)

    async def put_into(request: Any) -> None:
        carrier.put_into(request)

    asynchronous = inspect.iscoroutinefunction(getattr(client, "send", None))
    hook = put_into if asynchronous else carrier.put_into
    client.event_hooks = {**hooks, "request": [*hooks.get("request", ()), hook]}  # type: ignore[attr-defined] # checked
    return client


class RolloutTransport:
    """A transport of httpx around another, for a client that is made with one: `carry` below the client's own hooks.

    Args:
        transport: `httpx.HTTPTransport()`, `httpx.AsyncHTTPTransport()`, or any other.
        settings: those of the process when not given.
    """

    def __init__(self, transport: Any, *, settings: Settings | None = None) -> None:
        self._transport = transport
        self._carrier = Carrier(settings)

    def handle_request(self, request: Any) -> Any:
        """Send a request of a sync client."""
        self._carrier.put_into(request)
        return self._transport.handle_request(request)

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request of an async client."""
        self._carrier.put_into(request)
        return await self._transport.handle_async_request(request)

    def close(self) -> None:
        """Close the transport inside."""
        self._transport.close()

    async def aclose(self) -> None:
        """Close the transport inside."""
        await self._transport.aclose()

    def __enter__(self) -> RolloutTransport:
        self._transport.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._transport.__exit__(*raised)

    async def __aenter__(self) -> RolloutTransport:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._transport.__aexit__(*raised)
