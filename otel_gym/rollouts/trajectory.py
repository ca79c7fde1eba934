"""What happened in a rollout, as one record: `ng_trajectory`.

An agent may report its own (a producer's trajectory); else `otel_gym.rollouts.projection` makes it of the captured
calls and the agent's observations. Source: "Agent observations → trajectory → perf" of the rollout specification.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from otel_gym.rollouts.observations import AgentInvocation, Count, Id, Milliseconds, ToolCallObservation, check_forest
from otel_gym.rollouts.references import Evidence, Gap, ModelCallRef, ModelRef

TRAJECTORY_KEY = "ng_trajectory"


class ResponseMetadata(Evidence):
    """What is known of an answer beside its content; the fields are those of a `ModelCallRecord`."""

    response_id: str | None = None
    model_ref: ModelRef | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    upstream_attempted: bool | None = None
    response_source: Literal["upstream", "local"] | None = None
    upstream_status_code: int | None = None
    local_response_reason: str | None = None
    error_category: str | None = None
    latency_ttft_ms: Milliseconds | None = None


class TokenStats(Evidence):
    """Tokens of a call; None is unknown."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    total_tokens: Count | None = None
    cached_tokens: Count | None = None


class TrajectoryModelCall(Evidence):
    """A model call, with what was sent and what came: JSON, or text where it was none."""

    model_call_id: str | None = None
    started_at: float | None = Field(default=None, description="Unix seconds")
    completed_at: float | None = Field(default=None, description="Unix seconds")
    duration_ms: Milliseconds | None = None
    request: Any = None
    response: Any = None
    response_metadata: ResponseMetadata = Field(default_factory=ResponseMetadata)
    token_stats: TokenStats = Field(default_factory=TokenStats)


class TrajectoryToolCall(ToolCallObservation):
    """An execution of a tool, with what it gave back to the model."""

    output: Any = None


class TrajectoryTurn(Evidence):
    """One answer of a model to an invocation, and what it was asked."""

    invocation_id: Id
    task_id: str
    rollout_id: str
    turn_no: int = Field(ge=1, description="within its invocation, from 1")
    timestamp: float = Field(description="Unix seconds; 0 where it is not known")
    question: Any = Field(default=None, description="the input items or messages of the request")
    answer: Any = Field(default=None, description="the output items or the message; null where the shape has none")
    reasoning_content: Any = None
    resolved: bool | None = Field(default=None, description="on the last turn: what the result says of the rollout")
    step_count: Count = Field(description="tool calls that the invocation had asked for before this turn")
    model_calls: list[ModelCallRef] = Field(default_factory=list)


class TrajectoryRecord(Evidence):
    """`ng_trajectory`.

    Raises:
        ValueError: an invocation, a turn of an invocation or a model call is there twice, or an invocation is its own
            ancestor.
    """

    schema_version: Literal["1.0"] = "1.0"
    task_id: str
    rollout_id: str
    invocations: list[AgentInvocation] = Field(default_factory=list)
    turns: list[TrajectoryTurn] = Field(default_factory=list)
    model_calls: list[TrajectoryModelCall] = Field(default_factory=list)
    tool_calls: list[TrajectoryToolCall] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list)

    @model_validator(mode="after")
    def _each_thing_is_there_once(self) -> TrajectoryRecord:
        check_forest(self.invocations)
        turns = {(turn.invocation_id, turn.turn_no) for turn in self.turns}
        if len(turns) != len(self.turns):
            raise ValueError("an invocation has two turns of one number")
        call_ids = [call.model_call_id for call in self.model_calls if call.model_call_id is not None]
        if len(set(call_ids)) != len(call_ids):
            raise ValueError("two model calls have one model_call_id")
        return self
