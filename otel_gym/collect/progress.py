"""How far a collection is, for people: a bar that is drawn again and again on a terminal, else a line now and then."""

from __future__ import annotations

import asyncio
import os
from typing import TextIO

from otel_gym.collect.tally import Tally

_REDRAWN_S = 0.2
_LINE_S = 10.0
_BAR = 24
_COLUMNS = 80


class Progress:
    """Tells a stream how a tally grows.

    Args:
        tally: that grows.
        stream: where it is told, most often stderr.
        captured: whether model calls are captured, so that their numbers mean something.
    """

    def __init__(self, tally: Tally, stream: TextIO, *, captured: bool) -> None:
        self._tally = tally
        self._stream = stream
        self._captured = captured
        self._live = stream.isatty()
        self._told_stop = False

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(_REDRAWN_S if self._live else _LINE_S)
            self.tell()

    def tell(self) -> None:
        """Say once how far it is."""
        if self._tally.interrupted and not self._told_stop:
            self._told_stop = True
            self._line("stopping: waiting for the rollouts that run; interrupt again to cancel them")
        if self._live:
            self._stream.write("\r" + self._text(bar=True)[: self._columns() - 1] + "\x1b[K")
            self._stream.flush()
        else:
            self._line(self._text(bar=False))

    def end(self) -> None:
        """Leave the line of the bar."""
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _columns(self) -> int:
        """Of this stream's terminal: stdout may be a pipe."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            return _COLUMNS

    def _line(self, text: str) -> None:
        self.end()
        self._stream.write(f"otel-gym collect: {text}\n")
        self._stream.flush()

    def _text(self, *, bar: bool) -> str:
        tally = self._tally
        failed = tally.failed.total()
        ended = tally.with_result + failed
        wanted = "?" if tally.wanted is None else f"{tally.wanted:,}"
        parts = [f"{ended:,}/{wanted} rollouts", f"{failed:,} failed"]
        if tally.retried:
            parts.append(f"{tally.retried:,} tried again")
        if self._captured:
            rate = tally.tokens / max(tally.seconds, 1e-3)
            parts += [f"{tally.calls:,} calls", f"{rate:,.0f} tokens/s"]
            if unattributed := tally.unattributed.total():
                parts.append(f"{unattributed:,} unattributed")
            if uncaptured := tally.gaps["model_call_capture_no_records"]:
                parts.append(f"{uncaptured:,} without calls")
        if (left := tally.seconds_left) is not None:
            parts.append(f"{_clock(left)} left")
        text = ", ".join(parts)
        if not bar or not tally.wanted:
            return text
        full = min(_BAR, _BAR * ended // tally.wanted)
        return f"[{'=' * full}{' ' * (_BAR - full)}] {text}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
