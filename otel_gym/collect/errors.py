"""What keeps a collection from beginning."""

from __future__ import annotations

from otel_gym.errors import OtelGymError


class BusyError(OtelGymError):
    """Another collection holds what this one needs: the message says what, who, and what to do."""


class NotEmptyError(OtelGymError, ValueError):
    """The output has rows already, and nobody said to resume."""
