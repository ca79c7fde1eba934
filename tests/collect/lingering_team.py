"""The example's team; where its row says `linger`, it answers the first time only when its client has gone."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request

from examples import agent_team

app = FastAPI(title="A team that lingers")
lingered: set[int] = set()


@app.post("/run")
async def run(row: dict[str, Any], request: Request) -> dict[str, Any]:
    result = await agent_team.run(row)
    if row.get("linger") and row["_ng_task_index"] not in lingered:
        lingered.add(row["_ng_task_index"])
        while (await request.receive())["type"] != "http.disconnect":
            pass
    return result
