"""What the span of a call says, as a backend gets it: every name of the table, in the order that limits need."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from otel_gym import semconv
from otel_gym.span_facts import rollout_facts, server_at_work
from otel_gym.testing import ScriptedModel, answer, stream
from tests.mirrored import RUN, Mirrored, attributes
from tests.services.receiver import Receiver


async def test_a_failed_call_is_an_error_of_its_category_and_says_no_more(mirrored: Mirrored) -> None:
    await mirrored.call(ScriptedModel.of({"error": {"message": "secret"}}, status=429))
    span = mirrored.span()
    assert ("rate_limit", StatusCode.ERROR.value) == (attributes(span)["error.type"], span.status.code)
    assert span.status.message in ("", "rate_limit")
    assert "secret" not in str(span)


async def test_an_application_that_raises_leaves_a_span_without_the_text_of_its_exception(mirrored: Mirrored) -> None:
    with pytest.raises(RuntimeError):
        await mirrored.call(ScriptedModel([b"data: {}\n\n", RuntimeError("secret")]))
    span = mirrored.span()
    assert "exception" == attributes(span)["error.type"]
    assert "secret" not in str(span)


async def test_a_request_without_a_model_gives_a_name_without_one(mirrored: Mirrored) -> None:
    await mirrored.call(body=b"{}")
    assert "chat" == mirrored.span().name


async def test_a_model_with_a_long_name_gives_a_name_that_a_backend_still_finds(mirrored: Mirrored) -> None:
    await mirrored.call(body=json.dumps({"model": "m" * 300}).encode())
    span = mirrored.span()
    assert ("chat " + "m" * 250, "m" * 255) == (span.name, attributes(span)["gen_ai.request.model"])


RICH = {
    "model": "m", "stream": True, "temperature": 0.5, "top_p": 1, "top_k": 4, "max_tokens": 8, "seed": 1, "n": 2,
    "frequency_penalty": 0.1, "presence_penalty": 0.2, "reasoning_effort": "low", "stop": ["END"],
    "messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f"}}],
}  # fmt: skip
USAGE = {
    "prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12, "cache_creation_input_tokens": 1,
    "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 3},
}  # fmt: skip
WHO = [
    (b"x-session-id", b"s1"), (b"session-id", b"s2"), (b"thread-id", b"t1"), (b"x-codex-parent-thread-id", b"t0"),
    (b"x-stainless-retry-count", b"1"),
]  # fmt: skip


async def test_every_name_of_the_table_is_emitted_and_no_other(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    room = 64 * 1024
    mirrored = Mirrored(tmp_path, receiver, model_server_name="policy", mirror_queue_bytes=room)
    pieces = [piece.replace(json.dumps(answer("chat", "ab")["usage"]).encode(), json.dumps(USAGE).encode())
              for piece in stream("chat", "a", "b")]  # fmt: skip
    await mirrored.call(ScriptedModel(pieces), "3-1-a2", body=json.dumps(RICH).encode(), headers=WHO)
    responses = {"model": "m", "instructions": "be brief", "input": "hi", "previous_response_id": "r0"}
    await mirrored.call(None, "3-1-a2", "responses", body=json.dumps(responses).encode())
    await mirrored.call(ScriptedModel.of({}, status=500), "3-1-a2")
    large = {"model": "m", "messages": [{"role": "user", "content": "x" * room}]}
    await mirrored.call(None, "3-1-a2", body=json.dumps(large).encode())
    spans = mirrored.spans(4)
    mirrored.close()
    assert (set(), set()) == semconv.differences(name for span in spans for name in attributes(span))
    [shed] = [said for said in map(attributes, spans) if semconv.MIRROR_SHED_CONTENT_BYTES in said]
    assert shed[semconv.MIRROR_SHED_CONTENT_BYTES] > room
    assert set() == semconv.CONTENT_ATTRIBUTES & set(shed)
    assert [] == [span for span in spans if len(span.attributes) > 128]


@pytest.mark.usefixtures("limits_read_anew")
@pytest.mark.parametrize("limit", [None, "20"])
async def test_ids_usage_finish_reasons_and_session_come_before_content_in_any_limit(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, limit: str | None
) -> None:
    """A chat of 200 messages, every fact known, content on."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    if limit is not None:
        monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", limit)
    messages = [{"role": "user", "content": f"question {number}"} for number in range(200)]
    mirrored = Mirrored(tmp_path, receiver, model_server_name="policy")
    body = json.dumps({**RICH, "stream": False, "messages": messages}).encode()
    await mirrored.call(ScriptedModel.of({**answer("chat", "hi"), "usage": USAGE}), "3-1-a2", body=body, headers=WHO)
    span = mirrored.span()
    said = attributes(span)
    assert messages == mirrored.record("3-1-a2")["request"]["messages"]
    wanted = {
        semconv.ROLLOUT_ID, semconv.MODEL_CALL_ID, semconv.RESPONSE_ID, semconv.RESPONSE_FINISH_REASONS,
        semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS, semconv.USAGE_CACHE_READ_INPUT_TOKENS,
        semconv.CLIENT_SESSION_ID, semconv.CONVERSATION_ID, semconv.RECORD_SHA256,
    }  # fmt: skip
    assert set() == wanted - set(said)
    if limit is None:
        assert 200 == len(json.loads(said[semconv.INPUT_MESSAGES]))
        first_content = min(list(said).index(name) for name in semconv.CONTENT_ATTRIBUTES if name in said)
        assert set(list(said)[first_content:]) <= semconv.CONTENT_ATTRIBUTES
    else:
        assert 20 == len(span.attributes)


async def test_content_stays_here_unless_the_variable_or_the_destination_wants_it(
    tmp_path: Path, receiver: Receiver
) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "secret"}]}).encode()
    await Mirrored(tmp_path, receiver).call(body=body)
    (span,) = receiver.wait_for(1)
    assert "secret" not in str(span)
    wanted = Mirrored(
        tmp_path,
        receiver,
        mirror_destinations=[{"endpoint": receiver.endpoint, "content": True}],
        redact_patterns=["s.cret"],
    )
    await wanted.call(body=body, rollout_id="0-1")
    (_, span) = receiver.wait_for(2)
    assert "[redacted]" in str(attributes(span)[semconv.INPUT_MESSAGES])
    assert "secret" == wanted.record("0-1")["request"]["messages"][0]["content"]


async def test_the_setting_names_the_provider_and_without_it_the_dialect_does(
    tmp_path: Path, receiver: Receiver
) -> None:
    await Mirrored(tmp_path, receiver).call(dialect="messages")
    await Mirrored(tmp_path, receiver, provider_name="mine").call(dialect="messages")
    # Two mirrors send: which of them comes first is nobody's promise.
    assert {"anthropic", "mine"} == {attributes(span)["gen_ai.provider.name"] for span in receiver.wait_for(2)}


async def test_the_span_has_the_times_of_the_record(mirrored: Mirrored) -> None:
    await mirrored.call(ScriptedModel([0.05, *stream("chat", "a")]))
    span, record = mirrored.span(), mirrored.record()
    assert (record["started_at"], record["completed_at"]) == pytest.approx(
        (span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9), abs=1e-6
    )


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (("10.0.0.7", 8000), ("10.0.0.7", 8000)),
        (["::1", 9], ("::1", 9)),
        (("/run/model.sock", None), ("/run/model.sock", None)),
        (None, (None, None)),
        ("10.0.0.7", (None, None)),
    ],
)
@pytest.mark.parametrize("host", [b"secret", b"secret:99999", b"[secret]:9"])
async def test_the_address_is_that_of_the_socket_whatever_the_client_writes_into_host(
    mirrored: Mirrored, host: bytes, server: Any, expected: tuple[str | None, int | None]
) -> None:
    await mirrored.call(scope={"headers": [(b"host", host)], "server": server})
    said = attributes(mirrored.span())
    assert expected == (said.get("server.address"), said.get("server.port"))
    assert "secret" not in str(mirrored.span())


async def test_the_path_is_that_of_the_application(mirrored: Mirrored) -> None:
    await mirrored.call()
    assert "/v1/chat/completions" == attributes(mirrored.span())["url.path"]
    assert RUN not in str(mirrored.span())


@pytest.mark.parametrize(
    ("rollout_id", "expected"),
    [
        ("3-1", {semconv.ROLLOUT_TASK_INDEX: 3, semconv.ROLLOUT_ROLLOUT_INDEX: 1}),
        ("3-1-a2", {semconv.ROLLOUT_TASK_INDEX: 3, semconv.ROLLOUT_ROLLOUT_INDEX: 1, semconv.ROLLOUT_ATTEMPT: 2}),
        ("mine", {}),
        ("mine-a2", {}),  # may be somebody's own name
        ("3-1-b", {}),
        ("9" * 19 + "-0", {}),
    ],
)
def test_indices_are_said_only_where_the_id_says_them(rollout_id: str, expected: dict[str, int]) -> None:
    assert {semconv.ROLLOUT_ID: rollout_id, **expected} == rollout_facts(rollout_id)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("vllm.entrypoints.launchers.api_server.entry", "vllm"),
        ("vllm.entrypoints.openai.api_server", "vllm"),
        ("sglang.srt.entrypoints.http_server", "sglang"),
        (None, None),
    ],
)
def test_a_known_server_is_known_by_what_it_has_loaded(
    module: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module is not None:
        monkeypatch.setitem(sys.modules, module, sys)
    assert expected == server_at_work()
