"""The evidence pipeline: from a finished call to a durable line, by way of one ended span.

The only place that makes a `TracerProvider`. It is our own: nobody's sampler, limit, environment variable or global
provider reaches the evidence. Source: the traces contract, "Two providers, one span".
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind

from otel_gym._version import __version__
from otel_gym.calls import Call
from otel_gym.settings import Settings
from otel_gym_jsonl import attributes as names
from otel_gym_jsonl import exporter
from otel_gym_jsonl.writer import Writer


class Durable:
    """Whether a record is on its disk: settled once, on its event loop, whichever way it went.

    Anybody may wait, and be cancelled while waiting, without harm to the others; a shielded future costs more.
    """

    __slots__ = ("_waiters", "settled")

    def __init__(self) -> None:
        self.settled = False
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Return when the record is durable, or known to be lost and marked."""
        if not self.settled:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def settle(self) -> None:
        """On the event loop: let the waiting ones go."""
        self.settled = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Pipeline:
    """Makes finished calls durable. One for each set of settings and process; see `pipeline_for`.

    Args:
        settings: with capture enabled.

    Raises:
        SettingsError: the capture directory cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.writer = Writer(
            settings.open_capture_dir(),
            threads=settings.writer_threads,
            max_open_files=settings.max_open_files,
            timeout=settings.write_timeout_s,
        )
        self._lines = _LineOfEndedSpan()
        self._tracer = _evidence_provider(self._lines).get_tracer("otel_gym", __version__)
        self._bytes_survive = _bytes_survive(self._lines, self._tracer)
        self._letters: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Letters] = weakref.WeakKeyDictionary()

    def submit(self, call: Call) -> Durable:
        """Hand a completed call over, on the event loop; it is settled on that loop."""
        loop = asyncio.get_running_loop()
        letters = self._letters.get(loop)
        if letters is None:
            letters = self._letters[loop] = _Letters(loop)
        durable = Durable()

        def done(error: BaseException | None) -> None:  # logged and marked by the writer
            letters.post(durable)

        self.writer.submit(call.rollout_id, lambda: self._line(call), done)
        return durable

    def _line(self, call: Call) -> bytes:
        """On a writer thread: the span of the call, started and ended, and the line that came of it."""
        evidence = call.evidence()
        if call.body_missing:
            self.writer.markers.put(call.rollout_id)
        return self._lines.take(self._tracer, evidence if self._bytes_survive else _as_str(evidence), call)

    async def drain(self, timeout: float) -> None:
        """Wait, off the loop, until all that was accepted is on disk or marked."""
        await asyncio.get_running_loop().run_in_executor(None, self.writer.drain, timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Drain, then give threads and file handles back. Blocks."""
        self.writer.close(timeout)


class _LineOfEndedSpan(SpanProcessor):
    """Turns each ended evidence span into its line, on the thread that ended it.

    The SDK's stock processors swallow an exporter's failure; here the one who ended the span gets the line or the
    error.
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def on_end(self, span: ReadableSpan) -> None:
        self._of_thread.ended = span

    def take(self, tracer: Any, evidence: dict[str, Any], call: Call) -> bytes:
        span = tracer.start_span(
            call.dialect.name,
            context=Context(),  # no parent: the evidence owes nothing to what else is traced here
            kind=SpanKind.SERVER,
            attributes=evidence,
            start_time=call.start_time_ns,
        )
        span.end(call.end_time_ns)
        ended: ReadableSpan = self._of_thread.ended
        del self._of_thread.ended
        attributes = ended.attributes or {}
        return exporter.line(attributes, canonical=(evidence.get(names.REQUEST), evidence.get(names.RESPONSE)))

    def attributes_of(self, tracer: Any, attributes: dict[str, Any]) -> dict[str, Any]:
        """What the SDK makes of these attributes."""
        tracer.start_span("probe", context=Context(), attributes=attributes).end()
        return dict(self._of_thread.ended.attributes)


def _evidence_provider(processor: SpanProcessor) -> TracerProvider:
    unset = SpanLimits.UNSET
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource({}),
        shutdown_on_exit=False,
        span_limits=SpanLimits(
            max_attributes=unset,
            max_events=unset,
            max_links=unset,
            max_span_attributes=unset,
            max_event_attributes=unset,
            max_link_attributes=unset,
            max_attribute_length=unset,
            max_span_attribute_length=unset,
        ),
    )
    provider._disabled = False  # OTEL_SDK_DISABLED switches telemetry off, and this is evidence
    provider.add_span_processor(processor)
    return provider


def _bytes_survive(lines: _LineOfEndedSpan, tracer: Any) -> bool:
    """Whether this SDK keeps attribute values that are bytes; older ones decode or drop them."""
    return lines.attributes_of(tracer, {"probe": b"{}"}).get("probe") == b"{}"


def _as_str(evidence: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value, "utf-8") if isinstance(value, bytes) else value for key, value in evidence.items()}


class _Letters:
    """Results for one event loop, delivered together: one wake-up for all that came in meanwhile."""

    __slots__ = ("_loop", "_on_the_way", "_pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._pending: deque[Durable] = deque()
        self._on_the_way = False

    def post(self, durable: Durable) -> None:
        """From any thread."""
        self._pending.append(durable)
        loop = self._loop()
        if self._on_the_way or loop is None:
            return
        self._on_the_way = True
        try:
            loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._pending.clear()

    def _deliver(self) -> None:
        self._on_the_way = False  # before the first look, so that whoever posts later wakes the loop again
        while self._pending:
            self._pending.popleft().settle()


_pipelines: weakref.WeakValueDictionary[tuple[Any, ...], Pipeline] = weakref.WeakValueDictionary()
_pipelines_lock = threading.Lock()


def pipeline_for(settings: Settings) -> Pipeline:
    """The pipeline of these settings: several applications of one process share writer, handles and locks.

    Raises:
        SettingsError: the capture directory cannot be used.
    """
    key = (
        settings.model_call_capture_dir,
        settings.writer_threads,
        settings.max_open_files,
        settings.write_timeout_s,
    )
    with _pipelines_lock:
        pipeline = _pipelines.get(key)
        if pipeline is None:
            pipeline = _pipelines[key] = Pipeline(settings)
        return pipeline
