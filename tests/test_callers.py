"""Who calls, by the headers that harnesses and SDKs send."""

from __future__ import annotations

import pytest

from otel_gym import semconv
from otel_gym.callers import caller_facts

SESSION, AGENT = "otel_gym.client.session_id", "otel_gym.client.agent_id"
PARENT, RETRY = "otel_gym.client.parent_id", "otel_gym.client.retry_count"

Headers = list[tuple[bytes, bytes]]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param(
            [(b"session-id", b"s"), (b"thread-id", b"t"), (b"x-codex-parent-thread-id", b"p")],
            {SESSION: "s", AGENT: "t", PARENT: "p"},
            id="a sub-agent of codex",
        ),
        pytest.param(
            [(b"x-claude-code-session-id", b"s"), (b"x-claude-code-agent-id", b"a")],
            {SESSION: "s", AGENT: "a"},
            id="a sub-agent of claude code",
        ),
        pytest.param(
            [(b"x-session-id", b"s"), (b"x-parent-session-id", b"p")],
            {SESSION: "s", PARENT: "p"},
            id="a sub-agent of opencode",
        ),
        pytest.param([(b"x-stainless-retry-count", b"2")], {RETRY: 2}, id="an sdk's second retry"),
        pytest.param([(b"x-stainless-retry-count", b"0")], {RETRY: 0}, id="an sdk's first try"),
        pytest.param([(b"X-Session-ID", b" s ")], {SESSION: "s"}, id="any case, space around it"),
        pytest.param([], {}, id="nobody says anything"),
        pytest.param([(b"authorization", b"secret"), (b"x-api-key", b"secret")], {}, id="only the rows of the table"),
        pytest.param([(b"x-session-id", b"s"), (b"x-session-id", b"s")], {SESSION: "s"}, id="twice the same"),
        pytest.param([(b"x-session-id", b"s"), (b"x-session-id", b"r")], {}, id="twice, not in one voice"),
        pytest.param([(b"x-session-id", b"")], {}, id="empty"),
        pytest.param(
            [(b"x-session-id", b"outer"), (b"session-id", b"inner")], {SESSION: "inner"}, id="the first row counts"
        ),
        pytest.param(
            [(b"session-id", b"a"), (b"session-id", b"b"), (b"x-session-id", b"s")],
            {SESSION: "s"},
            id="a row that says nothing leaves it to the next",
        ),
        pytest.param([(b"x-stainless-retry-count", b"-1")], {}, id="no count"),
        pytest.param([(b"x-stainless-retry-count", b"1.5")], {}, id="no integer"),
        pytest.param([(b"x-stainless-retry-count", "²".encode("latin-1"))], {}, id="no digit of ascii"),
        pytest.param([(b"x-stainless-retry-count", b"9" * 5000)], {}, id="an integer beyond all measure"),
    ],
)
def test_the_caller_is_told_by_its_headers(headers: Headers, expected: dict[str, str | int]) -> None:
    assert expected == caller_facts(headers)


def test_a_long_value_is_cut_to_what_backends_search() -> None:
    assert {SESSION: "x" * 255} == caller_facts([(b"x-session-id", b"x" * 4000)])
    assert 255 == semconv.LONGEST_SEARCHED


def test_the_bytes_of_a_value_need_be_in_no_encoding() -> None:
    facts = caller_facts([(b"session-id", bytes(range(33, 256)))])
    assert bytes(range(33, 256)).decode("latin-1").strip() == facts[SESSION]
