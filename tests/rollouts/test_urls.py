from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.requests import Request

from otel_gym import Settings
from otel_gym.errors import InvalidRolloutIdError, UnknownModelServerError
from otel_gym.rollouts import (
    base_url_for_run,
    resolve_model_base_url,
    rollout_id_from_run,
    url_path_for_request,
    url_path_for_run,
)
from otel_gym.rollouts.urls import PREFIX_IN_SCOPE, process_settings

BODY = {"_ng_task_index": 3, "_ng_rollout_index": 1}
SERVERS = {"policy": "http://h:1", "judge": "http://j:2/"}
ON = Settings(observability_enabled=True, model_call_capture_dir=Path("/captures"), model_servers=SERVERS)
OFF = Settings(observability_enabled=False, model_servers=SERVERS)


class Row(BaseModel):
    task: int = Field(alias="_ng_task_index")
    rollout: int = Field(alias="_ng_rollout_index")


def test_a_run_body_is_a_mapping_or_a_model() -> None:
    assert ["3-1", "3-1", None] == [rollout_id_from_run(body) for body in (BODY, Row.model_validate(BODY), {})]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (BODY, "/ng-rollout/3-1/v1/responses"),
        (BODY | {"_ng_attempt_index": 2}, "/ng-rollout/3-1-a2/v1/responses"),
        (BODY | {"_ng_rollout_id": "x.y"}, "/ng-rollout/x.y/v1/responses"),
        (Row.model_validate(BODY), "/ng-rollout/3-1/v1/responses"),
        ({}, "/v1/responses"),
    ],
)
def test_the_path_of_a_run(body: object, path: str) -> None:
    assert path == url_path_for_run("/v1/responses", body, settings=ON)
    assert url_path_for_run("/v1/responses", body, settings=OFF) == "/v1/responses"


def test_the_base_url_of_a_run() -> None:
    assert base_url_for_run("http://h:1/", BODY, settings=ON) == "http://h:1/ng-rollout/3-1"
    assert base_url_for_run("http://h:1/", {}, settings=ON) == "http://h:1/"
    assert base_url_for_run("http://h:1/", BODY, settings=OFF) == "http://h:1/"


def test_an_id_that_no_rollout_may_have_is_an_error() -> None:
    with pytest.raises(InvalidRolloutIdError):
        url_path_for_run("/v1/responses", {"_ng_rollout_id": "../x"}, settings=ON)


@pytest.mark.parametrize(
    ("inbound", "outbound"),
    [
        ("/v1/responses", "/v1/responses"),
        ("/ng-rollout/3-1/v1/responses", "/ng-rollout/3-1/v1/responses"),
        ("/ng-rollout/3-1/training-token-capture/v1/responses", "/ng-rollout/3-1/training-token-capture/v1/responses"),
        ("/ng-rollout/.x/v1/responses", "/v1/responses"),
        ("/ng-rollout/3-1", "/v1/responses"),
    ],
)
def test_the_prefix_of_a_request_is_carried_on(inbound: str, outbound: str) -> None:
    scope: dict[str, Any] = {"type": "http", "path": inbound, "raw_path": inbound.encode(), "headers": []}
    for request in (scope, Request(scope)):
        assert outbound == url_path_for_request("/v1/responses", request, settings=ON)
        assert url_path_for_request("/v1/responses", request, settings=OFF) == "/v1/responses"


def test_a_prefix_that_the_server_took_off_is_found_again() -> None:
    scope = {"type": "http", "path": "/v1/responses", PREFIX_IN_SCOPE: "/ng-rollout/3-1"}
    assert url_path_for_request("/v1/messages", scope, settings=ON) == "/ng-rollout/3-1/v1/messages"


@pytest.mark.parametrize(
    ("name", "rollout_id", "settings", "url"),
    [
        ("policy", "3-1", ON, "http://h:1/ng-rollout/3-1/v1"),
        ("judge", "3-1", ON, "http://j:2/ng-rollout/3-1/v1"),
        ("policy", None, ON, "http://h:1/v1"),
        ("policy", "3-1", OFF, "http://h:1/v1"),
    ],
)
def test_a_model_servers_base_url_is_found_by_its_name(
    name: str, rollout_id: str | None, settings: Settings, url: str
) -> None:
    assert url == resolve_model_base_url(name, rollout_id, settings=settings)


def test_a_v1_at_the_end_of_a_known_url_is_not_doubled() -> None:
    settings = ON.model_copy(update={"model_servers": {"policy": "http://h:1/v1/"}})
    assert resolve_model_base_url("policy", "3-1", settings=settings) == "http://h:1/ng-rollout/3-1/v1"


def test_an_unknown_model_server_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownModelServerError, match="no model server 'polcy'; known: 'judge', 'policy'") as raised:
        resolve_model_base_url("polcy", "3-1", settings=ON)
    assert isinstance(raised.value, ValueError)
    with pytest.raises(UnknownModelServerError, match="known: none"):
        resolve_model_base_url("policy", None, settings=Settings())


def test_without_settings_those_of_the_process_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_GYM_MODEL_CALL_CAPTURE_DIR", "/captures")
    monkeypatch.setenv("OTEL_GYM_MODEL_SERVERS", '{"policy": "http://h:1"}')
    process_settings.cache_clear()
    try:
        assert resolve_model_base_url("policy", "3-1") == "http://h:1/ng-rollout/3-1/v1"
        assert url_path_for_run("/run", BODY) == "/ng-rollout/3-1/run"
    finally:
        process_settings.cache_clear()


def test_a_fastapi_request_is_taken(tmp_path: Path) -> None:
    app = FastAPI()
    scope = {"type": "http", "path": "/ng-rollout/0-0/v1/responses", "headers": [], "app": app}
    assert url_path_for_request("/v1/responses", Request(scope), settings=ON) == "/ng-rollout/0-0/v1/responses"
