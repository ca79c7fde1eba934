"""Whose child a call is, whom it links to, and what becomes its child."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, DEFAULT_OFF, DEFAULT_ON, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind

from otel_gym.parentage import Ancestry, ForeignTrace, Parentage, remote_caller
from otel_gym.trace_ids import rollout_trace

RUN, ROLLOUT, CALL = "run", "0-0", "0123456789abcdef" + "0" * 16
OWN_TRACE, ROOT = rollout_trace(RUN, ROLLOUT)
FOREIGN_TRACE, CALLER = 0xAB << 100, 0xCD << 50
REAL = TracerProvider(shutdown_on_exit=False).get_tracer("another instrumentation")


@pytest.fixture(autouse=True)
def nothing_current() -> Iterator[None]:
    """Whatever a test makes current, the next one does not see."""
    before = context.get_current()
    yield
    context.attach(before)


def traceparent(trace_id: int, flags: str = "01", span_id: int = CALLER) -> tuple[bytes, bytes]:
    return b"traceparent", f"00-{trace_id:032x}-{span_id:016x}-{flags}".encode()


def ancestry(
    *headers: tuple[bytes, bytes], foreign_trace: ForeignTrace = "link", sampler: Sampler = DEFAULT_ON
) -> Ancestry:
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/messages", "headers": list(headers)}
    return Parentage(RUN, foreign_trace, lambda: sampler).of(ROLLOUT, CALL, scope)


def seen(found: Ancestry) -> tuple[int, int | None, list[int]]:
    """Trace, parent span and linked spans."""
    return (
        found.own.trace_id,
        None if found.parent is None else found.parent.span_id,
        [link.context.span_id for link in found.links],
    )


@pytest.mark.parametrize(
    ("headers", "foreign_trace", "expected"),
    [
        ([], "link", (OWN_TRACE, None, [])),
        ([traceparent(OWN_TRACE)], "link", (OWN_TRACE, CALLER, [])),
        ([traceparent(OWN_TRACE)], "parent", (OWN_TRACE, CALLER, [])),
        ([traceparent(FOREIGN_TRACE)], "link", (OWN_TRACE, None, [CALLER])),
        ([traceparent(FOREIGN_TRACE)], "parent", (FOREIGN_TRACE, CALLER, [])),
    ],
)
def test_a_caller_in_the_rollouts_trace_is_the_parent_and_one_of_another_trace_what_the_user_says(
    headers: list[tuple[bytes, bytes]], foreign_trace: ForeignTrace, expected: object
) -> None:
    assert expected == seen(ancestry(*headers, foreign_trace=foreign_trace))


@pytest.mark.parametrize("foreign_trace", ["link", "parent"])
def test_the_span_that_is_current_in_the_process_counts_before_the_header(foreign_trace: ForeignTrace) -> None:
    with REAL.start_as_current_span("POST /v1/messages", kind=SpanKind.SERVER) as local:
        found = ancestry(traceparent(OWN_TRACE), foreign_trace=foreign_trace)
    here = local.get_span_context()
    if foreign_trace == "parent":
        assert (here.trace_id, here.span_id, []) == seen(found)
    else:
        assert (OWN_TRACE, None, [here.span_id]) == seen(found)


@pytest.mark.parametrize(
    ("kind", "foreign_trace", "expected"),
    [
        (SpanKind.SERVER, "parent", SpanKind.INTERNAL),
        (SpanKind.INTERNAL, "parent", SpanKind.SERVER),
        (SpanKind.SERVER, "link", SpanKind.SERVER),
    ],
)
def test_only_below_a_server_span_of_the_process_is_a_call_internal(
    kind: SpanKind, foreign_trace: ForeignTrace, expected: SpanKind
) -> None:
    with REAL.start_as_current_span("outside", kind=kind):
        assert expected is ancestry(foreign_trace=foreign_trace).kind
    assert SpanKind.SERVER is ancestry(traceparent(OWN_TRACE)).kind


@pytest.mark.parametrize("collected", [True, False])
def test_without_a_caller_a_call_hangs_below_the_root_that_a_collection_will_send(collected: bool) -> None:
    parent = trace.get_current_span(ancestry().parent_context(collected)).get_span_context()
    assert ((OWN_TRACE, ROOT) if collected else (0, 0)) == (parent.trace_id, parent.span_id)


def test_a_caller_in_the_rollouts_trace_counts_before_the_root_of_a_collection() -> None:
    parent = trace.get_current_span(ancestry(traceparent(OWN_TRACE)).parent_context(True)).get_span_context()
    assert CALLER == parent.span_id


@pytest.mark.parametrize(
    ("headers", "sampler", "sampled"),
    [
        ([], DEFAULT_ON, True),
        ([], ALWAYS_ON, True),
        ([], ALWAYS_OFF, False),
        ([], DEFAULT_OFF, False),
        ([], TraceIdRatioBased(0.0), False),
        ([], TraceIdRatioBased(1.0), True),
        ([traceparent(FOREIGN_TRACE, "01")], DEFAULT_OFF, True),  # the caller has decided
        ([traceparent(FOREIGN_TRACE, "00")], DEFAULT_ON, False),
        ([traceparent(OWN_TRACE, "00")], ALWAYS_ON, False),
        ([traceparent(OWN_TRACE, "01")], ALWAYS_OFF, False),
    ],
)
def test_the_callers_decision_comes_first_then_the_samplers(
    headers: list[tuple[bytes, bytes]], sampler: Sampler, sampled: bool
) -> None:
    found = ancestry(*headers, sampler=sampler)
    assert sampled == found.sampled
    assert [f"-0{int(sampled)}"] == [
        value.decode()[-3:] for name, value in found.forwarded(headers) if name == b"traceparent"
    ]


def test_a_sampler_that_raises_costs_nothing() -> None:
    class Broken(Sampler):
        def should_sample(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError

        def get_description(self) -> str:
            return ""

    assert ancestry(sampler=Broken()).sampled


def test_the_application_gets_our_trace_context_instead_of_the_callers() -> None:
    inbound = [(b"host", b"h"), (b"Traceparent", traceparent(OWN_TRACE)[1]), (b"tracestate", b"a=1"), (b"x", b"1")]
    ours = (b"traceparent", f"00-{OWN_TRACE:032x}-0123456789abcdef-01".encode())
    expected = [(b"host", b"h"), (b"x", b"1"), ours, (b"tracestate", b"a=1")]
    assert expected == ancestry(*inbound).forwarded(inbound)
    assert 4 == len(inbound)


def test_the_trace_state_of_another_trace_ends_here() -> None:
    inbound = [traceparent(FOREIGN_TRACE), (b"tracestate", b"a=1")]
    assert [b"traceparent"] == [name for name, _ in ancestry(*inbound).forwarded(inbound)]
    joined = ancestry(*inbound, foreign_trace="parent").forwarded(inbound)
    assert [(b"tracestate", b"a=1")] == joined[1:]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [b""],
        [b"garbage"],
        [b"\xff\xfe"],
        [b"00-" + b"0" * 32 + b"-" + b"cd" * 8 + b"-01"],
        [b"00-" + b"ab" * 16 + b"-" + b"0" * 16 + b"-01"],
        [b"ff-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"],
        [b"00-" + b"AB" * 16 + b"-" + b"cd" * 8 + b"-01"],
        [b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01-more"],
        [b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01", b"00-" + b"ab" * 16 + b"-" + b"ef" * 8 + b"-01"],
        [b"x" * 10_000],
        [b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01\nx"],
    ],
    ids=lambda values: repr(values)[:60],
)
def test_a_trace_context_that_cannot_be_used_is_none(values: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert remote_caller([(b"traceparent", value) for value in values]) is None
    assert [] == caplog.messages


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        ([b"a=1"], b"a=1"),
        ([b"a=1,b=2", b" c@d=3 ,, e=4\t"], b"a=1,b=2,c@d=3,e=4"),
        ([b"1a@b=x y"], b"1a@b=x y"),
        ([b""], None),
        ([b"no member"], None),
        ([b"a=1", b"not valid"], None),
        ([b"a=1,a=2"], None),
        ([b"A=1"], None),
        ([b"a=\xff"], None),
        ([b"a=" + b"x" * 257], None),
        ([b",".join(b"k%d=1" % number for number in range(33))], None),
        ([b"a=" + b"x" * 600], None),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_trace_state_goes_on_whole_or_not_at_all_and_never_to_the_log(
    values: list[bytes], taken: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    inbound = [traceparent(OWN_TRACE), *((b"tracestate", value) for value in values)]
    with caplog.at_level(logging.DEBUG):
        forwarded = ancestry(*inbound).forwarded(inbound)
    assert [] == caplog.messages
    assert [taken] * (taken is not None) == [value for name, value in forwarded if name == b"tracestate"]


def test_a_future_version_of_the_trace_context_is_read_as_far_as_it_is_known() -> None:
    caller = remote_caller([(b"traceparent", b"cc-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01-what-comes")])
    assert caller is not None
    assert int("ab" * 16, 16) == caller.trace_id


def test_the_call_is_current_while_the_application_runs_and_what_was_before_comes_back() -> None:
    with REAL.start_as_current_span("outside") as outside:
        found = ancestry()
        found.enter()
        assert found.own == trace.get_current_span().get_span_context()
        found.leave()
        assert outside is trace.get_current_span()


def test_leaving_in_another_task_takes_nothing_from_it(caplog: pytest.LogCaptureFixture) -> None:
    found = ancestry()

    async def in_two_tasks() -> None:
        async def enter() -> None:
            found.enter()

        async def leave() -> None:
            with REAL.start_as_current_span("theirs") as theirs:
                found.leave()
                assert theirs is trace.get_current_span()

        await asyncio.create_task(enter())
        await asyncio.create_task(leave())
        assert not trace.get_current_span().get_span_context().is_valid

    asyncio.run(in_two_tasks())
    assert [] == caplog.messages
