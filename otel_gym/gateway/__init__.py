"""A model server in front of any OpenAI- or Anthropic-compatible upstream, with capture inside.

`otel-gym gateway --upstream URL` runs it; see `docs/gateway.md`. Needs the extra `gateway`.
"""

from __future__ import annotations

from otel_gym.errors import MissingExtraError

try:
    import httpx as _httpx  # noqa: F401  asked for here, so that what is missing is said once and in words
except ImportError as error:
    raise MissingExtraError("the gateway", "gateway") from error

from otel_gym.gateway.app import Gateway
from otel_gym.gateway.configuration import Configuration, read_configuration
from otel_gym.gateway.keys import ClientKeys, Key
from otel_gym.gateway.outcomes import OUTCOME_HEADER
from otel_gym.gateway.pools import Limits, make_client
from otel_gym.gateway.staged import Staging
from otel_gym.gateway.staging_log import StagingLog
from otel_gym.gateway.upstreams import Upstream, Upstreams

__all__ = [
    "OUTCOME_HEADER",
    "ClientKeys",
    "Configuration",
    "Gateway",
    "Key",
    "Limits",
    "Staging",
    "StagingLog",
    "Upstream",
    "Upstreams",
    "make_client",
    "read_configuration",
]
