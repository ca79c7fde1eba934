"""What an agent says of its own run: `ng_agent_observations`.

Model calls are seen by the model server; who made them, which tools ran, what was compacted and what a sandbox did is
seen by the agent only. It reports that in its result; `otel_gym.rollouts.joining` joins it with the captured calls.
Source: "Agent observations → trajectory → perf" of the rollout specification.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from otel_gym.rollouts.references import Evidence, Gap, ModelCallRef

OBSERVATIONS_KEY = "ng_agent_observations"

# The optional fields of conversation items that the reference fills in with null.
_OPTIONAL = {
    "message": ("phase",),
    "function_call": ("id", "status", "namespace"),
    "function_call_output": ("id", "status"),
}

Id = Annotated[str, Field(min_length=1)]
Milliseconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class Timed(Evidence):
    """A stretch of time: Unix seconds, and milliseconds."""

    started_at: float | None = Field(default=None, description="Unix seconds")
    completed_at: float | None = Field(default=None, description="Unix seconds")
    duration_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _ends_after_it_began(self) -> Timed:
        if self.started_at is not None and self.completed_at is not None and self.completed_at < self.started_at:
            raise ValueError("completed_at is before started_at")
        return self


class AgentInvocation(Evidence):
    """One run of an agent, or of a sub-agent that it started."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: Id
    parent_invocation_id: Id | None = Field(default=None, description="the invocation that started this one")
    spawned_by_tool_call_id: str | None = Field(default=None, description="the tool call that started this one")
    status: str = Field(default="unknown", description="completed, failed, …; unknown if not said")
    error_type: str | None = None
    duration_ms: Milliseconds | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list, description="the model calls that it made")
    conversation: list[dict[str, Any]] = Field(
        default_factory=list, description="its items, in the form of the Responses API"
    )

    @field_validator("conversation")
    @classmethod
    def _items_have_all_their_fields(cls, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [_whole_item(item) for item in items]


class ToolCallObservation(Timed):
    """One execution of a tool."""

    kind: Literal["tool_call"] = "tool_call"
    invocation_id: Id
    tool_call_id: Id
    tool_name: str | None = None
    timing_source: str | None = Field(default=None, description="who took the times: executor, …")
    status: str = Field(default="unknown", description="completed, failed, …; unknown if not said")
    error_type: str | None = None
    sandbox_id: str | None = Field(default=None, description="the sandbox that it ran in")


class ContextCompaction(Evidence):
    """The context of an invocation was made smaller."""

    kind: Literal["context_compaction"] = "context_compaction"
    invocation_id: Id
    trigger: str | None = Field(default=None, description="auto, manual, …")
    tokens_before: Count | None = None
    tokens_after: Count | None = None
    outcome: str | None = None
    summary: str | None = None
    first_kept_item_id: str | None = Field(default=None, description="the first item that was kept as it was")
    observed_at: float | None = Field(default=None, description="Unix seconds")
    before_model_call: ModelCallRef | None = Field(default=None, description="the last call before it")
    model_calls: list[ModelCallRef] = Field(default_factory=list, description="the calls that it made itself")
    after_model_call: ModelCallRef | None = Field(default=None, description="the first call after it")


class SandboxObservation(Evidence):
    """What a sandbox did, over its whole life.

    The reference knows further fields, of resource usage, whose names are not public: what a harness reports is kept.
    """

    model_config = ConfigDict(extra="allow")

    kind: Literal["sandbox"] = "sandbox"
    role: str | None = None
    provider: str | None = None
    sandbox_id: str | None = None
    outcome: str | None = None
    exit_code: int | None = None
    wall_time_s: float | None = Field(default=None, ge=0)


ObservationRecord = Annotated[
    AgentInvocation | ToolCallObservation | ContextCompaction | SandboxObservation, Field(discriminator="kind")
]


class AgentObservations(Evidence):
    """`ng_agent_observations`: everything that one agent observed of one rollout.

    Raises:
        ValueError: two invocations have one id, or the parents of an invocation lead back to it.
    """

    source: str = Field(description="which harness reports")
    records: list[ObservationRecord] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list)

    @property
    def invocations(self) -> list[AgentInvocation]:
        """The records that are invocations."""
        return [record for record in self.records if isinstance(record, AgentInvocation)]

    @model_validator(mode="after")
    def _invocations_are_a_forest(self) -> AgentObservations:
        check_forest(self.invocations)
        return self


def check_forest(invocations: list[AgentInvocation]) -> None:
    """Raise ValueError when two invocations have one id, or the parents of one lead back to it.

    A parent that was not observed is no fault.
    """
    parents = {invocation.invocation_id: invocation.parent_invocation_id for invocation in invocations}
    if len(parents) != len(invocations):
        raise ValueError("two invocations have one invocation_id")
    rooted: set[str] = set()
    for start in parents:
        path: dict[str, None] = {}
        at: str | None = start
        while at is not None and at in parents and at not in rooted:
            if at in path:
                raise ValueError(f"invocation {at!r} is its own ancestor")
            path[at] = None
            at = parents[at]
        rooted.update(path)


def _whole_item(item: dict[str, Any]) -> dict[str, Any]:
    kind = item.get("type", "message" if "role" in item else None)
    missing = [field for field in _OPTIONAL.get(kind, ()) if field not in item] if isinstance(kind, str) else []
    if not missing and "type" in item:
        return item
    return {**item, **({} if kind is None else {"type": kind}), **dict.fromkeys(missing)}
