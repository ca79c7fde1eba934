"""otel-gym: every model call of a rollout becomes one span and one durable record."""

from otel_gym._version import __version__

__all__ = ["__version__"]
