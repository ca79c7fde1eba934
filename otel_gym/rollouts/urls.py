"""The URLs under which an agent's model calls are captured.

With capture off, each function gives back what it was given, so that an agent need not ask. Settings are those of the
process, read once, unless others are given. Source: "Ids and URLs" of the rollout specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from otel_gym.correlation import find_route
from otel_gym.rollouts.ids import apply_rollout_prefix, maybe_rollout_id_from_run_body, rollout_path_prefix
from otel_gym.rollouts.model_servers import ModelServers
from otel_gym.settings import Settings
from otel_gym_jsonl.files import is_rollout_id

PREFIX_IN_SCOPE = "otel_gym.rollout_prefix"
"""Where the scope of a request keeps the prefix that an agent's server has taken off its path."""


class Request(Protocol):
    """What is needed of a request; those of Starlette and FastAPI have it."""

    @property
    def scope(self) -> Mapping[str, Any]:
        """The ASGI scope."""


@cache
def process_settings() -> Settings:
    """The settings of this process, read from environment and file at the first use.

    Raises:
        SettingsError: a setting cannot be used.
    """
    return Settings()


def rollout_id_from_run(body: object) -> str | None:
    """The rollout id of a run body, a mapping or a pydantic model; None where it names none.

    Raises:
        InvalidRolloutIdError: an explicit id that no rollout may have (also a ValueError).
    """
    return maybe_rollout_id_from_run_body(body)


def url_path_for_run(path: str, body: object, *, settings: Settings | None = None) -> str:
    """A path on the model server, under the rollout of a run body: `/ng-rollout/3-1/v1/responses`.

    Raises: as `rollout_id_from_run`.
    """
    rollout_id = rollout_id_from_run(body) if _on(settings) else None
    return rollout_path_prefix(rollout_id) + path


def base_url_for_run(base_url: str, body: object, *, settings: Settings | None = None) -> str:
    """A model server's base URL, under the rollout of a run body: `http://h:1/ng-rollout/3-1`.

    Raises: as `rollout_id_from_run`.
    """
    return apply_rollout_prefix(base_url, rollout_id_from_run(body) if _on(settings) else None)


def url_path_for_request(path: str, request: Request | Mapping[str, Any], *, settings: Settings | None = None) -> str:
    """A path on the model server, under the prefix of the request that is being served, training segment included.

    Args:
        path: such as `/v1/responses`.
        request: a Starlette or FastAPI request, or an ASGI scope.
    """
    scope = request if isinstance(request, Mapping) else request.scope
    if not _on(settings):
        return path
    prefix = scope.get(PREFIX_IN_SCOPE)
    if prefix is None:
        route = find_route(scope)
        prefix = route.prefix if route is not None and is_rollout_id(route.rollout_id) else ""
    return f"{prefix}{path}"


def resolve_model_base_url(name: str, rollout_id: str | None, *, settings: Settings | None = None) -> str:
    """The base URL for an SDK: that of a known model server, under a rollout: `http://h:1/ng-rollout/3-1/v1`.

    Args:
        name: a key of the setting `model_servers`.
        rollout_id: None for the server's own URL.

    Raises:
        UnknownModelServerError: no such server; the message lists those that there are (also a ValueError).
    """
    settings = process_settings() if settings is None else settings
    url = ModelServers(settings.model_servers).url(name)
    return apply_rollout_prefix(url, rollout_id if settings.observability_enabled else None) + "/v1"


def _on(settings: Settings | None) -> bool:
    return (process_settings() if settings is None else settings).observability_enabled
