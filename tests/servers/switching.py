"""An application that switches capture on when it is imported, as the code or the plugin of a model server may."""

from __future__ import annotations

from otel_gym import zero_code
from tests.servers.keyed import with_wrapped

zero_code.plugin()

__all__ = ["with_wrapped"]
