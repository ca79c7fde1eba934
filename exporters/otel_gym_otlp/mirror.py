"""The mirror: takes ended spans from any thread, and sends light copies of them wherever spans shall go."""

from __future__ import annotations

import atexit

# The SDK starts threads in forked children, which hang if this module came later (1.45); its resources bring it in.
import concurrent.futures.thread  # noqa: F401
import logging
import os
import re
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME
from opentelemetry.sdk.trace import ReadableSpan

from otel_gym_otlp import environment
from otel_gym_otlp.copies import LightSpan, bare_copy, describe
from otel_gym_otlp.delivery import Delivery
from otel_gym_otlp.destinations import Destination, standard
from otel_gym_otlp.lane import REPORT_SECONDS, Lane
from otel_gym_otlp.receipt import Receipt
from otel_gym_otlp.redaction import Redaction
from otel_gym_otlp.rendering import Rendering

logger = logging.getLogger(__name__)

QUEUE_BYTES = 64 * 1024 * 1024
QUEUE_SPANS = 65_536
FLUSH_AT_EXIT_SECONDS = 2.0


class Mirror:
    """Payload-free copies of ended spans, in any tracing backend, never on anybody's request path.

    Each destination has its own queue and thread: what one backend does to us, the others do not feel. The bound in
    bytes is for all of them together. Safe from any thread; a forked child starts over with empty queues.

    Args:
        destinations: `Destination`s, or mappings with their keys; None: the process's own TracerProvider when it has
            a span processor that exports, else the exporters of the standard variables.
        unasked: without `destinations` and without any variable, send to the standard endpoint all the same.
        queue_bytes: bound of what waits, in bytes of memory. When room runs out, content goes first, spans last.
        queue_spans: bound of what waits, in spans.
        redact_patterns: regular expressions; what they match in content is replaced.
        default_service_name: `service.name` of the resource where no variable gives one.
        instance_id: its `service.instance.id`, likewise; None: one for each process, where the SDK makes one.
        report_seconds: how often at most a destination's troubles are logged.
        flush_at_exit_s: seconds for what waits when the process ends; 0 when somebody else calls `close` in time.

    Raises:
        ValueError: a destination or a pattern cannot be used.
    """

    def __init__(
        self,
        destinations: Iterable[Destination | Mapping[str, Any]] | None = None,
        *,
        unasked: bool = False,
        queue_bytes: int = QUEUE_BYTES,
        queue_spans: int = QUEUE_SPANS,
        redact_patterns: Sequence[str | re.Pattern[str]] = (),
        default_service_name: str | None = None,
        instance_id: str | None = None,
        report_seconds: float = REPORT_SECONDS,
        flush_at_exit_s: float = FLUSH_AT_EXIT_SECONDS,
    ) -> None:
        with_content = environment.content_wanted()
        resource = {SERVICE_NAME: default_service_name, SERVICE_INSTANCE_ID: instance_id}
        by_default = {name: value for name, value in resource.items() if value is not None}
        self._redaction = Redaction(redact_patterns)
        self.flush_at_exit_s = flush_at_exit_s
        if destinations is None:
            ways = [(name, sender, "default", with_content) for name, sender in standard(by_default, unasked=unasked)]
        else:
            ways = [
                (
                    one.name,
                    one.sender(by_default),
                    one.profile,
                    with_content if one.content is None else one.content,
                )
                for one in map(Destination.of, destinations)
            ]
        if environment.sdk_disabled():
            ways = []
        self._lanes = [
            Lane(
                name,
                sender,
                Rendering(profile, self._redaction),
                content,
                max_bytes=queue_bytes // len(ways),
                max_spans=max(1, queue_spans // len(ways)),
                report_seconds=report_seconds,
            )
            for name, sender, profile, content in ways
        ]
        _mirrors.add(self)

    # ------------------------------------------------------------------ any thread

    def wanted(self) -> bool:
        """Whether a span would go anywhere now; cheap enough for each call."""
        return any(lane.wanted() for lane in self._lanes)

    def wants_content(self) -> bool:
        """Whether message content of a span would go anywhere now: when not, nobody need make it."""
        return any(lane.content and lane.wanted() for lane in self._lanes)

    def offer(self, span: ReadableSpan, receipt: Receipt | None = None, delivery: Delivery | None = None) -> None:
        """Take a copy of an ended span. Never blocks, never raises.

        Attributes of evidence stay behind; content goes along to those destinations that want it.

        Args:
            span: ended, sampled; its attributes as they shall be seen.
            receipt: what became of the record; None for a span that has none.
            delivery: is told when it has arrived, or is lost.
        """
        try:
            if self.wanted():
                self.offer_copy(bare_copy(span), receipt, span.attributes or {}, delivery)
        except Exception as exc:  # noqa: BLE001  whatever is wrong with a span, its call is not to feel it
            _cannot_be_mirrored(exc)

    def offer_copy(
        self,
        copy: LightSpan,
        receipt: Receipt | None,
        attributes: Mapping[str, Any],
        delivery: Delivery | None = None,
    ) -> None:
        """Take a bare copy that was made before, with the attributes that it shall have. Else as `offer`."""
        try:
            lanes = [lane for lane in self._lanes if lane.wanted()]
            if lanes:
                content = describe(copy, receipt, attributes)
                for lane in lanes:
                    lane.offer(copy, content, delivery)
        except Exception as exc:  # noqa: BLE001
            _cannot_be_mirrored(exc)

    @property
    def shed(self) -> Counter[str]:
        """What did not arrive, of all destinations: `content` (spans that lost it), `content_bytes`, `spans`."""
        total: Counter[str] = Counter()
        for lane in self._lanes:
            total.update(lane.queue.shed)
        return total

    @property
    def sent(self) -> int:
        """Spans that a backend has, or a tracer provider; one counts once for each destination."""
        return sum(lane.sent for lane in self._lanes)

    @property
    def queued_bytes(self) -> int:
        """What waits or is being sent, in bytes of memory."""
        return sum(lane.queue.bytes for lane in self._lanes)

    def prepare(self) -> None:
        """Load the exporters now, on this thread, not beside the first calls. Opens nothing, never raises.

        A fork while another thread loads a module leaves the child with half of it: so this is for start-up, before
        servers fork their workers.
        """
        for lane in self._lanes:
            if lane.wanted():
                lane.prepare()

    def flush(self, timeout: float) -> bool:
        """Send what waits, and log what was shed; returns whether nothing is left. Blocks, for so many seconds at most.

        Servers that a signal ends flush at the end of their lifespan, and run nothing after it.
        """
        deadline = time.monotonic() + timeout
        for lane in self._lanes:
            lane.hurry(True)
        done = [lane.wait_until_empty(max(0.0, deadline - time.monotonic())) for lane in self._lanes]
        for lane in self._lanes:
            lane.hurry(False)
            lane.tell()
        return all(done)

    def close(self, timeout: float = 5.0) -> bool:
        """Flush, count as lost what is left, give threads and connections back. A later `offer` starts anew."""
        deadline = time.monotonic() + timeout
        done = self.flush(timeout)
        for lane in self._lanes:
            lane.close(max(0.0, deadline - time.monotonic()))
        self._redaction.close()
        return done

    def _abandon(self) -> None:
        for lane in self._lanes:
            lane.abandon()


def _cannot_be_mirrored(error: Exception) -> None:
    logger.error("otel-gym: a span cannot be mirrored: %s", type(error).__name__)


_mirrors: weakref.WeakSet[Mirror] = weakref.WeakSet()


def _abandon_all() -> None:
    for mirror in list(_mirrors):
        mirror._abandon()


def _flush_all() -> None:
    for mirror in list(_mirrors):
        if mirror.flush_at_exit_s > 0:
            mirror.flush(mirror.flush_at_exit_s)
        mirror._redaction.close()


os.register_at_fork(after_in_child=_abandon_all)
atexit.register(_flush_all)
