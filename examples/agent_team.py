"""Two sub-agents, and an agent that says what they did. Served as `agent_server` is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import FastAPI

import otel_gym
from examples.agent_server import model
from examples.population import QUESTION, RESPONSES_TOOL, population
from otel_gym.rollouts import AgentInvocation, AgentObservations, ToolCallObservation, rollout_id_from_run

app = FastAPI(title="A team of agents")


async def ask(name: str, records: list[Any]) -> str:
    said: list[Any] = [{"type": "message", "role": "user", "content": QUESTION}]
    # By this header the calls that the model server captures find the invocation that made them.
    ask: dict[str, Any] = {"model": "m", "tools": [RESPONSES_TOOL], "extra_headers": {"x-session-id": name}}
    while not (response := await model.responses.create(input=said, **ask)).output_text:
        said += [item.to_dict() for item in response.output]
        for call in (item for item in response.output if item.type == "function_call"):
            output = population(**json.loads(call.arguments))
            said.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
            records.append(ToolCallObservation(invocation_id=name, tool_call_id=call.call_id, tool_name=call.name))
    records.append(AgentInvocation(invocation_id=name, parent_invocation_id="lead", conversation=said))
    return str(response.output_text)


@app.post("/run")
async def run(row: dict[str, Any]) -> dict[str, Any]:
    records: list[Any] = [AgentInvocation(invocation_id="lead")]
    with otel_gym.rollout(rollout_id_from_run(row)):
        answers = await asyncio.gather(ask("first", records), ask("second", records))
    observed = AgentObservations(source="examples.agent_team", records=records)
    return {"answers": answers, "reward": float(len({*answers}) == 1), "ng_agent_observations": observed.model_dump()}
