"""Retries, for those who ask for them: each attempt is a captured call of its own, only the last reaches the client.

It stands outside of the capture, so that an attempt has its own record: request, answer as the upstream gave it, times.
The record says which attempt it is in `local_response_reason`: `attempt_1_retried`, whose answer the client never got;
`attempt_2`, whose answer it got. A call that was answered at once is marked nowhere.

What decides is known before the answer's first byte: from then on nothing is retried.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable
from typing import Final

from otel_gym.asgi import App, Message, Receive, Scope, Send
from otel_gym.gateway.outcomes import Outcome

RETRIED_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Answers after which another attempt may go better: 529 is Anthropic's "overloaded"."""

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0

_KEY: Final = "otel_gym.gateway.attempt"


class Attempt:
    """One attempt, as the one who makes it sees it.

    Args:
        number: from 1.
        last: there is no other behind it.

    Attributes:
        retried: its answer is not for the client.
        wait_s: how long before the next.
    """

    def __init__(self, number: int = 1, last: bool = True) -> None:
        self.number = number
        self.retried = False
        self.wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (number - 1)) * random.uniform(0.75, 1.0)  # noqa: S311
        self._last = last

    @classmethod
    def of(cls, scope: Scope) -> Attempt:
        """The attempt that a request is; without retries its only one."""
        attempt = scope.get(_KEY)
        return attempt if isinstance(attempt, Attempt) else cls()

    def answered(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> Attempt:
        """The answer begins: decide, before anything of it is sent on."""
        if not self._last and status in RETRIED_STATUSES:
            asked = _retry_after(headers)
            if asked is None or asked <= LONGEST_WAIT_S:
                self.retried = True
                self.wait_s = self.wait_s if asked is None else asked
        return self

    def mark(self, outcome: Outcome) -> Outcome:
        """The outcome of this attempt, which says which one it is where there are several."""
        if self.retried:
            return outcome._replace(reason=f"attempt_{self.number}_retried")
        return outcome if self.number == 1 or outcome.reason else outcome._replace(reason=f"attempt_{self.number}")


class Retries:
    """Makes an attempt again when its answer says that this may help.

    Args:
        app: serves one attempt, capture included.
        retries: how many more attempts than one.
    """

    def __init__(self, app: App, retries: int) -> None:
        self.app = app
        self._retries = retries

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = _Replayed(receive)
        for number in range(1, self._retries + 2):
            attempt = Attempt(number, last=number > self._retries)
            inner = {**scope, "state": dict(scope.get("state") or {}), _KEY: attempt}
            await self.app(inner, request.again(), _sends(send, attempt))
            if not attempt.retried or await request.left_within(attempt.wait_s):
                return


def _sends(send: Send, attempt: Attempt) -> Send:
    async def send_unless_retried(message: Message) -> None:
        if not attempt.retried:
            await send(message)

    return send_unless_retried


class _Replayed:
    """A request that can be read once for each attempt; its pieces are kept as they come."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[Message] = []
        self._ended = False

    def again(self) -> Receive:
        """A `receive` that begins at the beginning."""
        kept = deque(self._kept)

        async def receive() -> Message:
            if kept:
                return kept.popleft()
            message = await self._receive()
            if message["type"] == "http.request" and not self._ended:
                self._kept.append(message)
                self._ended = not message.get("more_body", False)
            return message

        return receive

    async def left_within(self, seconds: float) -> bool:
        """Wait; True when the client leaves meanwhile."""
        receive = self.again()
        give_up = asyncio.get_running_loop().time() + seconds
        while (rest := give_up - asyncio.get_running_loop().time()) > 0:
            try:
                message = await asyncio.wait_for(receive(), rest)
            except asyncio.TimeoutError:
                return False
            if message["type"] == "http.disconnect":
                return True
        return False


def _retry_after(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """Seconds that an answer asks to wait; None when it does not (a date is taken for no answer)."""
    for name, value in headers:
        if name == b"retry-after" and value.strip().isdigit():
            return float(value)
    return None
