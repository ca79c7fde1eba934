"""What the documents say of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from docs import make_schemas
from otel_gym.cli.explanations import CATEGORIES
from otel_gym_jsonl import CaptureStore, JsonlSpanExporter, attributes
from otel_gym_jsonl.exporter import line

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FORMAT = (ROOT / "docs/format.md").read_text("utf-8")

CONTRACT = {value for name, value in vars(attributes).items() if name.isupper() and isinstance(value, str)}
EVIDENCE: dict[str, str | float] = {
    attributes.ROLLOUT_ID: "0-0",
    attributes.MODEL_CALL_ID: "0" * 32,
    attributes.DIALECT: "chat",
    attributes.STARTED_AT: 1.0,
    attributes.COMPLETED_AT: 2.0,
    attributes.LATENCY_MS: 1000.0,
    attributes.REQUEST: '{"model": "m"}',
}


def section(title: str) -> str:
    """The text below a heading, up to the next one of its own or a higher level."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", FORMAT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[2]


def first_cells(text: str) -> list[str]:
    """The words in code marks of the first column of a table."""
    return [word for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for word in re.findall(r"`([^`]+)`", row)]


def code_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_that_are_there(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text("utf-8"))
    assert [] == [target for target in targets if "://" not in target and not (path.parent / target).exists()]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_in_a_document_compiles(path: Path) -> None:
    for block in code_blocks(path.read_text("utf-8")):
        compile(block, path.name, "exec")


def test_the_format_names_the_keys_of_a_record_in_their_order() -> None:
    everything = dict.fromkeys(CONTRACT, "x")
    assert list(json.loads(line(everything))) == first_cells(section("The record").partition("###")[0])


def test_the_format_names_every_attribute_of_the_evidence_span() -> None:
    named = {attributes.PREFIX + name for name in first_cells(section("The evidence span"))}
    assert CONTRACT - {attributes.PREFIX} == named


def test_the_format_explains_every_error_category() -> None:
    assert set(CATEGORIES) == set(first_cells(section("The record").partition("### `error_category`")[2]))


def test_the_pipeline_of_the_format_writes_the_record_of_anyones_span(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the document shows it, under limits that would cost an ordinary pipeline its evidence."""
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1")
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3")
    (pipeline,) = code_blocks(FORMAT)
    names = {
        "ALWAYS_ON": ALWAYS_ON,
        "JsonlSpanExporter": JsonlSpanExporter,
        "SimpleSpanProcessor": SimpleSpanProcessor,
        "SpanLimits": SpanLimits,
        "TracerProvider": TracerProvider,
    }
    exec(pipeline.replace("/data/model-calls", str(tmp_path)), names)
    provider = names["provider"]
    assert isinstance(provider, TracerProvider)
    with provider.get_tracer("anyone").start_as_current_span("call", attributes=EVIDENCE) as span:
        assert isinstance(span, ReadableSpan)
    provider.shutdown()
    (stored,) = CaptureStore(tmp_path).read("0-0")
    assert {"model": "m"} == stored["request"]
    assert (None, None, 1000.0) == (stored["model_ref"], stored["response"], stored["latency_ms"])


@pytest.mark.parametrize("key", make_schemas.MODELS)
def test_the_schemas_are_what_their_generator_makes_of_the_models(key: str) -> None:
    path = ROOT / "docs/schemas" / f"{key}.json"
    assert make_schemas.text(key) == path.read_text("utf-8"), "run: python docs/make_schemas.py --write"


def test_the_schemas_leave_no_field_open_but_what_was_sent_and_came() -> None:
    def open_objects(part: object, at: str) -> list[str]:
        if isinstance(part, list):
            return [found for item in part for found in open_objects(item, at)]
        if not isinstance(part, dict):
            return []
        here = [at] if "properties" in part and part.get("additionalProperties") is not False else []
        return here + [found for key, value in part.items() for found in open_objects(value, key)]

    found = {name for key in make_schemas.MODELS for name in open_objects(make_schemas.schema(key), key)}
    assert {"SandboxObservation"} == found


def test_rollouts_names_every_gap_that_the_code_knows() -> None:
    text = (ROOT / "docs/rollouts.md").read_text("utf-8")
    sources = [path.read_text("utf-8") for path in (ROOT / "otel_gym/rollouts").glob("*.py")]
    what = "(?:model_call|turns|conversation|producer|agent_observation|trajectory)[a-z_]*"
    endings = "records|unreadable|incomplete|invalid|failed|unmatched|ambiguous|conflict|unavailable|mismatch"
    codes = {code for source in sources for code in re.findall(rf'"({what}_(?:{endings}))"', source)}
    assert len(codes) > 12
    documented = {code: code in text or f"…_{code.rpartition('_')[2]}" in text for code in codes}
    assert [] == [code for code, there in documented.items() if not there]
