"""The pipeline: from a finished call to a durable line, by way of one ended span, and from there to the mirror.

Source: the trace specification, "Two providers, one span".
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from typing import Any

from otel_gym.arrival import Arrival
from otel_gym.asgi import Scope
from otel_gym.calls import Call
from otel_gym.collecting import Collection
from otel_gym.conversations import Conversations
from otel_gym.errors import OtelGymError
from otel_gym.evidence_spans import EvidenceSpans, standard_sampler
from otel_gym.metrics import Instruments, instruments
from otel_gym.mirroring import UNTOLD_PART, Mirroring, has_destination
from otel_gym.settings import Settings
from otel_gym.teller import Teller
from otel_gym.telling import Telling
from otel_gym.termination import prepare
from otel_gym.threads import aside
from otel_gym_jsonl.giving_way import give_way
from otel_gym_jsonl.writer import Writer

logger = logging.getLogger(__name__)

MIRROR_DRAIN_SECONDS = 3.0
"""How long the end of a server, or of a process, waits for spans to be sent."""

CLOSE_SECONDS = 5.0
OPENING_SECONDS = 10.0
CROWD = 16
"""Rollouts whose records wait for their disk: with more, metrics and mirror are told later."""

LETTERS_AT_ONCE = 24
"""Clients that are let go in one iteration of the event loop: what else is due comes in between."""

LAST_SECONDS = 1.0
"""How long records have to become durable when the process is to end, and no lifespan says when."""

STUCK_SECONDS = 5.0
"""What takes so much longer than it may is not waited for."""


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
    """Makes finished calls durable, and hands their spans to the mirror. One for each set of settings and process.

    Args:
        settings: with capture enabled.

    Raises:
        SettingsError: the capture directory cannot be used.

    Attributes:
        measured: where the metrics of the call that arrived last go; None for nowhere.
        is_drained: the server runs the lifespan of an application, and so waits for the last records.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.is_drained = False
        self.measured: Instruments | None = None
        directory = settings.open_capture_dir()
        self.writer = Writer(
            directory,
            threads=settings.writer_threads,
            max_open_files=settings.max_open_files,
            timeout=settings.write_timeout_s,
        )
        self._spans = EvidenceSpans(Collection(directory))
        # Threads end with the last application that needs them; at the end of the process the writer drains first.
        weakref.finalize(self, Writer.retire, self.writer).atexit = False
        self._letters: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Letters] = weakref.WeakKeyDictionary()
        self._last_letters: _Letters | None = None  # nearly always there is one loop
        self._conversations = Conversations()
        self._mirroring: Mirroring | None = None
        writer = self.writer  # not `self`: a pipeline goes with its last application, without the garbage collector
        self._teller = Teller(lambda: writer.backlog > CROWD, settings.mirror_queue_bytes // UNTOLD_PART, self)
        self._start_mirroring()

    # ------------------------------------------------------------------ on the event loop

    def arrived(self, call: Call, scope: Scope) -> None:
        """A call begins: keep what its span will tell, and put our trace context into the scope's headers."""
        self.measured = instruments()
        mirroring = self._mirroring
        if mirroring is not None and mirroring.mirror.wanted():
            headers = scope.get("headers", ())
            ancestry = call.ancestry = mirroring.parentage.of(call.rollout_id, call.model_call_id, scope)
            scope["headers"] = ancestry.forwarded(headers)
            if ancestry.sampled or self.measured is not None:
                call.arrival = Arrival(scope, headers)
        elif self.measured is not None:
            call.arrival = Arrival(scope, scope.get("headers", ()))

    def submit(self, call: Call) -> Durable:
        """Hand a completed call over, on its event loop; it is settled there."""
        durable = Durable()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the call was closed after its loop had ended: nobody can wait for it
            self.writer.submit(call.rollout_id, lambda: self._line(call), lambda error: None)
            return durable
        letters = self._last_letters
        if letters is None or letters.loop() is not loop:
            letters = self._letters.get(loop)
            if letters is None:
                letters = self._letters[loop] = _Letters(loop)
            self._last_letters = letters

        def done(error: BaseException | None) -> None:  # logged and marked by the writer
            letters.post(durable)

        if call.arrival is None:
            self.writer.submit(call.rollout_id, lambda: self._line(call), done)
        else:
            telling = Telling(
                call,
                call.arrival,
                self._spans,
                self._teller,
                self._mirroring,
                self.settings.provider_name,
                self._conversations,
            )
            self.writer.submit(call.rollout_id, lambda: self._told_line(telling), done, telling.written)
        return durable

    async def look_for_destination(self) -> None:
        """The application has started: it may have set up a tracer provider. A fault costs traces, never the start."""
        if self._mirroring is None:
            await aside(self._look_for_destination, OPENING_SECONDS, "destinations of spans are looked for")

    async def drain(self, timeout: float) -> None:
        """Wait, off the loop, until all that was accepted is on disk or marked; spans get some seconds more."""
        await aside(lambda: self.writer.drain(timeout), timeout + STUCK_SECONDS, "the last records are written")
        await aside(self.flush, MIRROR_DRAIN_SECONDS + STUCK_SECONDS, "the last spans are sent")

    async def aclose(self) -> None:
        """`close`, off the loop."""
        seconds = CLOSE_SECONDS + MIRROR_DRAIN_SECONDS + STUCK_SECONDS
        await aside(self.close, seconds, "the last records are written")

    # ------------------------------------------------------------------ off the event loop

    def _look_for_destination(self) -> None:
        with contextlib.suppress(OtelGymError):  # logged
            self._start_mirroring()

    def _start_mirroring(self) -> None:
        if self._mirroring is None and has_destination(self.settings):
            try:
                self._mirroring = Mirroring(self.settings, standard_sampler())
            except OtelGymError as error:
                logger.error("otel-gym: no spans are sent: %s", error)
                raise

    def _line(self, call: Call) -> bytes:
        """On a writer thread: the span of the call, started and ended, and the line that came of it."""
        evidence = self._evidence(call)
        return self._spans.line(self._spans.end(call, evidence), evidence)

    def _told_line(self, telling: Telling) -> bytes:
        """The same, of a call that others are told of too."""
        evidence = self._evidence(telling.call)
        return self._spans.line(telling.end_span(evidence), evidence)

    def _evidence(self, call: Call) -> dict[str, Any]:
        evidence = call.evidence()
        if call.body_missing:
            logger.warning(
                "otel-gym: a body of a call of rollout %r is larger than body_limit_bytes (%d): its record lacks it",
                call.rollout_id,
                self.settings.body_limit_bytes,
            )
            self.writer.markers.put(call.rollout_id)
        give_way(call.response.size)
        return evidence

    def flush(self, timeout: float = MIRROR_DRAIN_SECONDS) -> None:
        """Tell of all whose records are durable, and have their spans sent. Blocks, for so many seconds at most."""
        deadline = time.monotonic() + timeout
        self._teller.flush(timeout)
        if self._mirroring is not None:
            self._mirroring.mirror.flush(max(0.0, deadline - time.monotonic()))

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Drain, then give threads, file handles and connections back. Blocks."""
        self.writer.close(timeout)
        deadline = time.monotonic() + MIRROR_DRAIN_SECONDS
        self._teller.flush(MIRROR_DRAIN_SECONDS)
        if self._mirroring is not None:
            self._mirroring.mirror.close(max(0.0, deadline - time.monotonic()))


class _Letters:
    """Results for one event loop, delivered together: one wake-up for all that came in meanwhile."""

    __slots__ = ("_on_the_way", "_pending", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self._pending: deque[Durable] = deque()
        self._on_the_way = False

    def post(self, durable: Durable) -> None:
        """From any thread."""
        self._pending.append(durable)
        loop = self.loop()
        if self._on_the_way or loop is None:
            return
        self._on_the_way = True
        try:
            loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._pending.clear()

    def _deliver(self) -> None:
        for _ in range(LETTERS_AT_ONCE):
            if not self._pending:
                break
            self._pending.popleft().settle()
        if self._pending:
            asyncio.get_running_loop().call_soon(self._deliver)
            return
        self._on_the_way = False
        if self._pending:  # posted just now, by who took us for still on the way
            self._deliver()


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
        settings.mirror,
        repr(settings.mirror_destinations and [one.model_dump() for one in settings.mirror_destinations]),
        settings.mirror_queue_bytes,
        settings.run_id,
        settings.foreign_trace,
        settings.provider_name,
        tuple(settings.redact_patterns),
    )
    prepare(_hurry, _drain_last, 2 * LAST_SECONDS)
    with _pipelines_lock:
        pipeline = _pipelines.get(key)
        if pipeline is None:
            pipeline = _pipelines[key] = Pipeline(settings)
        return pipeline


def _unlock_pipelines() -> None:
    """In a forked child: a thread that is not here may have held the lock."""
    global _pipelines_lock
    _pipelines_lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock_pipelines)


def _hurry() -> None:
    """SIGTERM has come: a server without lifespan may end the process soon, and a loss is to be marked by then."""
    for pipeline in list(_pipelines.values()):
        if not pipeline.is_drained:
            pipeline.writer.timeout = min(pipeline.writer.timeout, LAST_SECONDS)


def _drain_last() -> None:
    """SIGTERM ends the process: what is not durable soon is marked."""
    for pipeline in list(_pipelines.values()):
        pipeline.writer.drain(LAST_SECONDS)


def _close_all() -> None:
    """At the end of the process: the last records first, then their metrics and spans."""
    for pipeline in list(_pipelines.values()):
        with contextlib.suppress(Exception):
            pipeline.close()


atexit.register(_close_all)
