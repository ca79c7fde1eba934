"""What senders share that send through one exporter: it is opened late, by the thread that uses it, or is missing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.resources import Resource

from otel_gym_otlp.limits import standard_limits
from otel_gym_otlp.suppression import suppressed

logger = logging.getLogger(__name__)


class LateExporter:
    """Has one exporter, used by one thread. Subclasses say how to load its modules, and how to `open` it.

    Args:
        by_default: resource attributes for which no variable says anything.
    """

    flush_after_s: float | None = None

    def __init__(self, by_default: Mapping[str, str]) -> None:
        self._by_default = by_default
        self._exporter: Any = None
        self._missing = False
        self._resource: Resource | None = None

    def load_modules(self) -> Any:
        """All that `open` and sending need.

        Raises:
            MissingExporterError: it is not installed.
        """
        raise NotImplementedError

    def open(self) -> Any:
        """Make the exporter.

        Raises:
            MissingExporterError: it is not installed.
        """
        raise NotImplementedError

    def wanted(self) -> bool:
        return not self._missing

    def load(self) -> None:
        try:
            self.load_modules()
        except Exception as exc:  # noqa: BLE001  a missing or broken package: nothing that a server may die of
            self._fail(exc)

    def prepare(self) -> None:
        if self._exporter is None and not self._missing:
            try:
                with suppressed():
                    self._exporter = self.open()
            except Exception as exc:  # noqa: BLE001  a wrong variable, a missing package: nothing to die of
                self._fail(exc)

    def _fail(self, error: Exception) -> None:
        if not self._missing:
            self._missing = True
            logger.error("otel-gym: no spans are sent: %s", error)

    def limits(self) -> tuple[int | None, int | None]:
        return standard_limits()

    def flush(self) -> None:
        pass

    def close(self) -> None:
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            try:
                exporter.shutdown()
            except Exception as exc:  # noqa: BLE001  on the way out
                logger.debug("otel-gym: closing the exporter: %s", exc)
