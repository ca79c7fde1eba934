"""Make docs/spans.md of the tables of `otel_gym.semconv`: to stdout, or with --write in place."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from otel_gym import semconv
from otel_gym.dialects.media import LONGEST_INLINE_BLOB

TEXT = """\
# Spans and metrics

<!-- Made by docs/make_spans_page.py of otel_gym/semconv.py: change it there. -->

Each captured model call is one span. The `gen_ai.*` names are those of the OpenTelemetry GenAI semantic conventions,
v0.1.0. An attribute that is not known is absent.

## The span of a model call

Its name is the operation and the model (`chat gpt-4.1`); its status is an error with `error.type` when the call failed.

| attribute | meaning |
|---|---|
{attributes}

### Content

These carry what was said, and are there only where `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` asks for them
(`SPAN_ONLY`, `EVENT_ONLY`, `SPAN_AND_EVENT`). An image or file of more than {inline} characters of base64 is named by
its SHA-256 (`ni:///sha-256;…`) instead of being repeated; the record holds it whole.

| attribute | meaning |
|---|---|
{content}

## The spans of a rollout

`otel-gym collect` sends one root a rollout (`invoke_agent {{agent}}`), below which its model calls are, and for what
the agent observed a span an invocation (`invoke_agent`, linked to its model calls), a tool call
(`execute_tool {{tool}}`) and a compaction (`compact_context`).

| attribute | meaning |
|---|---|
{rollouts}

The root has the event `gen_ai.evaluation.result` where the row has a reward:

| attribute | meaning |
|---|---|
{evaluation}

## Profiles

A destination with the profile `phoenix` or `langfuse` gets these too:

| attribute | meaning |
|---|---|
{profiles}

## Metrics

| metric | instrument | unit | meaning |
|---|---|---|---|
{metrics}

Their attributes, each where it is known and has a meaning:

| attribute | meaning |
|---|---|
{metric_attributes}
"""


def page() -> str:
    """The whole page."""
    content = semconv.CONTENT_ATTRIBUTES
    return TEXT.format(
        inline=LONGEST_INLINE_BLOB,
        attributes=rows(item for item in semconv.SPAN_ATTRIBUTES.items() if item[0] not in content),
        content=rows(item for item in semconv.SPAN_ATTRIBUTES.items() if item[0] in content),
        rollouts=rows(semconv.ROLLOUT_ATTRIBUTES.items()),
        evaluation=rows(semconv.EVALUATION_ATTRIBUTES.items()),
        profiles=rows(semconv.PROFILE_ATTRIBUTES.items()),
        metrics="\n".join(
            f"| `{name}` | {metric.kind} | `{metric.unit}` | {metric.description} |"
            for name, metric in semconv.METRICS.items()
        ),
        metric_attributes=rows(semconv.METRIC_ATTRIBUTES.items()),
    )


def rows(table: Iterable[tuple[str, str]]) -> str:
    """The rows of a table of names."""
    return "\n".join(f"| `{name}` | {meaning} |" for name, meaning in table)


def main() -> None:
    """Print the page, or write it beside this script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/spans.md")
    if parser.parse_args().write:
        Path(__file__).with_name("spans.md").write_text(page(), encoding="utf-8")
    else:
        sys.stdout.buffer.write(page().encode())


if __name__ == "__main__":
    main()
