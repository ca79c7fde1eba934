"""What patterns match in content does not leave, and no pattern holds up the process that has it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from otel_gym_otlp import Mirror
from otel_gym_otlp import attributes as names
from otel_gym_otlp.redaction import NotRedactedError, Redaction
from otel_gym_otlp.redactor import MESSAGES, PARTS, TOOLS, Redactor
from tests.otlp.spans import RECEIPT, call_ids, ended_with, message
from tests.servers.processes import wait_until
from tests.services.receiver import http_receiver, plain

KEY = "sk-AAAABBBBCCCC"
R = "[redacted]"
FOR_EVER = r"(a+)+$"
NO_MATCH = "a" * 60 + "!"


def redacted(value: Any, *patterns: str, shape: str = "") -> Any:
    """What becomes of this JSON value of an attribute."""
    redactor = Redactor([re.compile(pattern) for pattern in patterns])
    return json.loads(redactor.attribute(json.dumps(value), shape))


# ---------------------------------------------------------------------- what is looked at


def test_the_schemas_own_words_stay_at_their_own_places() -> None:
    said = [
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": "user text image/png stop"},
                {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "stop"},
                {"type": "generic", "generic_type": "text", "image": "user"},
            ],
            "finish_reason": "stop",
        }
    ]
    assert [
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": f"{R} {R} {R} {R}"},
                {"type": "blob", "modality": "image", "mime_type": "image/png", "content": R},
                {"type": "generic", "generic_type": R, R: R},
            ],
            "finish_reason": "stop",
        }
    ] == redacted(said, "user|text|image(/png)?|stop", shape=MESSAGES)


SECRETS = dict.fromkeys(("type", "role", "finish_reason", "modality", "mime_type", "name", "parts", "id"), KEY)
EVERYWHERE: list[tuple[str, Any]] = [
    (MESSAGES, [SECRETS]),
    (MESSAGES, [{"role": KEY, "parts": [SECRETS], "finish_reason": KEY}]),
    (MESSAGES, [{"role": "assistant", "parts": [{"type": "tool_call", "arguments": SECRETS}]}]),
    (MESSAGES, [{"role": "tool", "parts": [{"type": "tool_call_response", "response": [SECRETS]}]}]),
    (MESSAGES, [{"role": "assistant", "parts": [{"type": "server_tool_call", "server_tool_call": SECRETS}]}]),
    (MESSAGES, [{"role": "assistant", "parts": [{"type": "generic", KEY: [SECRETS]}]}]),
    (MESSAGES, [{"role": "user", "parts": KEY}, KEY, [SECRETS]]),
    (MESSAGES, {KEY: SECRETS}),
    (PARTS, [SECRETS, {"type": "text", "content": KEY}, KEY]),
    (TOOLS, [SECRETS, {"type": "function", "name": KEY, "parameters": {"properties": {KEY: SECRETS}}}, {KEY: KEY}]),
    ("", SECRETS),
    ("", [[KEY, {KEY: [KEY]}]]),
]


@pytest.mark.parametrize(("shape", "value"), EVERYWHERE)
def test_no_other_value_or_key_is_spared_at_any_depth(shape: str, value: Any) -> None:
    left = json.dumps(redacted(value, "sk-[A-Z]+", shape=shape))
    assert (0, json.dumps(value).count("sk-")) == (left.count("sk-"), left.count(R))


def test_a_number_is_matched_by_its_text_and_becomes_one() -> None:
    value = {"card": 4111111111111111, "price": 41.5, "n": 7, "yes": True, "no": None, "long": 4111111111111111 * 10**9}
    assert {"card": R, "price": R, "n": 7, "yes": True, "no": None, "long": f"{R}000000000"} == redacted(
        value, r"4111111111111111", r"41\.5", "true|null"
    )


def test_json_within_a_text_is_taken_apart_too_and_matched_as_text_as_well() -> None:
    inner = '{"k": "k\\u00e9y-12", "n": [1, "\\"k\\\\u00e9y-34\\""]}'
    parts = [{"type": "tool_call_response", "response": inner}, {"type": "tool_call", "arguments": '{"password": 1}'}]
    (said,) = redacted([{"role": "tool", "parts": parts}], "kéy-[0-9]+", r'"password":\s*1', shape=MESSAGES)
    assert {"k": R, "n": [1, f'"{R}"']} == json.loads(said["parts"][0]["response"])
    assert "{" + R + "}" == said["parts"][1]["arguments"]


def test_what_nothing_matches_stays_as_it_was_written() -> None:
    text = '[ {"role": "tool",\n "parts": [{"type": "tool_call_response", "response": "{ \\"a\\" :1}"}] } ]'
    redactor = Redactor([re.compile("sk-")])
    assert text == redactor.attribute(text, MESSAGES)
    assert ["{ {", "{}", 7, ["x"]] == [redactor.attribute(value) for value in ("{ {", "{}", 7, ["x"])]


def test_json_nested_too_deep_to_be_read_is_matched_as_text() -> None:
    deep = "[" * 100_000 + KEY
    redactor = Redactor([re.compile("sk-[A-Z]+")])
    assert "[" * 100_000 + R == redactor.attribute(deep, MESSAGES)


# ---------------------------------------------------------------------- who looks


def test_a_text_is_matched_whole_however_long_it_and_the_match_are() -> None:
    secret = "-----BEGIN KEY-----" + "x" * 500_000 + "-----END KEY-----"
    redaction = Redaction([r"-----BEGIN KEY-----[\s\S]*?-----END KEY-----"])
    content = {
        names.INPUT_MESSAGES: message("ab cd " * 200_000 + secret + " fine"),
        names.STOP_SEQUENCES: [secret, "b"],
    }
    try:
        out = redaction.content(content)
    finally:
        redaction.close()
    assert {names.INPUT_MESSAGES: message("ab cd " * 200_000 + R + " fine"), names.STOP_SEQUENCES: [R, "b"]} == {
        **out,
        names.INPUT_MESSAGES: json.dumps(json.loads(out[names.INPUT_MESSAGES])),
    }


def test_a_pattern_that_takes_for_ever_costs_content_and_nobody_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    steps, done = 0, threading.Event()

    def live() -> None:
        nonlocal steps
        while not done.wait(0.001):
            steps += 1

    with http_receiver() as receiver:
        mirror = Mirror([{"endpoint": receiver.endpoint, "content": True}], redact_patterns=[FOR_EVER])
        other = threading.Thread(target=live)
        other.start()
        for call in "abc":
            mirror.offer(ended_with({names.INPUT_MESSAGES: message(NO_MATCH)}, call), RECEIPT)
        assert mirror.close(30)
        done.set()
        other.join()
        spans = receiver.spans
    assert ["a", "b", "c"] == call_ids(spans)
    assert (3, 0) == (mirror.shed["content"], mirror.shed["spans"])
    assert [(False, True)] * 3 == [
        (names.INPUT_MESSAGES in told, names.SHED_CONTENT_BYTES in told)
        for told in (plain(span.attributes) for span in spans)
    ]
    assert steps > 50, "while the pattern took its two seconds"
    assert ["3 without their content" in record.getMessage() for record in caplog.records] == [True]


def test_after_a_content_that_took_too_long_others_do_not_wait_and_a_mirror_that_starts_anew_redacts() -> None:
    redaction = Redaction([FOR_EVER, "sk-[A-Z]+"])
    try:
        with pytest.raises(NotRedactedError, match="took more than 2 s"):
            redaction.content({names.INPUT_MESSAGES: NO_MATCH})
        with pytest.raises(NotRedactedError, match="content before"):
            redaction.content({names.INPUT_MESSAGES: KEY})
        redaction.close()
        assert {names.INPUT_MESSAGES: R} == redaction.content({names.INPUT_MESSAGES: KEY})
    finally:
        redaction.close()


def test_where_no_process_can_be_started_content_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with http_receiver() as receiver:
        mirror = Mirror([{"endpoint": receiver.endpoint, "content": True}], redact_patterns=["x"])
        mirror.offer(ended_with({names.INPUT_MESSAGES: message("hello")}, "a"), RECEIPT)
        assert mirror.close(30)
        assert (["a"], 1) == (call_ids(receiver.spans), mirror.shed["content"])
        assert b"hello" not in receiver.requests[0].everything()


def test_signals_that_end_a_server_do_not_end_the_redaction_of_its_last_spans() -> None:
    redaction = Redaction(["sk-[A-Z]+"])
    try:
        redaction.content({"a": KEY})
        assert redaction._process is not None
        process = redaction._process._popen
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(name)
        assert {"a": R} == redaction.content({"a": KEY})
        assert process is redaction._process._popen
    finally:
        redaction.close()
    assert process.returncode is not None


# A process of its own: forking pytest's, with receivers and their threads in it, would test other things.
FORKING = """
import os, sys
from otel_gym_otlp import Mirror
from otel_gym_otlp import attributes as names
from tests.otlp.spans import RECEIPT, ended_with, message

mirror = Mirror([{"endpoint": sys.argv[1], "content": True}], redact_patterns=["sk-[A-Z]+"])

def offer(call):
    mirror.offer(ended_with({names.INPUT_MESSAGES: message("sk-ABC of " + call)}, call), RECEIPT)
    assert mirror.flush(20)

offer("parent")
theirs = mirror._redaction._process._popen.pid
if not (child := os.fork()):
    offer("child")
    own = mirror._redaction._process._popen.pid
    os._exit(0 if mirror.close(10) and own != theirs else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
offer("parent again")
assert mirror._redaction._process._popen.pid == theirs
print(theirs, flush=True)
if code == 0:
    os.kill(os.getpid(), 9)
"""


@pytest.mark.platform_only
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_forked_children_redact_for_themselves_and_the_process_ends_with_a_server_that_is_killed() -> None:
    with http_receiver() as receiver:
        command = [sys.executable, "-W", "ignore", "-c", FORKING, receiver.endpoint]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert -signal.SIGKILL == ran.returncode, ran.stderr
        shown = {
            call: plain(span.attributes)[names.INPUT_MESSAGES]
            for call, span in zip(call_ids(receiver.spans), receiver.spans, strict=True)
        }
    assert {"parent", "child", "parent again"} == set(shown)
    assert not [text for text in shown.values() if R not in text or "sk-" in text]
    wait_until(lambda: has_ended(int(ran.stdout)), 30)


def has_ended(pid: int) -> bool:
    """Whether there is no such process, or one that only waits for somebody to ask for its status."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_the_process_takes_nothing_from_the_environment_that_python_processes_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched = tmp_path / "touched"
    (tmp_path / "sitecustomize.py").write_text(f"open({str(touched)!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert touched.exists()
    touched.unlink()
    redaction = Redaction(["sk-[A-Z]+"])
    try:
        assert {"a": R} == redaction.content({"a": KEY})
    finally:
        redaction.close()
    assert not touched.exists()
