"""Model calls that belong to no rollout: counted, and said once: a harness that lost its prefix fails silently."""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otel_gym.metrics import instruments
from otel_gym.notices import Notices

logger = logging.getLogger(__name__)

REMEMBERED = 1024
_SHOWN = 300  # characters of an id or a path
_REFUSED = "websocket_refused"


class Unattributed:
    """Counts by reason, and logs once a peer or id; which were logged is remembered for the last 1,024.

    Reasons: `no_prefix`, `bad_id`, `before_root`, `websocket`, `websocket_refused`, `no_asyncio`. A collection that
    runs is told of all but those that were refused: their clients turn to HTTP.

    Args:
        directory: the capture directory; None: nobody is told.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._notices = None if directory is None else Notices(directory)
        self._said: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._lock = threading.Lock()

    def call(self, scope: Mapping[str, Any], rollout_id: str | None) -> None:
        """A model call that says no rollout, or one that cannot name a file."""
        if (measured := instruments()) is not None:
            measured.unattributed(_peer(scope))
        if rollout_id is None:
            self._no_prefix(scope)
        else:
            self._bad_id(scope, rollout_id)

    def _no_prefix(self, scope: Mapping[str, Any]) -> None:
        peer = _peer(scope)
        if self._count("no_prefix", peer):
            logger.warning(
                "otel-gym: %s calls %.300r without a rollout prefix: not captured; its base URL should end in "
                "/ng-rollout/<rollout id>/v1 (said once a peer)",
                peer,
                scope["path"],
            )

    def _bad_id(self, scope: Mapping[str, Any], rollout_id: str) -> None:
        if self._count("bad_id", rollout_id):
            logger.warning(
                "otel-gym: %s calls %.300r with the rollout id %.300r: not captured; an id is letters, digits, '.', "
                "'_' and '-', begins with a letter or digit and is at most 241 characters long (said once an id)",
                _peer(scope),
                scope["path"],
                rollout_id,
            )

    def before_root(self, scope: Mapping[str, Any], rollout_id: str) -> None:
        """A model call whose prefix stands before the root path: its path is none that is captured."""
        if (measured := instruments()) is not None:
            measured.unattributed(_peer(scope))
        if self._count("before_root", ""):
            logger.warning(
                "otel-gym: %s calls %.300r (rollout %.300r): not captured; its base URL should have the root path %r "
                "before the rollout prefix, or not at all (said once)",
                _peer(scope),
                scope["path"],
                rollout_id,
                scope["root_path"],
            )

    def no_asyncio(self, scope: Mapping[str, Any]) -> None:
        """A model call on a server whose event loop is not asyncio's."""
        if self._count("no_asyncio", ""):
            logger.error(
                "otel-gym: %.300r is not captured: this server runs on trio; "
                "start it with an asyncio worker (said once)",
                scope["path"],
            )

    def websocket(self, scope: Mapping[str, Any], rollout_id: str, refused: bool) -> None:
        """A websocket upgrade of a captured path under a prefix."""
        kind = _REFUSED if refused else "websocket"
        if self._count(kind, ""):
            logger.warning(
                "otel-gym: %s asks for a websocket on %.300r (rollout %.300r): %s (said once)",
                _peer(scope),
                scope["path"],
                rollout_id,
                "refused with 426, so that the client turns to HTTP" if refused else "passed on, not captured",
            )

    def _count(self, reason: str, who: str) -> bool:
        """Count one; True when this one has not been said yet."""
        if self._notices is not None and reason != _REFUSED:
            self._notices.count(reason)
        with self._lock:
            self.counts[reason] += 1
            key = (reason, who[:_SHOWN])  # a client's text: what is remembered of it is bounded too
            if key in self._said:
                self._said.move_to_end(key)
                return False
            self._said[key] = None
            if len(self._said) > REMEMBERED:
                self._said.popitem(last=False)
            return True


def _peer(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "a client without an address"
