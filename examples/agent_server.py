"""An agent's server on the OpenAI SDK, with a tool loop. One client, made once, serves every rollout:

OTEL_GYM_MODEL_SERVERS='{"policy": "http://127.0.0.1:8000"}' uvicorn examples.agent_server:app --port 8001

With OTEL_GYM_MODEL_CALL_CAPTURE_DIR set as the model server has it, calls carry their rollout; else nothing changes.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

import otel_gym
from examples.population import QUESTION, RESPONSES_TOOL, population
from otel_gym.rollouts import agent, carry, resolve_model_base_url, rollout_id_from_run

app = agent(FastAPI(title="An agent"))  # answers on /ng-rollout/<id>/v1/responses too
carrying = carry(DefaultAsyncHttpxClient())
model = AsyncOpenAI(base_url=resolve_model_base_url("policy", None), api_key="none", http_client=carrying)


@app.post("/v1/responses")
async def respond(body: dict[str, Any]) -> dict[str, Any]:
    said: list[Any] = list(body["input"])
    while not (response := await model.responses.create(model="m", input=said, tools=[RESPONSES_TOOL])).output_text:
        said += response.output
        for call in (item for item in response.output if item.type == "function_call"):
            result = population(**json.loads(call.arguments))
            said.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    return response.to_dict()


@app.post("/run")
async def run(row: dict[str, Any]) -> dict[str, Any]:
    with otel_gym.rollout(rollout_id_from_run(row)):
        response = await respond({"input": [{"role": "user", "content": QUESTION}]})
    return {"response": response, "reward": float("717,710" in json.dumps(response))}
