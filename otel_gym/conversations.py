"""Which conversation a call goes on with, told by the chain of `previous_response_id` that leads to it.

A response belongs to the conversation that its call has; where that has none, one begins with it, and goes by its id.
What led to a call is known as far as this process has served it: an answer of another worker, or of a time before a
restart, is not, and then the chain says nothing. Source: the trace specification, "The span".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from otel_gym import semconv
from otel_gym.semconv import AttributeValue

MOST_RESPONSES: Final = 8_192
"""Responses that a process remembers: some 3 MB."""


class Conversations:
    """The conversations of the latest responses. Used by writer threads, one rollout by one of them at a time.

    Without a lock, which a fork could leave held: each step is one operation of a built-in type.

    Args:
        most: how many responses; the first that came is the first that is forgotten.
    """

    def __init__(self, most: int = MOST_RESPONSES) -> None:
        self._most = most
        # By rollout too: there are servers that number their responses, and begin anew.
        self._known: dict[tuple[str, str], str] = {}
        self._order: deque[tuple[str, str]] = deque()

    def before(self, rollout_id: str, facts: Mapping[str, AttributeValue]) -> str | None:
        """That of the response that a call goes on from; None where it goes on from none, or from one not known."""
        previous = facts.get(semconv.REQUEST_PREVIOUS_RESPONSE_ID)
        return None if previous is None else self._known.get((rollout_id, str(previous)))

    def remember(self, rollout_id: str, facts: Mapping[str, AttributeValue]) -> None:
        """Keep the answer of a call, which has its conversation by now, for those that go on from it."""
        response = facts.get(semconv.RESPONSE_ID)
        begins = semconv.REQUEST_PREVIOUS_RESPONSE_ID not in facts
        conversation = facts.get(semconv.CONVERSATION_ID, response if begins else None)
        if response is None or conversation is None:
            return
        key = rollout_id, str(response)
        self._known[key] = str(conversation)
        self._order.append(key)
        if len(self._order) > self._most:
            self._known.pop(self._order.popleft(), None)
