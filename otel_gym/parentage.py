"""Where a call stands among the spans of others: whose child it is, whom it is linked to, who becomes its child.

One rollout is one trace. The span that is current when the call arrives, or else the inbound `traceparent`, is the
call's parent when it is in that trace; of another trace it becomes a link, or the parent where the user says so.
Source: the trace specification, "Ids".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, DEFAULT_ON, Decision, Sampler
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags, TraceState

from otel_gym import semconv
from otel_gym.asgi import Scope
from otel_gym.trace_ids import call_span_id, rollout_trace

ForeignTrace = Literal["link", "parent"]
Headers = Iterable[tuple[bytes, bytes]]

_TRACEPARENT: Final = b"traceparent"
_TRACESTATE: Final = b"tracestate"
_OURS: Final = frozenset({_TRACEPARENT, _TRACESTATE})
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)
# Version, trace, span and flags; a version after 00 may say more.
_WIRE: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_LONGEST: Final = 512
_MEMBER: Final = re.compile(  # of a trace state, as OpenTelemetry takes it: W3C Trace Context, "tracestate Header"
    r"([a-z][_0-9a-z\-*/]{0,255}|[a-z0-9][_0-9a-z\-*/]{0,240}@[a-z][_0-9a-z\-*/]{0,13})"
    r"=([\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e])"
)
_MOST_MEMBERS: Final = 32
_NO_CONTEXT: Final = Context()
_YES_UNLESS_THE_CALLER_SAYS_NO: Final = (ALWAYS_ON, DEFAULT_ON)


class Ancestry:
    """Of one call.

    Attributes:
        own: ids of the call's span, as those see it that come below.
        root_span_id: of the rollout's root span.
        parent: the span that is known to be above; None: the rollout's root when somebody sends it, else nobody.
        links: to the caller, where it is in another trace.
        kind: SERVER, or INTERNAL below a local SERVER span.
        sampled: whether the mirror gets the span: the caller's decision first, then the sampler's.
    """

    __slots__ = ("_outer", "_span", "kind", "links", "own", "parent", "root_span_id", "sampled")

    def __init__(
        self,
        own: SpanContext,
        root_span_id: int,
        parent: SpanContext | None,
        links: tuple[Link, ...],
        kind: SpanKind,
        sampled: bool,
    ) -> None:
        self.own = own
        self.root_span_id = root_span_id
        self.parent = parent
        self.links = links
        self.kind = kind
        self.sampled = sampled
        self._span = NonRecordingSpan(own)
        self._outer = _NO_CONTEXT

    def parent_context(self, collected: bool) -> Context:
        """The context in which the span starts.

        Args:
            collected: a collection runs, which will send the rollout's root span.
        """
        parent = self.parent
        if parent is None:
            if not collected:
                return _NO_CONTEXT
            parent = SpanContext(self.own.trace_id, self.root_span_id, is_remote=True, trace_flags=_SAMPLED)
        return trace.set_span_in_context(NonRecordingSpan(parent), _NO_CONTEXT)

    def forwarded(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The request's headers as the application gets them: the trace context is ours."""
        own = self.own
        out = [pair for pair in headers if pair[0] not in _OURS and pair[0].lower() not in _OURS]
        flags = own.trace_flags & TraceFlags.SAMPLED
        out.append((_TRACEPARENT, f"00-{own.trace_id:032x}-{own.span_id:016x}-{flags:02x}".encode()))
        if own.trace_state:
            out.append((_TRACESTATE, own.trace_state.to_header().encode("latin-1")))
        return out

    def enter(self) -> None:
        """Make the call's span the current one: spans that the application makes are its children.

        No token is kept: a coroutine may be advanced in one task and closed in another, where a token has no value.
        """
        self._outer = otel_context.get_current()
        otel_context.attach(trace.set_span_in_context(self._span))

    def leave(self) -> None:
        """The application has ended: what was current before is so again, where this call still is."""
        if trace.get_current_span() is self._span:
            otel_context.attach(self._outer)


class Parentage:
    """Finds the ancestry of calls, on the event loop.

    Args:
        run_id: seed of the ids.
        foreign_trace: what a caller of another trace becomes.
        sampler: gives the sampler that holds now.
    """

    def __init__(self, run_id: str, foreign_trace: ForeignTrace, sampler: Callable[[], Sampler]) -> None:
        self.run_id = run_id
        self._foreign_is_parent = foreign_trace == "parent"
        self._sampler = sampler

    def of(self, rollout_id: str, model_call_id: str, scope: Scope) -> Ancestry:
        """Of a call that arrives now."""
        trace_id, root_span_id = rollout_trace(self.run_id, rollout_id)
        current = trace.get_current_span()
        caller: SpanContext | None = current.get_span_context()
        is_local_server = False
        if caller is not None and caller.is_valid:
            is_local_server = getattr(current, "kind", None) is SpanKind.SERVER
        else:
            caller = remote_caller(scope.get("headers", ()))
        parent: SpanContext | None = None
        links: tuple[Link, ...] = ()
        if caller is not None:
            if caller.trace_id == trace_id or self._foreign_is_parent:
                parent = caller
                trace_id = caller.trace_id
            else:
                links = (Link(caller),)
        kind = SpanKind.INTERNAL if parent is not None and is_local_server else SpanKind.SERVER
        sampled, state = self._decision(caller, parent, trace_id, kind, scope)
        own = SpanContext(trace_id, call_span_id(model_call_id), False, _SAMPLED if sampled else _UNSAMPLED, state)
        return Ancestry(own, root_span_id, parent, links, kind, sampled)

    def _decision(
        self, caller: SpanContext | None, parent: SpanContext | None, trace_id: int, kind: SpanKind, scope: Scope
    ) -> tuple[bool, TraceState | None]:
        """Whether the mirror gets the span, and the trace state that goes on from here."""
        state = None if parent is None else parent.trace_state
        if caller is not None and not caller.trace_flags.sampled:
            return False, state
        sampler = self._sampler()
        if sampler in _YES_UNLESS_THE_CALLER_SAYS_NO:
            return True, state
        context = _NO_CONTEXT if caller is None else trace.set_span_in_context(NonRecordingSpan(caller), _NO_CONTEXT)
        told: dict[str, Any] = {semconv.HTTP_REQUEST_METHOD: scope["method"], semconv.URL_PATH: scope["path"]}
        try:
            decision = sampler.should_sample(context, trace_id, semconv.CHAT, kind, told).decision
            return decision is Decision.RECORD_AND_SAMPLE, state
        except Exception:  # noqa: BLE001  a sampler of somebody's: the call is not to feel it
            return True, state


def remote_caller(headers: Headers) -> SpanContext | None:
    """The span that the W3C trace context of a request names; None without one that can be used."""
    parents = []
    states = []
    for name, value in headers:
        if len(name) in (10, 11):
            lowered = name.lower()
            if lowered == _TRACEPARENT:
                parents.append(value)
            elif lowered == _TRACESTATE:
                states.append(value.decode("latin-1"))
    if len(parents) != 1:  # none, or two that contradict each other
        return None
    match = _WIRE.fullmatch(parents[0].strip()) if len(parents[0]) <= _LONGEST else None
    if match is None or match[1] == b"ff" or (match[1] == b"00" and match[5]):
        return None
    state = _trace_state(",".join(states)) if states and sum(map(len, states)) <= _LONGEST else None
    flags = TraceFlags(int(match[4], 16))
    caller = SpanContext(int(match[2], 16), int(match[3], 16), True, flags, state)
    return caller if caller.is_valid else None


def _trace_state(header: str) -> TraceState | None:
    """None where one member is not as it should be; `TraceState.from_header` would log it, the caller's own text."""
    members: dict[str, str] = {}
    for text in header.split(","):
        member = text.strip(" \t")
        if not member:
            continue
        match = _MEMBER.fullmatch(member)
        if match is None or match[1] in members:
            return None
        members[match[1]] = match[2]
    return TraceState(list(members.items())) if 0 < len(members) <= _MOST_MEMBERS else None
