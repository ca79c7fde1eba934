from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import otel_gym
from otel_gym import Settings
from otel_gym.rollouts import RolloutRoutes, agent, url_path_for_request

ON = Settings(observability_enabled=True, model_call_capture_dir=Path("/captures"))


def answer(request: Request) -> dict[str, Any]:
    return {
        "path": request.url.path,
        "model": url_path_for_request("/v1/responses", request, settings=ON),
        "rollout": otel_gym.current_rollout_id(),
    }


def fastapi_agent() -> FastAPI:
    app = agent(FastAPI())

    @app.post("/v1/responses")
    async def responses(request: Request) -> dict[str, Any]:
        return answer(request)

    @app.post("/run")
    def run(request: Request) -> dict[str, Any]:
        return answer(request)

    return app


def starlette_agent() -> Starlette:
    async def responses(request: Any) -> JSONResponse:
        return JSONResponse(answer(request))

    routes = [Route(path, responses, methods=["POST"]) for path in ("/v1/responses", "/run")]
    return agent(Starlette(routes=routes))


@pytest.fixture(params=["fastapi", "starlette", "wrapped"])
def client(request: pytest.FixtureRequest) -> httpx.AsyncClient:
    app: Any = fastapi_agent() if request.param == "fastapi" else starlette_agent()
    if request.param == "wrapped":
        app = RolloutRoutes(Starlette(routes=starlette_agent().routes))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent")


@pytest.mark.parametrize(
    ("path", "prefix", "rollout"),
    [
        ("/v1/responses", "", None),
        ("/ng-rollout/3-1/v1/responses", "/ng-rollout/3-1", "3-1"),
        ("/ng-rollout/3-1-a2/v1/responses?x=1", "/ng-rollout/3-1-a2", "3-1-a2"),
        ("/ng-rollout/3-1/training-token-capture/v1/responses", "/ng-rollout/3-1/training-token-capture", "3-1"),
    ],
)
async def test_the_agent_answers_on_the_prefixed_twins(
    client: httpx.AsyncClient, path: str, prefix: str, rollout: str | None
) -> None:
    answered = (await client.post(path)).json()
    assert {"path": "/v1/responses", "model": f"{prefix}/v1/responses", "rollout": rollout} == answered
    assert otel_gym.current_rollout_id() is None


@pytest.mark.parametrize(
    "path",
    ["/ng-rollout/3-1/run", "/ng-rollout/.x/v1/responses", "/ng-rollout/3-1/v1/responses/x", "/ng-rollout/3-1"],
)
async def test_there_is_no_other_twin(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.post(path)).status_code == 404


def test_what_is_no_starlette_application_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match="RolloutRoutes"):
        agent(object())
