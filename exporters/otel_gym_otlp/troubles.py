"""What goes wrong on the way to one destination, said once an interval. Not locked."""

from __future__ import annotations

from collections import Counter


class Troubles:
    """Of one destination.

    Args:
        name: of the destination.
        interval: seconds between two messages.

    Attributes:
        last: what went wrong last, empty when it was said.
    """

    def __init__(self, name: str, interval: float) -> None:
        self.last = ""
        self._name = name
        self._interval = interval
        self._said: Counter[str] = Counter()
        self._next = 0.0

    def due_in(self, shed: Counter[str], now: float) -> float | None:
        """Seconds until there is something to say; None while there is nothing."""
        return max(0.0, self._next - now) if self.last or shed != self._said else None

    def say(self, shed: Counter[str], waiting: int, now: float, *, last_words: bool = False) -> str | None:
        """What is to be logged now, if anything. Last words do not wait for their time."""
        new = shed - self._said
        unsent = waiting if last_words else 0
        if (now < self._next and not last_words) or not (new or self.last or unsent):
            return None
        parts = []
        if new["content"]:
            parts.append(f"{new['content']} without their content ({new['content_bytes']} bytes)")
        if new["spans"]:
            parts.append(f"{new['spans']} lost")
        if unsent:
            parts.append(f"{unsent} not sent, lost if the process ends now")
        if not parts:
            parts.append(f"{waiting} wait" if waiting else "all sent")
        reason = f"; last: {self.last}" if self.last else ""
        self._said = shed.copy()
        self.last = ""
        self._next = now + self._interval
        return f"otel-gym: spans to {self._name}: {', '.join(parts)}{reason}; the records are not affected"
