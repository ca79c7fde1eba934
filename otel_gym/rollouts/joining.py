"""The exact join of what an agent observed with what was captured: never a guess.

Source: "Agent observations → trajectory → perf" of the rollout specification; the cases `attach-join-*` and
`attach-compaction-*` of the conformance corpus.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from otel_gym.rollouts.observations import AgentInvocation, AgentObservations, ContextCompaction
from otel_gym.rollouts.references import Gap, ModelCallRef, ModelRef, name_of_call, once

UNMATCHED = "model_call_reference_unmatched"
AMBIGUOUS = "model_call_reference_ambiguous"
CONFLICT = "model_call_reference_conflict"
UNOWNED = "model_call_ownership_unavailable"

_CAPTURE = "capture:"
_BEFORE, _DURING, _AFTER = "before_model_call:", "model_calls:", "after_model_call:"

Call = dict[str, Any]
"""A call of the attachment, with the fields of a `ModelCallRecord`."""

Reference = dict[str, Any]
"""A `ModelCallRef` as a dictionary: `model_call_id`, `model_ref`, `response_id`."""


class CallIndex:
    """Captured calls by the ids that references have; a reference is looked up in constant time."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._by_id: dict[str, list[Call]] = defaultdict(list)
        self._by_answer: dict[tuple[str, str], list[Call]] = defaultdict(list)
        for call in calls:
            if (call_id := call.get("model_call_id")) is not None:
                self._by_id[call_id].append(call)
            if (response_id := call.get("response_id")) is not None and (server := call.get("model_ref")) is not None:
                self._by_answer[server.get("name"), response_id].append(call)

    def matches(self, reference: Reference) -> list[Call]:
        """The calls that agree with everything that the reference says; two of them when there are more."""
        call_id, server, response_id = reference["model_call_id"], reference["model_ref"], reference["response_id"]
        if call_id is not None:
            found = self._by_id.get(call_id, [])
        elif server is not None and response_id is not None:
            found = self._by_answer.get((server["name"], response_id), [])
        else:
            return []
        agreeing = (
            call
            for call in found
            if (server is None or call.get("model_ref") == server)
            and (response_id is None or call.get("response_id") == response_id)
        )
        return list(islice(agreeing, 2))


def reference_to(call: Call) -> Reference | None:
    """The reference that says everything known of a call; None where that would not be enough to find it."""
    call_id, server, response_id = call.get("model_call_id"), call.get("model_ref"), call.get("response_id")
    if call_id is None and (server is None or response_id is None):
        return None
    return {"model_call_id": call_id, "model_ref": server, "response_id": response_id}


def join(observations: AgentObservations, calls: Sequence[Call]) -> AgentObservations:
    """The observations with every reference that names exactly one captured call completed.

    Gaps of an earlier join are dropped, so that joining twice gives the same as joining once. Linear in calls and
    references. What does not match stays as it was reported, with a gap: no match, several, a call that has another
    owner already. Each captured call that no invocation owns is a gap too.
    """
    return _Join(observations, calls).result()


class _Join:
    def __init__(self, observations: AgentObservations, calls: Sequence[Call]) -> None:
        self.observations = observations
        self.calls = calls
        self.index = CallIndex(calls)
        self.owners: dict[int, str] = {}  # by identity: a call may have no id
        self.gaps = [gap for gap in observations.gaps if not _of_an_earlier_join(gap)]

    def result(self) -> AgentObservations:
        joined = {
            invocation.invocation_id: [self._own(invocation, reference) for reference in invocation.model_calls]
            for invocation in self.observations.invocations
        }
        self._by_session(joined)
        records: list[Any] = []
        for record in self.observations.records:
            if isinstance(record, AgentInvocation):
                records.append(record.model_copy(update={"model_calls": joined[record.invocation_id]}))
            elif isinstance(record, ContextCompaction):
                records.append(self._compaction(record))
            else:
                records.append(record)
        for call in self.calls:
            if id(call) not in self.owners:
                self._gap(UNOWNED, None, f"{_CAPTURE}{name_of_call(call)}:call_index={call.get('call_index')}")
        return AgentObservations.model_construct(source=self.observations.source, records=records, gaps=once(self.gaps))

    def _own(self, invocation: AgentInvocation, reference: ModelCallRef) -> ModelCallRef:
        call = self._only_match(reference, invocation.invocation_id)
        if call is None:
            return reference
        if (owner := self.owners.get(id(call))) is not None:
            named_by_session = owner != invocation.invocation_id == call.get("client_session_id")
            if not named_by_session:  # else the gap is told where sessions are looked at, in the same order every time
                self._gap(CONFLICT, invocation.invocation_id, name_of_call(call))
            return reference
        self.owners[id(call)] = invocation.invocation_id
        return _complete(call) or reference

    def _by_session(self, joined: dict[str, list[ModelCallRef]]) -> None:
        """A call whose client called its session by the id of an invocation is a call of that invocation."""
        said: dict[str, set[str]] = {}
        places = {invocation_id: place for place, invocation_id in enumerate(joined)}
        for call in self.calls:
            invocation_id = call.get("client_session_id")
            if invocation_id not in joined or (complete := _complete(call)) is None:
                continue
            if invocation_id not in said:
                said[invocation_id] = {reference.model_dump_json() for reference in joined[invocation_id]}
            owner = self.owners.setdefault(id(call), invocation_id)
            # Added is only what the next join reads as this one does: a reference that means a second call too would be
            # ambiguous to it, and one that stands before the owner's would take the call away from the owner.
            unique = len(self.index.matches(_fields(complete))) == 1
            after_owner = places[owner] <= places[invocation_id]
            if unique and after_owner and complete.model_dump_json() not in said[invocation_id]:
                joined[invocation_id].append(complete)
            if owner != invocation_id:
                self._gap(CONFLICT, invocation_id, name_of_call(call))

    def _compaction(self, record: ContextCompaction) -> ContextCompaction:
        owner = record.invocation_id
        during = [self._of(owner, reference, _DURING) for reference in record.model_calls]
        before = record.before_model_call and self._of(owner, record.before_model_call, _BEFORE)
        after = record.after_model_call and self._of(owner, record.after_model_call, _AFTER)
        return record.model_copy(update={"before_model_call": before, "model_calls": during, "after_model_call": after})

    def _of(self, invocation_id: str, reference: ModelCallRef, place: str) -> ModelCallRef:
        """A reference of a compaction: its calls belong to its invocation, those around it to nobody else."""
        call = self._only_match(reference, invocation_id, place)
        if call is None:
            return reference
        owner = self.owners.get(id(call))
        if owner is None and place == _DURING:
            self._gap(UNOWNED, invocation_id, place + name_of_call(call))
            return reference
        if owner not in (None, invocation_id):
            self._gap(CONFLICT, invocation_id, place + name_of_call(call))
            return reference
        return _complete(call) or reference

    def _only_match(self, reference: ModelCallRef, invocation_id: str, place: str = "") -> Call | None:
        found = self.index.matches(_fields(reference))
        if len(found) == 1:
            return found[0]
        self._gap(AMBIGUOUS if found else UNMATCHED, invocation_id, place + reference.name)
        return None

    def _gap(self, code: str, invocation_id: str | None, detail: str) -> None:
        self.gaps.append(Gap(code=code, invocation_id=invocation_id, detail=detail))


def _of_an_earlier_join(gap: Gap) -> bool:
    if gap.code == UNOWNED:
        return (gap.detail or "").startswith((_CAPTURE, _DURING))
    return gap.code in (UNMATCHED, AMBIGUOUS, CONFLICT)


def _fields(reference: ModelCallRef) -> Reference:
    server = reference.model_ref
    return {
        "model_call_id": reference.model_call_id,
        "model_ref": None if server is None else {"type": server.type, "name": server.name},
        "response_id": reference.response_id,
    }


def _complete(call: Call) -> ModelCallRef | None:
    reference = reference_to(call)
    if reference is None:
        return None
    server = reference["model_ref"]
    # What was captured has its types already: checked again, it would be a tenth of the cost of an attachment.
    reference["model_ref"] = None if server is None else _server(server["type"], server["name"])
    return ModelCallRef.model_construct(**reference)


@lru_cache(maxsize=256)
def _server(kind: Any, name: str) -> ModelRef:
    return ModelRef.model_construct(type=kind, name=name)
