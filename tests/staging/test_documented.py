"""The code of docs/staging.md, run: a worker and the model server in front of it, in every dialect."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from otel_gym.staging import StagedCalls
from tests.staging.sdks import dump, openai, streamed
from tests.staging.test_ledger import DIALECTS, continued

TEXT = (Path(__file__).parents[2] / "docs/staging.md").read_text("utf-8")


class Documented:
    """Worker and server as the document has them."""

    def __init__(self, directory: Path) -> None:
        self.names: dict[str, Any] = {}
        for block in re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
            exec(block.replace("/data/staged", str(directory)), self.names)
        self.failures: list[tuple[str, str]] = []
        self.rows: list[Any] = []
        self.spoil: dict[str, Any] = {}
        self._tokens = itertools.count(1000)

    def generate(self, request: dict[str, Any], prefix: list[int]) -> dict[str, Any]:
        number = next(self._tokens)
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "look", "arguments": '{"n": 1}'}}
        tokens = {"generation_token_ids": [number], "generation_log_probs": [-0.5]}
        message = {"role": "assistant", "content": f"answer {number}", "tool_calls": [call], **tokens}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return {
            "id": f"chatcmpl-{number}",
            "model": "m",
            "prompt_token_ids": [*prefix, number + 1],
            "choices": [choice],
        }

    def call(self, dialect: str, history: list[Any], call_id: str) -> list[bytes]:
        request = {"model": "m", "stream": True, "input" if dialect == "responses" else "messages": history}
        events: list[bytes] = self.names["staged_call"](
            dialect,
            request,
            "7-0",
            call_id,
            lambda asked: {**self.names["serve"](asked, self.generate), **self.spoil},
            lambda *failure: self.failures.append(failure),
            self.rows.append,
        )
        return events


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_is_staged_as_a_chain(dialect: str, tmp_path: Path) -> None:
    documented = Documented(tmp_path)
    history: list[Any] = [{"role": "user", "content": "go"}]
    for number in range(3):
        read = streamed(dialect, documented.call(dialect, history, f"c{number}"))
        history += continued(dialect, dump(read))
    assert [None, "c0", "c1"] == [row.parent_call_id for row in documented.rows]
    assert 6 == len(StagedCalls(tmp_path).token_ids(row.staging_key for row in documented.rows))
    assert [] == documented.failures


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_gets_its_answer_when_staging_fails(dialect: str, tmp_path: Path) -> None:
    documented = Documented(tmp_path)
    documented.spoil = {"ng_commit_coords": None}
    streamed(dialect, documented.call(dialect, [{"role": "user", "content": "go"}], "c0"))
    assert [("c0", "worker_response_missing_commit_coordinates")] == documented.failures
    assert [] == documented.rows


def test_an_answer_that_cannot_be_given_ends_the_stream_and_is_no_success(tmp_path: Path) -> None:
    documented = Documented(tmp_path)
    documented.spoil = {"choices": []}
    events = documented.call("responses", [{"role": "user", "content": "go"}], "c0")
    with openai(b"".join(events)).responses.stream(model="m", input="x") as stream:
        last: Any = list(stream)[-1]
    assert ("response.failed", "the answer cannot be given") == (last.type, last.response.error.message)
    assert [("c0", "an answer that is converted has one choice")] == documented.failures
    assert [] == documented.rows
