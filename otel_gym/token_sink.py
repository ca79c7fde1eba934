"""Calls of a training rollout that go past the token capture: their rollout's staged tokens are no longer all of them.

Source: the staging contract, "A token sink at the edge".
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from otel_gym import correlation
from otel_gym.asgi import ROUTE, TAKEN, App, Message, Receive, Scope, Send
from otel_gym.correlation import PREFIX, TOKEN_CAPTURE_SEGMENT, Route
from otel_gym.dialects import DIALECTS
from otel_gym_jsonl.files import is_rollout_id

logger = logging.getLogger(__name__)

MARK_SECONDS: Final = 30.0
"""How long a request waits for its mark; after that the sink goes on by itself."""

_NOTHING_SPENT = frozenset({404, 405})


class TokenSink(Protocol):
    """What a training framework gives the model server to hear of rollouts that cannot be trained on."""

    async def mark_incomplete(self, rollout_id: str, call_id: str) -> None:
        """Tokens of this rollout may have been spent that nobody staged; `call_id` is "" where no call is known."""
        ...  # pragma: no cover


class UnstagedCalls:
    """An application whose calls under `/training-token-capture`, to paths that are not captured, are marked.

    It stands between the capture and the application. Captured paths, and calls without the segment, pass it by.

    Args:
        app: the application.
        sink: is told of each such call, unless the answer was 404 or 405. What it raises is logged.
    """

    def __init__(self, app: App, sink: TokenSink) -> None:
        self.app = app
        self._sink = sink

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        route: Route | None = scope.get(TAKEN) or scope.get(ROUTE)
        if scope["type"] != "http" or route is None or not _is_unstaged(route):
            await self.app(scope, receive, send)
            return
        status: int | None = None

        async def watching_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        outer = correlation.enter(None)
        try:
            await self.app(scope, receive, watching_send)
        except GeneratorExit:  # closed from outside: nothing may be awaited
            self._begin_mark(route.rollout_id)
            raise
        except BaseException:
            await self._mark(route.rollout_id)
            raise
        finally:
            correlation.leave(outer)
        if status not in _NOTHING_SPENT:
            await self._mark(route.rollout_id)

    async def _mark(self, rollout_id: str) -> None:
        """Wait for the mark; a request that is cancelled meanwhile leaves it to its task."""
        await asyncio.wait((self._begin_mark(rollout_id),), timeout=MARK_SECONDS)

    def _begin_mark(self, rollout_id: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._marked(rollout_id))
        _unfinished.add(task)
        task.add_done_callback(_unfinished.discard)
        return task

    async def _marked(self, rollout_id: str) -> None:
        try:
            await self._sink.mark_incomplete(rollout_id, "")
        except Exception:
            logger.exception("otel-gym: the token sink could not mark rollout %.300r incomplete", rollout_id)


def _is_unstaged(route: Route) -> bool:
    """Whether tokens that this call spends are staged by nobody; an id that no file may have was never admitted."""
    with_segment = f"{PREFIX}{route.rollout_id}{TOKEN_CAPTURE_SEGMENT}"
    return route.prefix == with_segment and route.rest not in DIALECTS and is_rollout_id(route.rollout_id)


_unfinished: set[asyncio.Task[None]] = set()
