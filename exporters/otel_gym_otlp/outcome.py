"""What became of a request, and the interface of those who send them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from otel_gym_otlp.copies import LightSpan


class Fate(Enum):
    """Of one request."""

    SENT = "the receiver has it"
    AGAIN = "the receiver does not have it and may take it later"
    UNCERTAIN = "nobody knows whether the receiver has it; it may be the request's own fault"
    TOO_LARGE = "the receiver takes smaller requests only"
    BAD = "the receiver does not take these spans, or one of them"
    UNUSABLE = "the receiver takes nothing from us until somebody changes something"


@dataclass(frozen=True)
class Outcome:
    """Fate and circumstances of one request.

    Attributes:
        reason: for the log; never holds what was sent, nor what the receiver answered at length.
        after: seconds that the receiver wants us to wait, None when it does not say.
        rejected: spans of the request that the receiver did not keep.
    """

    fate: Fate
    reason: str = ""
    after: float | None = None
    rejected: int = 0


SENT = Outcome(Fate.SENT)


class Sender(Protocol):
    """Somebody who sends. Used by one thread only; blocks as long as the receiver lets it."""

    @property
    def max_span_bytes(self) -> int:
        """Packed size above which a span is not even tried."""
        ...

    @property
    def flush_after_s(self) -> float | None:
        """How long who stands behind this one may keep spans before it is told to send them; None: nobody keeps any."""
        ...

    def wanted(self) -> bool:
        """Whether spans would go anywhere now. Cheap, from any thread."""
        ...

    def load(self) -> None:
        """Load modules, on any thread, before the first use. Opens nothing, never raises."""
        ...

    def prepare(self) -> None:
        """Open what is opened once, or choose the way of the next spans. Never raises."""
        ...

    def limits(self) -> tuple[int | None, int | None]:
        """Most attributes of a span, most characters of a value; None for no limit."""
        ...

    def pack(self, span: LightSpan, attributes: dict[str, Any]) -> tuple[Any, int]:
        """The span as it will be sent, and its size in bytes. Raises whatever encoding it raises."""
        ...

    def send(self, packed: Sequence[Any]) -> Outcome:
        """Send these in one request. Never raises."""
        ...

    def flush(self) -> None:
        """Have what was taken sent on now, where somebody behind this one keeps it for a while. Never raises."""
        ...

    def abandon(self) -> None:
        """In a forked child: forget connections, which are the parent's, without closing them."""
        ...

    def close(self) -> None:
        """Give connections back; a later `send` opens new ones. Never raises."""
        ...
