"""Whether some spans have arrived: for who would send them again if they have not."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Delivery:
    """Of spans that belong together. Safe from any thread.

    Args:
        arrived: called once, on whichever thread, when every destination has all of them; never if one was lost.
    """

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._lock = threading.Lock()
        self._open = 1  # until all have been offered
        self._lost = False

    def offered(self) -> None:
        """One more span is on its way to one destination."""
        with self._lock:
            self._open += 1

    def settled(self, arrived: bool) -> None:
        """One of them is there, or lost."""
        with self._lock:
            self._open -= 1
            self._lost = self._lost or not arrived
            done = not self._open and not self._lost
        if done:
            self._arrived()

    def complete(self) -> None:
        """No more of them will be offered."""
        self.settled(arrived=True)
