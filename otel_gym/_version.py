"""The one place that says the version (read by hatchling, the CLI and the span's instrumentation scope)."""

__version__ = "0.1.0"
