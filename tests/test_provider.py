"""The evidence pipeline: nobody's environment, sampler or provider reaches it; any loop and any process may use it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import weakref
from itertools import pairwise
from pathlib import Path

import pytest

from otel_gym import CaptureMiddleware, Settings, semconv
from otel_gym.provider import LETTERS_AT_ONCE, Durable, _Letters, pipeline_for
from otel_gym.testing import Exchange, ScriptedModel, answer, stream
from otel_gym_jsonl import CaptureStore

ROOT = Path(__file__).parents[1]
PATH = "/ng-rollout/0-0/v1/chat/completions"
OWN = re.compile(rb'"(model_call_id|started_at|completed_at|latency_ms|latency_ttft_ms)":("[0-9a-f]{32}"|[0-9.]+)')

HOSTILE = {
    "OTEL_SDK_DISABLED": "true",
    "OTEL_TRACES_SAMPLER": "always_off",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "10",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "1",
    "OTEL_ATTRIBUTE_COUNT_LIMIT": "1",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3",
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_PROPAGATORS": "none",
    "OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs",
    "OTEL_PYTHON_ID_GENERATOR": "none",
}


def lines(directory: Path, environment: dict[str, str], *arguments: str) -> dict[str, bytes]:
    """The capture files of a process in this environment, but for ids and times."""
    subprocess.run(
        [sys.executable, "-m", "tests.hostile_environment", str(directory), *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        check=True,
        timeout=60,
    )
    return {path.name: OWN.sub(rb'"\1":0', path.read_bytes()) for path in directory.iterdir()}


def test_no_environment_and_no_provider_changes_a_byte_of_a_record(tmp_path: Path) -> None:
    plain = lines(tmp_path / "plain", {})
    assert ["chat.capture.jsonl", "messages.capture.jsonl", "responses.capture.jsonl"] == sorted(plain)
    assert [8, 8, 8] == [content.count(b"\n") for content in plain.values()]
    assert plain == lines(tmp_path / "hostile", HOSTILE, "global provider")
    enabled = {name: value for name, value in HOSTILE.items() if name != "OTEL_SDK_DISABLED"}
    assert plain == lines(tmp_path / "enabled", enabled, "global provider")


def test_no_file_no_lock_and_no_json_of_a_body_is_touched_on_the_event_loop(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.event_loop_watch", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "" == done.stdout.strip()
    assert 9 == len(list(tmp_path.iterdir()))


def settings_of(directory: Path, **more: int) -> Settings:
    return Settings.model_validate({"observability_enabled": True, "model_call_capture_dir": directory, **more})


def test_applications_with_the_same_settings_share_one_pipeline(tmp_path: Path) -> None:
    first = pipeline_for(settings_of(tmp_path / "a"))
    assert first is pipeline_for(settings_of(tmp_path / "a"))
    assert first is not pipeline_for(settings_of(tmp_path / "b"))
    assert first is not pipeline_for(settings_of(tmp_path / "a", writer_threads=1))


def test_several_loops_may_call_one_application_at_once(tmp_path: Path) -> None:
    app = CaptureMiddleware(ScriptedModel(stream("chat", "hi")), settings_of(tmp_path))
    bodies: list[bytes] = []

    async def call() -> None:
        async with Exchange(app, PATH) as exchange:
            await exchange.rest()
        bodies.append(exchange.body)

    async def calls() -> None:
        await asyncio.gather(*(call() for _ in range(50)))

    threads = [threading.Thread(target=asyncio.run, args=(calls(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"".join(stream("chat", "hi"))] * 200 == bodies
    records = CaptureStore(tmp_path).read("0-0")
    assert 200 == len({record["model_call_id"] for record in records})


async def test_a_record_is_on_disk_when_its_client_has_the_end(tmp_path: Path) -> None:
    app = CaptureMiddleware(ScriptedModel.of(answer("chat", "hi")), settings_of(tmp_path))
    store = CaptureStore(tmp_path)
    for number in range(20):
        async with Exchange(app, PATH) as call:
            await call.message()
            await call.message()
            assert number + 1 == len(store.read("0-0"))


@pytest.mark.parametrize("limit", [1, 100])
async def test_a_body_beyond_its_limit_is_left_out_and_the_rollout_marked(
    tmp_path: Path, limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    pieces = stream("chat", "hello")
    app = CaptureMiddleware(ScriptedModel(pieces), settings_of(tmp_path, body_limit_bytes=limit))
    async with Exchange(app, PATH, b'{"m":"%s"}' % (b"x" * 200)) as call:
        await call.rest()
    assert b"".join(pieces) == call.body
    store = CaptureStore(tmp_path)
    [record] = store.read("0-0")
    assert (None, None, 200) == (record["request"], record["response"], record["status_code"])
    assert not {"request_raw", "response_raw"} & record.keys()
    assert store.is_incomplete("0-0")
    [said] = [record.getMessage() for record in caplog.records if record.name.startswith("otel_gym")]
    assert all(word in said for word in ("'0-0'", "body_limit_bytes", str(limit)))


async def test_few_clients_are_let_go_in_one_iteration_of_the_loop() -> None:
    letters = _Letters(asyncio.get_running_loop())
    waiting = [Durable() for _ in range(3 * LETTERS_AT_ONCE + 1)]
    for durable in waiting:
        letters.post(durable)
    settled = [0]
    while settled[-1] < len(waiting):
        assert len(settled) < 100
        await asyncio.sleep(0)
        settled.append(sum(durable.settled for durable in waiting))
    assert max(later - sooner for sooner, later in pairwise(settled)) == LETTERS_AT_ONCE
    late = Durable()
    letters.post(late)
    await asyncio.wait_for(late.wait(), 5)


def test_a_pipeline_goes_with_its_last_application_and_needs_no_garbage_collector(tmp_path: Path) -> None:
    gone = weakref.ref(pipeline_for(Settings(observability_enabled=True, model_call_capture_dir=tmp_path)))
    assert gone() is None


_LAST_METRICS = """
import asyncio, sys
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from otel_gym import CaptureMiddleware, Settings, teller
from otel_gym.provider import pipeline_for
from otel_gym.testing import Exchange, ScriptedModel, answer
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(ConsoleMetricExporter())]))
teller.LINGER_SECONDS = 60
async def main():
    settings = Settings(observability_enabled=True, model_call_capture_dir=sys.argv[1], mirror=False)
    app = CaptureMiddleware(ScriptedModel.of(answer("chat", "hi")), settings=settings)
    async with Exchange(app, "/ng-rollout/0-0/v1/chat/completions", b"{}") as call:
        await call.rest()
    assert pipeline_for(settings).writer.drain(30)
asyncio.run(main())
"""


def test_metrics_of_the_last_calls_are_told_at_the_end_of_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _LAST_METRICS, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert semconv.RECORDS_WRITTEN in said
