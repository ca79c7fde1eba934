"""The example's team, whose lead makes its context smaller when they have answered: by a call, then without one."""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI

import otel_gym
from examples import agent_team
from examples.agent_server import model
from otel_gym.rollouts import ContextCompaction, ModelCallRef, rollout_id_from_run
from otel_gym.rollouts.references import ModelRef

app = FastAPI(title="A team that forgets")


@app.post("/run")
async def run(row: dict[str, Any]) -> dict[str, Any]:
    result = await agent_team.run(row)
    with otel_gym.rollout(rollout_id_from_run(row)):
        # Another API than the team's: the scripted model gives each answer of one API the same id.
        summary = await model.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Sum this up."}], extra_headers={"x-session-id": "lead"}
        )
    made_by = ModelCallRef(model_ref=ModelRef(type="responses_api_models", name="policy"), response_id=summary.id)
    by_a_call = ContextCompaction(
        invocation_id="lead", trigger="auto", tokens_before=900, tokens_after=80, outcome="done", model_calls=[made_by]
    )
    by_hand = ContextCompaction(invocation_id="lead", trigger="manual", observed_at=time.time())
    result["ng_agent_observations"]["records"] += [by_a_call.model_dump(), by_hand.model_dump()]
    return result
