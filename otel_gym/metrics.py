"""The metrics of model calls and of their capture, through OpenTelemetry's metrics API.

Silent, and nearly free, as long as nobody has set a `MeterProvider`. A rollout is never an attribute: each would be a
new time series. Source: the trace specification, "Metrics".
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from opentelemetry import metrics

from otel_gym import semconv
from otel_gym._version import __version__
from otel_gym.semconv import AttributeValue

Attributes = Mapping[str, AttributeValue]

_OF_A_CALL = (
    semconv.OPERATION_NAME,
    semconv.PROVIDER_NAME,
    semconv.REQUEST_MODEL,
    semconv.RESPONSE_MODEL,
    semconv.ERROR_TYPE,
)


class Sheds(Protocol):
    """A mirror: says what it has shed."""

    @property
    def shed(self) -> Counter[str]:
        """`content` (spans that lost it), `spans` (lost whole)."""
        ...


_mirrors: weakref.WeakSet[Sheds] = weakref.WeakSet()


def watch_mirror(mirror: Sheds) -> None:
    """Report from now on what this mirror sheds, as long as it exists."""
    _mirrors.add(mirror)


class Instruments:
    """All instruments, made of one meter provider. Recording is safe from any thread."""

    def __init__(self, provider: metrics.MeterProvider) -> None:
        self.provider = provider
        meter = provider.get_meter("otel_gym", __version__)
        self._request_duration = _histogram(meter, semconv.REQUEST_DURATION)
        self._time_to_first_token = _histogram(meter, semconv.TIME_TO_FIRST_TOKEN)
        self._time_per_output_token = _histogram(meter, semconv.TIME_PER_OUTPUT_TOKEN)
        self._capture_duration = _histogram(meter, semconv.CAPTURE_DURATION)
        self._calls = _counter(meter, semconv.MODEL_CALLS)
        self._unattributed = _counter(meter, semconv.UNATTRIBUTED_CALLS)
        self._written = _counter(meter, semconv.RECORDS_WRITTEN)
        self._lost = _counter(meter, semconv.RECORDS_LOST)
        shed = semconv.METRICS[semconv.MIRROR_SHED]
        meter.create_observable_counter(semconv.MIRROR_SHED, [_observe_shed], shed.unit, shed.description)

    def call(self, facts: Attributes, seconds: float, first_token_seconds: float | None, server: Attributes) -> None:
        """A call that has ended.

        Args:
            facts: attributes of its span; what a metric has no use for is passed over.
            seconds: from its start to the end of its answer.
            first_token_seconds: to the first piece of a streamed answer; None for any other.
            server: address and port on which the server listens, where they are known.
        """
        attributes = {name: facts[name] for name in _OF_A_CALL if name in facts}
        self._calls.add(1, attributes)
        attributes = {**attributes, **server}  # a new one: the SDK may keep what it was given
        self._request_duration.record(seconds, attributes)
        if first_token_seconds is None or semconv.ERROR_TYPE in attributes:
            return
        self._time_to_first_token.record(first_token_seconds, attributes)
        tokens = facts.get(semconv.USAGE_OUTPUT_TOKENS)
        if isinstance(tokens, int) and tokens > 1:
            self._time_per_output_token.record(max(0.0, seconds - first_token_seconds) / (tokens - 1), attributes)

    def added(self, seconds: float) -> None:
        """How long capture kept an answer's end from its client."""
        self._capture_duration.record(seconds)

    def unattributed(self, peer: str) -> None:
        """A model call without a rollout."""
        self._unattributed.add(1, {semconv.NETWORK_PEER_ADDRESS: peer})

    def written(self, size: int) -> None:
        """A record of so many bytes is durable."""
        self._written.add(size)

    def lost(self) -> None:
        """A record is not."""
        self._lost.add(1)


_current: Instruments | None = None
_lock = threading.Lock()


def instruments() -> Instruments | None:
    """The instruments of the process's meter provider; None as long as nobody has set one. Cheap: ask each time."""
    global _current
    provider = metrics.get_meter_provider()
    current = _current
    if current is not None and current.provider is provider:
        return current
    if type(provider).__module__.startswith("opentelemetry.metrics"):  # the API's own, which measure nothing
        return None
    with _lock:
        if _current is None or _current.provider is not provider:
            _current = Instruments(provider)
        return _current


def _histogram(meter: metrics.Meter, name: str) -> metrics.Histogram:
    metric = semconv.METRICS[name]
    try:
        return meter.create_histogram(
            name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.boundaries
        )
    except TypeError:  # older APIs take no advice; there the user's views say it
        return meter.create_histogram(name, metric.unit, metric.description)


def _counter(meter: metrics.Meter, name: str) -> metrics.Counter:
    metric = semconv.METRICS[name]
    return meter.create_counter(name, metric.unit, metric.description)


def _observe_shed(_options: Any) -> Iterable[metrics.Observation]:
    total: Counter[str] = Counter()
    for mirror in list(_mirrors):
        total.update(mirror.shed)
    for what, key in (("content", "content"), ("span", "spans")):
        yield metrics.Observation(total[key], {semconv.SHED_WHAT: what})
