"""What observations, trajectories and gaps have in common: how a model call is referred to, how a gap is named.

Source: "Agent observations → trajectory → perf" of the rollout specification.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from otel_gym_jsonl import model_calls


class Evidence(BaseModel):
    """Base of everything below an `ng_*` key: a field that is not known is refused, None means unknown."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ModelRef(model_calls.ModelRef):
    """The model server that a call went to."""

    model_config = ConfigDict(extra="forbid")


class ModelCallRef(Evidence):
    """Which model call is meant: by the id that the model server gave it, or by server and id of the answer.

    Raises:
        ValueError: neither `model_call_id` nor both of `model_ref` and `response_id` are given.
    """

    model_call_id: str | None = Field(default=None, min_length=1, description="the id in the capture file")
    model_ref: ModelRef | None = None
    response_id: str | None = Field(default=None, min_length=1, description="the `id` of the answer")

    @model_validator(mode="after")
    def _refers_to_something(self) -> ModelCallRef:
        if self.model_call_id is None and (self.model_ref is None or self.response_id is None):
            raise ValueError("give model_call_id, or model_ref and response_id")
        return self

    @property
    def name(self) -> str:
        """What a gap calls the reference."""
        return self.model_call_id or self.response_id or ""


class Gap(Evidence):
    """Something that is known to be missing, by a code; `detail` says what exactly."""

    code: str = Field(min_length=1)
    invocation_id: str | None = None
    detail: str | None = None

    def key(self) -> tuple[str, str | None, str | None]:
        """Two gaps with the same key are one."""
        return self.code, self.invocation_id, self.detail


def once(gaps: Iterable[Gap]) -> list[Gap]:
    """The gaps in their order, each of them once."""
    seen: dict[object, Gap] = {}
    for gap in gaps:
        seen.setdefault(gap.key(), gap)
    return list(seen.values())


def name_of_call(call: dict[str, Any]) -> str:
    """What a gap calls a captured call."""
    return call.get("model_call_id") or call.get("response_id") or "unknown"
