"""What the span of a call says beside the evidence: of request, answer and exchange, whose call it is, and who calls.

Source: the trace specification's table. Those by which spans are found come first: a backend, or a user's limit, that
keeps only some attributes keeps these.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from otel_gym import semconv
from otel_gym.arrival import Arrival
from otel_gym.callers import caller_facts
from otel_gym.calls import Call
from otel_gym.conversations import Conversations
from otel_gym.semconv import LONGEST_SEARCHED, AttributeValue

FIRST: Final[tuple[str, ...]] = (
    semconv.ROLLOUT_ID,
    semconv.MODEL_CALL_ID,
    semconv.OPERATION_NAME,
    semconv.REQUEST_MODEL,
    semconv.ERROR_TYPE,
    semconv.RESPONSE_ID,
    semconv.RESPONSE_FINISH_REASONS,
    semconv.USAGE_INPUT_TOKENS,
    semconv.USAGE_OUTPUT_TOKENS,
    semconv.USAGE_CACHE_READ_INPUT_TOKENS,
    semconv.USAGE_CACHE_WRITE_INPUT_TOKENS,
    semconv.USAGE_REASONING_OUTPUT_TOKENS,
    semconv.CLIENT_SESSION_ID,
    semconv.CALLER_SESSION_ID,
    semconv.CONVERSATION_ID,
    semconv.HTTP_RESPONSE_STATUS_CODE,
)

_ROLLOUT: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})(?:-a([0-9]{1,18}))?")
# Modules that only the servers themselves load, and what the conventions, or the server's own spans, call them.
_SERVERS: Final = {
    "vllm.entrypoints.launchers.api_server.entry": "vllm",
    "vllm.entrypoints.openai.api_server": "vllm",  # of older releases
    "sglang.srt.entrypoints.http_server": "sglang",
}


def body_facts(call: Call) -> dict[str, AttributeValue]:
    """What the objects of request and response say, as far as there are any: without content."""
    dialect = call.dialect
    return {**dialect.request_facts(call.request_object or {}), **dialect.response_facts(call.response_object or {})}


def chained_facts(
    call: Call, of_bodies: Mapping[str, AttributeValue], arrival: Arrival, conversations: Conversations
) -> Mapping[str, AttributeValue]:
    """What `body_facts` gave, and the conversation where responses make a chain.

    For the calls of a rollout in their order: those that go on from this one learn of it here.
    """
    if call.dialect.name != "responses":
        return of_bodies
    conversation = (
        of_bodies.get(semconv.CONVERSATION_ID)
        or conversations.before(call.rollout_id, of_bodies)
        or _session({**caller_facts(arrival.headers), **_session_facts(call)})
    )
    if conversation is None:
        conversations.remember(call.rollout_id, of_bodies)
        return of_bodies
    chained = {**of_bodies, semconv.CONVERSATION_ID: conversation}
    conversations.remember(call.rollout_id, chained)
    return chained


def _session_facts(call: Call) -> dict[str, AttributeValue]:
    session = call.client_session_id
    return {} if session is None else {semconv.CLIENT_SESSION_ID: session[:LONGEST_SEARCHED]}


def _session(facts: Mapping[str, AttributeValue]) -> AttributeValue | None:
    """A session stands for the conversation where nobody names one."""
    return facts.get(semconv.CLIENT_SESSION_ID) or facts.get(semconv.CALLER_SESSION_ID)


def span_facts(
    call: Call,
    of_bodies: Mapping[str, AttributeValue],
    status: int | None,
    category: str | None,
    arrival: Arrival,
    provider_name: str | None,
) -> dict[str, AttributeValue]:
    """The attributes of a call's span, without content and without evidence; what is not known is absent.

    Args:
        of_bodies: what `chained_facts` gave.
        status, category: as in its record.
        arrival: what the request said of itself.
        provider_name: the setting.
    """
    dialect = call.dialect
    facts: dict[str, AttributeValue] = {
        semconv.MODEL_CALL_ID: call.model_call_id,
        semconv.DIALECT: dialect.name,
        semconv.PROVIDER_NAME: provider_name or server_at_work() or dialect.provider,
        **arrival.facts(),
        **rollout_facts(call.rollout_id),
        **of_bodies,
        **caller_facts(arrival.headers),
        **_session_facts(call),
    }
    if call.model_server_name is not None:
        facts[semconv.MODEL_REF_NAME] = call.model_server_name[:LONGEST_SEARCHED]
    if call.is_stream and call.latency_ttft_ms is not None:
        facts[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] = call.latency_ttft_ms / 1000
    if semconv.CONVERSATION_ID not in facts and (session := _session(facts)) is not None:
        facts[semconv.CONVERSATION_ID] = session
    if status is not None:
        facts[semconv.HTTP_RESPONSE_STATUS_CODE] = status
    if category is not None:
        facts[semconv.ERROR_TYPE] = category
    return {**{name: facts[name] for name in FIRST if name in facts}, **facts}


def span_name(facts: Mapping[str, AttributeValue]) -> str:
    """Operation and model: `chat gpt-4.1`; the operation alone where no model was asked for."""
    model = facts.get(semconv.REQUEST_MODEL)
    return f"{semconv.CHAT} {model}"[:LONGEST_SEARCHED] if model else semconv.CHAT


@lru_cache(maxsize=4096)
def rollout_facts(rollout_id: str) -> Mapping[str, AttributeValue]:
    """The rollout, and the indices that its id says: `{task}-{rollout}`, with `-a{attempt}` where there is one.

    To be read only.
    """
    facts: dict[str, AttributeValue] = {semconv.ROLLOUT_ID: rollout_id}
    match = _ROLLOUT.fullmatch(rollout_id)
    if match is not None:
        facts[semconv.ROLLOUT_TASK_INDEX] = int(match[1])
        facts[semconv.ROLLOUT_ROLLOUT_INDEX] = int(match[2])
        if match[3] is not None:
            facts[semconv.ROLLOUT_ATTEMPT] = int(match[3])
    return facts


def server_at_work() -> str | None:
    """Which known model server this process is, by what it has loaded; None for any other."""
    modules = sys.modules
    for module, name in _SERVERS.items():
        if module in modules:
            return name
    return None
