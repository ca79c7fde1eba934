"""The metrics of model calls and of their capture, as a reader of the SDK gets them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics as api
from opentelemetry.metrics import _internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_gym import metrics, semconv
from otel_gym.metrics import Instruments, instruments
from otel_gym.testing import Exchange, ScriptedModel, answer, stream
from tests.mirrored import Mirrored

MODEL: dict[str, semconv.AttributeValue] = {
    semconv.OPERATION_NAME: "chat",
    semconv.PROVIDER_NAME: "openai",
    semconv.REQUEST_MODEL: "m",
}
ANSWERED: dict[str, semconv.AttributeValue] = {**MODEL, semconv.RESPONSE_MODEL: "m"}
SERVER: dict[str, semconv.AttributeValue] = {semconv.SERVER_ADDRESS: "127.0.0.1", semconv.SERVER_PORT: 8000}

BOUNDARIES_CAN_BE_ADVISED = (
    "explicit_bucket_boundaries_advisory" in inspect.signature(api.Meter.create_histogram).parameters
)


class Readings:
    """What a reader has got."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def points(self) -> dict[str, list[Any]]:
        """The data points of each metric."""
        data = self._reader.get_metrics_data()
        found: dict[str, list[Any]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = list(metric.data.data_points)
        return found

    def values(self, name: str) -> dict[frozenset[tuple[str, Any]], Any]:
        """Of a counter: attributes → value."""
        return {frozenset((point.attributes or {}).items()): point.value for point in self.points().get(name, ())}


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Readings]:
    """The process has a meter provider."""
    found = Readings()
    monkeypatch.setattr(_internal, "_METER_PROVIDER", found.provider)
    yield found
    found.provider.shutdown()


@pytest.fixture(params=[True, False], ids=["mirror on", "mirror off"])
def capture(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Mirrored]:
    mirrored = Mirrored(tmp_path, mirror=request.param, mirror_destinations=[{"endpoint": "http://127.0.0.1:9"}])
    yield mirrored
    mirrored.close()


async def test_a_streamed_call_is_measured_with_what_it_was_of(readings: Readings, capture: Mirrored) -> None:
    await capture.call(ScriptedModel([*stream("chat", "a", "b")]))
    points = await written(readings, 1)
    (duration,) = points[semconv.REQUEST_DURATION]
    assert {**ANSWERED, **SERVER} == duration.attributes
    assert pytest.approx(capture.record()["latency_ms"] / 1000) == duration.sum
    if BOUNDARIES_CAN_BE_ADVISED:
        assert semconv.METRICS[semconv.REQUEST_DURATION].boundaries == tuple(duration.explicit_bounds)
    (first,) = points[semconv.TIME_TO_FIRST_TOKEN]
    assert pytest.approx(capture.record()["latency_ttft_ms"] / 1000) == first.sum
    (token,) = points[semconv.TIME_PER_OUTPUT_TOKEN]
    assert pytest.approx((duration.sum - first.sum) / 4) == token.sum
    assert [1] == [point.count for point in points[semconv.CAPTURE_DURATION]]
    assert [len(capture.store.path_for("0-0").read_bytes())] == list(readings.values(semconv.RECORDS_WRITTEN).values())


ENDINGS: dict[str, Any] = {
    "an object": ScriptedModel.of(answer("chat", "hi")),
    "a stream": ScriptedModel(stream("chat", "a")),
    "a stream that goes on": ScriptedModel([*stream("chat", "a"), 0.2, b": bye\n\n"]),
    "an announced length": ScriptedModel([b"{}", 0.2], headers=[(b"content-length", b"2")]),
    "an error before the answer": ScriptedModel([LookupError()], headers=()),
    "an error in mid-stream": ScriptedModel([*stream("chat", "a")[:2], LookupError()]),
    "an error behind the end": ScriptedModel([*stream("chat", "a"), LookupError()]),
    "a cancellation": ScriptedModel([asyncio.CancelledError()]),
    "no end": ScriptedModel([b"data: {}\n\n"], end=False),
}


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    pass


async def raising(scope: Any, receive: Any, send: Any) -> None:
    raise LookupError


@pytest.mark.parametrize("model", [*ENDINGS.values(), nothing, raising], ids=[*ENDINGS, "no answer", "an error alone"])
async def test_what_capture_adds_is_measured_once_for_each_call_however_it_ends(
    readings: Readings, capture: Mirrored, model: Any
) -> None:
    for _ in range(2):
        async with Exchange(capture.app(model), "/ng-rollout/0-0/v1/chat/completions") as call:
            await asyncio.wait({call.task})
            with contextlib.suppress(LookupError, asyncio.CancelledError):
                await call.task
    await written(readings, 2)
    assert [2] == [point.count for point in readings.points()[semconv.CAPTURE_DURATION]]


async def test_what_capture_adds_is_measured_once_though_the_release_is_cancelled_and_begun_again(
    readings: Readings, capture: Mirrored
) -> None:
    sent: list[bytes] = []
    is_slow = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        async def send_slowly(message: Any) -> None:
            sent.append(message.get("body", b""))
            if b"[DONE]" in sent[-1]:
                is_slow.set()
                await asyncio.sleep(60)
            await send(message)

        await capture.app(ScriptedModel(stream("chat", "a")))(scope, receive, send_slowly)

    async with Exchange(slow, "/ng-rollout/0-0/v1/chat/completions") as call:
        await is_slow.wait()
        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.task
    assert b"" == sent[-1]
    await written(readings, 1)
    assert [1] == [point.count for point in readings.points()[semconv.CAPTURE_DURATION]]


async def test_calls_are_counted_by_outcome(readings: Readings, capture: Mirrored) -> None:
    await capture.call()
    for _ in range(2):
        await capture.call(ScriptedModel.of({}, status=429))
    await written(readings, 3)
    assert {
        frozenset(ANSWERED.items()): 1,
        frozenset({**MODEL, semconv.ERROR_TYPE: "rate_limit"}.items()): 2,
    } == readings.values(semconv.MODEL_CALLS)
    assert semconv.TIME_TO_FIRST_TOKEN not in readings.points()


async def test_a_stream_that_failed_tells_nothing_of_its_tokens(readings: Readings, capture: Mirrored) -> None:
    await capture.call(ScriptedModel([b"data: {}\n\n"]))
    points = await written(readings, 1)
    assert not {semconv.TIME_TO_FIRST_TOKEN, semconv.TIME_PER_OUTPUT_TOKEN} & set(points)


async def test_unattributed_calls_are_counted_by_peer(readings: Readings, capture: Mirrored) -> None:
    app = capture.app(ScriptedModel.of(answer("chat", "hi")))
    for path in ("/v1/chat/completions", "/ng-rollout/.odd/v1/messages", "/other"):
        async with Exchange(app, path) as call:
            await call.rest()
    assert {frozenset({(semconv.NETWORK_PEER_ADDRESS, "127.0.0.1")}): 2} == readings.values(semconv.UNATTRIBUTED_CALLS)


async def test_a_lost_record_is_counted(readings: Readings, tmp_path: Path) -> None:
    capture = Mirrored(tmp_path, mirror=False, write_timeout_s=0.2)
    lost: dict[Any, Any] = {}
    with (tmp_path / "0-0.capture.jsonl").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await capture.call()
        for _ in range(200):
            if lost := readings.values(semconv.RECORDS_LOST):
                break
            await asyncio.sleep(0.01)
    assert {frozenset(): 1} == lost


def test_what_mirrors_shed_is_read_off_them(readings: Readings, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shedding:
        def __init__(self) -> None:
            self.shed = Counter({"content": 2, "content_bytes": 1000, "spans": 1})

    mirrors = [Shedding(), Shedding()]
    monkeypatch.setattr(metrics, "_mirrors", type(metrics._mirrors)(mirrors))
    assert instruments() is not None
    assert {
        frozenset({(semconv.SHED_WHAT, "content")}): 4,
        frozenset({(semconv.SHED_WHAT, "span")}): 2,
    } == readings.values(semconv.MIRROR_SHED)


async def test_every_metric_of_the_table_is_emitted_with_the_tables_attributes_and_never_a_rollout(
    readings: Readings, tmp_path: Path
) -> None:
    capture = Mirrored(tmp_path, mirror_destinations=[{"endpoint": "http://127.0.0.1:9"}])
    app = capture.app(ScriptedModel.of(answer("chat", "hi")))
    async with Exchange(app, "/v1/chat/completions") as call:
        await call.rest()
    await capture.call(ScriptedModel(stream("chat", "a", "b")))
    await capture.call(ScriptedModel.of({}, status=500))
    found = instruments()
    assert found is not None
    found.lost()
    points = await written(readings, 2)
    assert (set(), set()) == semconv.differences(points, semconv.METRICS)
    names = {name for metric in points.values() for point in metric for name in point.attributes or ()}
    assert (set(), set()) == semconv.differences(names, semconv.METRIC_ATTRIBUTES)
    capture.close()


def test_without_a_provider_nothing_is_made_and_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_internal, "_METER_PROVIDER", None)
    assert instruments() is None
    monkeypatch.setattr(_internal, "_METER_PROVIDER", api.NoOpMeterProvider())
    assert instruments() is None


def test_instruments_are_made_once_for_a_provider_and_anew_for_another(readings: Readings) -> None:
    first = instruments()
    assert first is instruments()
    other = Readings()
    _internal._METER_PROVIDER = other.provider
    assert first is not instruments()


def test_an_api_that_takes_no_boundaries_will_do() -> None:
    """As older ones do."""

    class OldMeter(api.NoOpMeter):
        def create_histogram(self, name: str, unit: str = "", description: str = "") -> Any:  # type: ignore[override]
            return super().create_histogram(name, unit, description)

    class OldProvider(api.NoOpMeterProvider):
        def get_meter(self, name: str, *_: Any, **__: Any) -> OldMeter:
            return OldMeter(name)

    Instruments(OldProvider()).call(ANSWERED, 1.0, 0.5, SERVER)


async def written(readings: Readings, calls: int) -> dict[str, list[Any]]:
    """All points, as soon as so many calls were told of: their clients were let go before."""
    for _ in range(1000):
        if calls <= sum(point.count for point in readings.points().get(semconv.REQUEST_DURATION, ())):
            break
        await asyncio.sleep(0.01)
    return readings.points()
