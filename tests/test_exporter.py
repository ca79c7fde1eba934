"""The span exporter: anybody's span with the evidence attributes gives the same line; no span ends a pipeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExportResult

from otel_gym import CaptureMiddleware, Settings
from otel_gym.testing import Exchange, ScriptedModel, answer, stream
from otel_gym_jsonl import CaptureStore, JsonlSpanExporter

PREFIX = "otel_gym.evidence."
SUCCESS, FAILURE = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
REQUIRED: dict[str, Any] = {
    "rollout_id": "0-0",
    "model_call_id": "0" * 32,
    "dialect": "chat",
    "started_at": 1700000000.25,
    "completed_at": 1700000001.5,
    "latency_ms": 1250.0,
}
EMPTY = {
    "model_call_id": "0" * 32,
    "dialect": "chat",
    "model_ref": None,
    "started_at": 1700000000.25,
    "completed_at": 1700000001.5,
    "latency_ms": 1250.0,
    "latency_ttft_ms": None,
    "status_code": None,
    "error_category": None,
    "request": None,
    "response": None,
}


def span(**evidence: Any) -> ReadableSpan:
    """A span with the required attributes and these."""
    attributes = {PREFIX + key: value for key, value in {**REQUIRED, **evidence}.items() if value is not None}
    return ReadableSpan("call", attributes=attributes)


def exported(directory: Path, *spans: ReadableSpan) -> tuple[SpanExportResult, list[dict[str, Any]]]:
    """What the exporter says, and the records of rollout 0-0."""
    exporter = JsonlSpanExporter(directory)
    return exporter.export(spans), exporter.store.read("0-0")


def evidence_of(record: dict[str, Any], rollout_id: str, *, as_bytes: bool) -> dict[str, Any]:
    """The attributes, by the public contract, that a record stands for."""
    out: dict[str, Any] = {PREFIX + "rollout_id": rollout_id}
    nulls = []
    for key, value in record.items():
        if key == "model_ref":
            if value is not None:
                out[PREFIX + "model_ref_name"] = value["name"]
        elif key in ("request", "response"):
            if value is not None:
                text = json.dumps(value, indent=2)  # any JSON will do
                out[PREFIX + key] = text.encode() if as_bytes else text
        elif value is not None:
            out[PREFIX + key] = value.encode() if as_bytes and key.endswith("_raw") else value
        elif key in ("upstream_attempted", "response_source", "upstream_status_code", "local_response_reason"):
            nulls.append(key)
    if nulls:
        out[PREFIX + "null_keys"] = nulls
    return out


OUTCOME = {
    "upstream_attempted": False,
    "response_source": None,
    "upstream_status_code": None,
    "local_response_reason": "context_length_exceeded",
}


async def captured(directory: Path) -> list[bytes]:
    """Lines that the middleware wrote: plain, streamed, broken, with an outcome, with all that text can hold."""
    settings = Settings(observability_enabled=True, model_call_capture_dir=directory, model_server_name="policy")
    odd = 'é "quoted" \\ \u2028 \U0001f680 \x00 </script>'

    def with_outcome(model: ScriptedModel) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["state"]["nemo_gym_model_execution"] = OUTCOME
            await model(scope, receive, send)

        return app

    for app in (
        ScriptedModel.of(answer("chat", odd)),
        ScriptedModel(stream("chat", odd, "lo")),
        ScriptedModel(stream("chat", odd)[:-2]),
        ScriptedModel([b"\xff\xfe no JSON"]),
        with_outcome(ScriptedModel.of({"numbers": [1, 2.5, 1e300, -0.0, 12345678901234567]}, status=400)),
    ):
        for body in (json.dumps({"model": "m", "odd": odd}).encode(), b"\xffno JSON", b""):
            headers = ((b"x-session-id", b"s1"),)
            call = Exchange(
                CaptureMiddleware(app, settings), "/ng-rollout/0-0/v1/chat/completions", body, headers=headers
            )
            async with call:
                await call.rest()
    return CaptureStore(directory).path_for("0-0").read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("as_bytes", [False, True], ids=["str", "bytes"])
async def test_a_span_made_by_anyone_else_gives_the_same_line(tmp_path: Path, as_bytes: bool) -> None:
    lines = await captured(tmp_path / "ours")
    assert 15 == len(lines)
    spans = [
        ReadableSpan("theirs", attributes=evidence_of(json.loads(line), "0-0", as_bytes=as_bytes)) for line in lines
    ]
    exporter = JsonlSpanExporter(tmp_path / "theirs")
    assert SUCCESS is exporter.export(spans)
    assert lines == exporter.store.path_for("0-0").read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("processor", [SimpleSpanProcessor, BatchSpanProcessor])
def test_it_stands_in_anyones_pipeline(
    tmp_path: Path, processor: type[SimpleSpanProcessor] | type[BatchSpanProcessor]
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor(JsonlSpanExporter(tmp_path)))
    tracer = provider.get_tracer("theirs")
    with tracer.start_as_current_span("none of its business"):
        attributes = {PREFIX + key: value for key, value in REQUIRED.items()}
        tracer.start_span("call", attributes={**attributes, PREFIX + "request": '{ "model": "m" }'}).end()
    provider.shutdown()
    assert [{**EMPTY, "request": {"model": "m"}}] == CaptureStore(tmp_path).read("0-0")


def test_what_is_absent_is_null_or_left_out(tmp_path: Path) -> None:
    result, [record] = exported(tmp_path, span())
    assert (SUCCESS, EMPTY, list(EMPTY)) == (result, record, list(record))


@pytest.mark.parametrize("missing", REQUIRED)
def test_a_span_without_a_required_attribute_is_passed_over(tmp_path: Path, missing: str) -> None:
    result, records = exported(tmp_path, span(**{missing: None}))
    assert (SUCCESS, [], []) == (result, records, list(tmp_path.iterdir()))


def test_spans_without_attributes_are_passed_over(tmp_path: Path) -> None:
    result, records = exported(tmp_path, ReadableSpan("a"), ReadableSpan("b", attributes={"http.method": "POST"}))
    assert (SUCCESS, []) == (result, records)


@pytest.mark.parametrize(
    ("body", "expected", "raw"),
    [
        ('{"a": 1}', {"a": 1}, None),
        (b' {"a" : 1}\n', {"a": 1}, None),
        ('{"a": "\\ud83d\\ude80"}', {"a": "\U0001f680"}, None),
        ('{"a": NaN}', {"a": None}, None),
        (b"\xef\xbb\xbf{}", {}, None),
        ('{"a": 1, "a": 2}', {"a": 2}, None),
        ("[1]", None, "[1]"),
        ("7", None, "7"),
        ("no JSON", None, "no JSON"),
        (b"\xff", None, "�"),
        (f'{{"a": {2**70}}}', None, f'{{"a": {2**70}}}'),
        ('{"a": "\\ud83d"}', None, '{"a": "\\ud83d"}'),
        pytest.param("[" * 100_000, None, "[" * 100_000, id="deep"),
    ],
)
def test_a_body_is_a_json_object_or_text(tmp_path: Path, body: Any, expected: Any, raw: str | None) -> None:
    result, [record] = exported(tmp_path, span(request=body, response=body))
    assert (SUCCESS, expected, expected) == (result, record["request"], record["response"])
    assert (raw, raw) == (record.get("request_raw"), record.get("response_raw"))


@pytest.mark.parametrize(("levels", "kept"), [(253, True), (254, False)])
def test_what_is_read_can_be_written_again_however_deep_it_is(tmp_path: Path, levels: int, kept: bool) -> None:
    body = '{"a":' * levels + "1" + "}" * levels
    result, [record] = exported(tmp_path, span(request=body, response=body))
    assert (SUCCESS, kept, kept) == (result, record["request"] is not None, record["response"] is not None)
    CaptureStore(tmp_path).append("again", record)
    assert [record] == CaptureStore(tmp_path).read("again")


def test_raw_text_beside_a_body_is_kept(tmp_path: Path) -> None:
    _, [record] = exported(tmp_path, span(response='{"a":1}', response_raw=b"data: [DONE]\n\n\xff"))
    assert ({"a": 1}, "data: [DONE]\n\n�") == (record["response"], record["response_raw"])


def test_a_lone_surrogate_in_text_costs_nothing(tmp_path: Path) -> None:
    result, [record] = exported(tmp_path, span(response_raw="half \ud83d"))
    assert (SUCCESS, "half \\ud83d") == (result, record["response_raw"])


@pytest.mark.parametrize("rollout_id", ["../a", "a/b", "", "a\n", "a" * 300, "ä", "\0"])
def test_an_id_that_names_no_file_is_a_failure_and_costs_no_neighbour(
    tmp_path: Path, rollout_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "captures"
    result, records = exported(directory, span(rollout_id=rollout_id), span())
    assert (FAILURE, [EMPTY]) == (result, records)
    assert ["0-0.capture.jsonl"] == [path.name for path in directory.iterdir()]
    assert ["captures"] == [path.name for path in tmp_path.iterdir()]
    assert 1 == len(caplog.messages)


@pytest.mark.parametrize(
    "odd",
    [
        {"status_code": 2**70},
        {"error_category": "\ud83d"},
        {"client_session_id": b"bytes"},
        {"null_keys": 5},
        {"model_ref_name": object()},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_a_value_that_cannot_be_stored_is_marked_and_costs_no_neighbour(tmp_path: Path, odd: dict[str, Any]) -> None:
    result, records = exported(tmp_path, span(**odd), span(), span(rollout_id="only", **odd))
    assert (FAILURE, [EMPTY]) == (result, records)
    names = ["0-0.capture.incomplete", "0-0.capture.jsonl", "only.capture.incomplete"]
    assert names == sorted(path.name for path in tmp_path.iterdir())


def test_a_disk_that_refuses_is_a_failure_and_marked(tmp_path: Path) -> None:
    (tmp_path / "full.capture.jsonl").symlink_to("/dev/full")
    result, records = exported(tmp_path, span(rollout_id="full"), span())
    assert (FAILURE, [EMPTY]) == (result, records)
    assert CaptureStore(tmp_path).is_incomplete("full")


def test_a_marker_that_the_disk_refuses_is_owed(tmp_path: Path) -> None:
    exporter = JsonlSpanExporter(tmp_path)
    markers = [tmp_path / f"{rollout_id}.capture.incomplete" for rollout_id in ("full", "odd")]
    for marker in markers:
        marker.symlink_to(tmp_path / "missing" / "marker")
    (tmp_path / "full.capture.jsonl").symlink_to("/dev/full")
    assert FAILURE is exporter.export([span(rollout_id="full"), span(rollout_id="odd", null_keys=5)])
    for marker in markers:
        marker.unlink()
    assert SUCCESS is exporter.export([span()])
    assert exporter.store.markers.wait(20)
    assert [True, True] == [marker.is_file() for marker in markers]


@pytest.mark.parametrize("odd", [{}, {"null_keys": 5}], ids=["a record", "a loss"])
@pytest.mark.parametrize("rollout_id", ["..", "-rf", "x" * 242, "a/b"])
def test_an_id_that_is_never_captured_leaves_nothing(tmp_path: Path, rollout_id: str, odd: dict[str, Any]) -> None:
    assert FAILURE is JsonlSpanExporter(tmp_path).export([span(rollout_id=rollout_id, **odd)])
    assert [] == list(tmp_path.iterdir())


def test_spans_of_many_rollouts_keep_their_order(tmp_path: Path) -> None:
    exporter = JsonlSpanExporter(tmp_path)
    spans: Sequence[ReadableSpan] = [
        span(rollout_id=f"r{number % 3}", model_call_id=f"{number:032x}") for number in range(30)
    ]
    assert SUCCESS is exporter.export(spans)
    for rollout in range(3):
        ids = [int(record["model_call_id"], 16) for record in exporter.store.read(f"r{rollout}")]
        assert list(range(rollout, 30, 3)) == ids


def test_the_directory_is_absolute(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not absolute"):
        JsonlSpanExporter("captures")
    assert isinstance(JsonlSpanExporter(str(tmp_path / "new")).store, CaptureStore)
    assert (tmp_path / "new").is_dir()
