"""The model APIs whose calls are captured: one protocol (`base`), a room for each.

To add one: a module with its class, and its line in the registry.
"""

from __future__ import annotations

from otel_gym.dialects.base import Assembly, Dialect, Terminal
from otel_gym.dialects.chat import Chat
from otel_gym.dialects.messages import Messages
from otel_gym.dialects.responses import Responses

__all__ = ["DIALECTS", "Assembly", "Dialect", "Terminal"]

DIALECTS: dict[str, Dialect] = {dialect.path: dialect for dialect in (Responses(), Chat(), Messages())}
"""The dialect of each captured route."""
