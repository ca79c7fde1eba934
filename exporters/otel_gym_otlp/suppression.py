"""Nothing that the mirror's own thread does with a network shall be traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from opentelemetry import context

# The names that instrumentations have looked for over the years; the last is a plain string.
_KEYS = [
    key
    for name in ("_SUPPRESS_INSTRUMENTATION_KEY", "_SUPPRESS_HTTP_INSTRUMENTATION_KEY")
    if (key := getattr(context, name, None)) is not None
] + ["suppress_instrumentation"]


@contextlib.contextmanager
def suppressed() -> Iterator[None]:
    """No instrumentation makes spans in here."""
    quiet = context.get_current()
    for key in _KEYS:
        quiet = context.set_value(key, True, quiet)
    token = context.attach(quiet)
    try:
        yield
    finally:
        context.detach(token)
