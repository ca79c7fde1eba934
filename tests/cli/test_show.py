from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_gym.cli import main
from otel_gym.cli.terminal import display_width
from tests.sample_records import capture, record, response

COMMAND = Path(sys.executable).parent / "otel-gym"


def show(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["show", *map(str, arguments)])
    output = capsys.readouterr()
    return code, output.out, output.err


def show_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    code, out, err = show(capsys, *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """Three rollouts: a clean one, one with failed calls, one with damage and a lost call."""
    capture(tmp_path, "0-10", record(), record(latency_ms=12345.6, latency_ttft_ms=None))
    capture(
        tmp_path,
        "0-2",
        record(),
        record(status_code=429, error_category="rate_limit", response=None, response_raw="slow down"),
        record(error_category="stream_truncated"),
    )
    capture(tmp_path, "1-0", record(response=response(usage=None)), b'{"model_call_id": "0', b"")
    (tmp_path / "1-0.capture.incomplete").touch()
    return tmp_path


def test_the_real_command_lists_the_rollouts_of_a_directory(captures: Path) -> None:
    result = subprocess.run([COMMAND, "show", captures], capture_output=True, text=True, check=False, timeout=60)
    assert (1, "") == (result.returncode, result.stderr)
    assert result.stdout == (
        "rollout  calls    in  out  cached    time  errors  gaps\n"
        "0-2          3  1624  114    1536   4.50s       2\n"
        "0-10         2  1624  114    1536  13.85s       0\n"
        "1-0          1     -    -       -   1.50s       0  1 unreadable, incomplete\n"
        "\n"
        "3 rollouts, 6 calls; errors: 1 rate_limit, 1 stream_truncated\n"
        "unreadable: lines that are damaged, or hold no call. 'otel-gym verify' names\n"
        "  each.\n"
        "incomplete: the marker file says that at least one call could not be written (a\n"
        "  full or failing disk, a body beyond the limit). Run the rollout again, or\n"
        "  leave it out.\n"
    )


def test_the_calls_of_a_rollout_fit_eighty_columns(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = show(capsys, captures, "0-2")
    assert (0, "") == (code, err)
    assert out == (
        "#  dialect  model            status   in  out  cached   ttft   time  tools\n"
        "0  chat     qwen3-coder-30…  200     812   57     768  0.21s  1.50s  1 run_shell\n"
        "1  chat     qwen3-coder-30…  429       -    -       -  0.21s  1.50s  -\n"
        "   rate_limit\n"
        "2  chat     qwen3-coder-30…  200     812   57     768  0.21s  1.50s  1 run_shell\n"
        "   stream_truncated\n"
        "\n"
        "0-2: 3 calls; tokens: 1,624 in (1,536 cached), 114 out; 4.50s of model time\n"
        "rate_limit (call 1): the model server refused the call for its rate limit (HTTP\n"
        "  429).\n"
        "stream_truncated (call 2): the stream ended without its terminal event: the\n"
        "  client or the upstream hung up. What had come is kept, joined in the response\n"
        "  and as text in response_raw.\n"
    )


def test_it_says_why_something_is_missing(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = show(capsys, captures, "1-0")
    assert code == 1
    assert "1  unreadable, line 2: cut off in mid-write: " in out
    assert "no_usage (call 0): the response carries no usage, so tokens are unknown." in out
    assert "incomplete: the marker file says that at least one call could not be written" in out


@pytest.mark.parametrize("ids", [[], ["0-2"]])
def test_calls_that_failed_and_are_recorded_are_complete(
    captures: Path, capsys: pytest.CaptureFixture[str], ids: list[str]
) -> None:
    for path in captures.glob("1-0*"):
        path.unlink()
    for form in ([], ["--json"]):
        code, out, _ = show(capsys, captures, *ids, *form)
        assert (0, True) == (code, "rate_limit" in out)


def test_a_request_that_was_not_recorded_is_not_said_to_be_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(tmp_path, "0", record(request=None, status_code=401, error_category="auth"))
    _, out, _ = show(capsys, tmp_path, "0")
    assert "no_request (call 0): no request body was recorded: there was none, the application did not" in " ".join(
        out.split()
    )


def test_the_rollouts_as_json(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = show_json(capsys, captures)
    assert (1, str(captures)) == (code, shown["directory"])
    assert {"rollouts": 3, "calls": 6} | {
        "errors": {"rate_limit": 1, "stream_truncated": 1},
        "gaps": {"model_call_capture_records_unreadable": 1, "model_call_capture_incomplete": 1},
        "unattributed_calls": {},
    } == shown["totals"]
    assert shown["rollouts"][2] == {
        "rollout_id": "1-0",
        "file": "1-0.capture.jsonl",
        "metrics": {
            "tokens_in": None,
            "tokens_out": None,
            "tokens_reasoning": None,
            "tokens_total": None,
            "cached_tokens": None,
            "latency_total_ms": 1500.0,
            "num_calls": 1,
        },
        "errors": {},
        "gaps": [
            {"code": "model_call_capture_records_unreadable", "detail": "count=1"},
            {"code": "model_call_capture_incomplete"},
        ],
    }


def test_the_calls_as_json_are_without_payloads(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = show_json(capsys, captures, "1-0")
    call, unreadable = shown["calls"]
    assert (1, 0, ["no_usage"], set()) == (
        code,
        call["call_index"],
        call["missing"],
        {"request", "response", "request_raw", "response_raw"} & call.keys(),
    )
    assert (1, 2) == (unreadable["call_index"], unreadable["line"])
    assert shown["metrics"]["num_calls"] == 1


def test_what_a_model_wrote_cannot_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J\x9b\nname\u202e\u2028\ud83d"
    hostile = json.dumps(
        record(response=response(model=evil[:-1]), error_category="\x1b]0;title\x07", dialect="\r\x08")
    )
    capture(tmp_path, "0-0", hostile.encode() + b"\n", json.dumps({"dialect": evil}).encode() + b"\n")
    os.environ["COLUMNS"] = "200"
    try:
        code, out, _ = show(capsys, tmp_path, "0-0")
    finally:
        del os.environ["COLUMNS"]
    assert code == 1
    assert r"\x1b[2J\x9b\nname\u202e\u2028" in out
    assert [] == [c for c in out if not c.isprintable() and c != "\n"]


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_odd_values_are_shown_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str]
) -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    capture(
        tmp_path,
        "0-0",
        record(latency_ms="nan", latency_ttft_ms="inf", response=None, request=None, status_code=None),
        json.dumps(record(response={"content": [{"type": "tool_use", "input": {"deep": deep}}]})).encode() + b"\n",
        record(response=response(model="m" * 100_000, usage={"prompt_tokens": 10**18})),
        record(response={"content": [{"type": "tool_use", "name": 5}] * 1000}, model_call_id=None, dialect=None),
        b"{}\n",
    )
    code, out, _ = show(capsys, tmp_path, "0-0", *extra)
    assert code == 0
    if extra:
        assert [0, 1, 2, 3, 4] == [call["call_index"] for call in json.loads(out)["calls"]]
    else:
        assert 100 > max(map(display_width, out.splitlines()))


def test_wide_characters_keep_the_columns_in_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(tmp_path, "0-0", record(response=response(model="模型模型模型模型模型模型模型模型模型模型")), record())
    _, out, _ = show(capsys, tmp_path, "0-0")
    wide, plain = out.splitlines()[1:3]
    assert display_width(wide[: wide.index("200")]) == display_width(plain[: plain.index("200")])


def test_a_long_table_is_printed_as_it_comes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(tmp_path, "0-0", *(record() for _ in range(450)))
    code, out, _ = show(capsys, tmp_path, "0-0")
    lines = out.splitlines()
    assert (0, 450) == (code, sum(" chat " in line for line in lines))
    assert (1, ["449", "chat"]) == (sum("dialect" in line for line in lines), lines[450].split()[:2])


def test_many_calls_with_the_same_trouble_are_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(tmp_path, "0-0", *(record(error_category="timeout") for _ in range(9)))
    _, out, _ = show(capsys, tmp_path, "0-0")
    assert "timeout (calls 0, 1, 2, 3, 4, … (9 in all)): the answer did not come in time" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 2, "there is no directory '{}/nowhere'"),
        (["0-2.capture.jsonl"], 2, "is a file: give the directory that holds"),
        ([".", "a/b"], 2, "'a/b' is no rollout id"),
        ([".", "x" * 300], 1, "no rollout 'xxx"),
        ([".", "0-3"], 1, "no rollout '0-3' in {}; near it are 0-2"),
    ],
)
def test_a_wrong_argument_is_told_in_one_line(
    captures: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    got, out, err = show(capsys, captures / arguments[0], *arguments[1:])
    assert (code, "", 1) == (got, out, err.count("\n"))
    assert message.format(captures) in err


def test_a_directory_without_captures_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (0, "", f"otel-gym show: no captured rollouts in {tmp_path}\n") == show(capsys, tmp_path)
    assert (0, []) == (lambda shown: (shown[0], shown[1]["rollouts"]))(show_json(capsys, tmp_path))


@pytest.mark.parametrize("name", ["1-0.capture.jsonl", "1-0.capture.incomplete"])
def test_the_name_of_either_file_does_for_the_id(captures: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert show(capsys, captures, "1-0") == show(capsys, captures, name)


def test_an_id_that_looks_like_a_file_of_another_rollout_is_that_id(
    captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(captures, "0-2.capture.jsonl", record())
    _, shown = show_json(capsys, captures, "0-2.capture.jsonl")
    assert "0-2.capture.jsonl" == shown["rollout_id"]


def test_the_longest_ids_are_shown_with_their_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longest, alone = "r" * 241, "q" * 237
    capture(tmp_path, longest, record())
    for rollout_id in (longest, alone):
        (tmp_path / f"{rollout_id}.capture.lost").touch()
    (tmp_path / "short.capture.lost").touch()
    code, shown = show_json(capsys, tmp_path)
    assert (1, [alone, longest], [None, f"{longest}.capture.jsonl"]) == (
        code,
        [rollout["rollout_id"] for rollout in shown["rollouts"]],
        [rollout["file"] for rollout in shown["rollouts"]],
    )
    assert {"model_call_capture_no_records": 1, "model_call_capture_incomplete": 2} == shown["totals"]["gaps"]
    code, shown = show_json(capsys, tmp_path, longest)
    assert (1, [{"code": "model_call_capture_incomplete"}]) == (code, shown["gaps"])


def test_a_link_that_leads_nowhere_is_a_file_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.capture.jsonl").symlink_to("a.capture.jsonl")
    (tmp_path / "b.capture.incomplete").symlink_to("b.capture.incomplete")
    unreadable = {"code": "model_call_capture_unreadable", "detail": "Too many levels of symbolic links"}
    lost = [{"code": "model_call_capture_no_records"}, {"code": "model_call_capture_incomplete"}]
    for rollout_id, file, gaps in (("a", "a.capture.jsonl", [unreadable]), ("b", None, lost)):
        code, shown = show_json(capsys, tmp_path, rollout_id)
        assert (1, file, gaps) == (code, shown["file"], shown["gaps"])
    _, shown = show_json(capsys, tmp_path)
    assert ["a.capture.jsonl", None] == [rollout["file"] for rollout in shown["rollouts"]]


def test_a_marker_alone_is_a_rollout_whose_calls_are_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "7-1.capture.incomplete").touch()
    code, shown = show_json(capsys, tmp_path, "7-1")
    assert (1, ["model_call_capture_no_records", "model_call_capture_incomplete"]) == (
        code,
        [gap["code"] for gap in shown["gaps"]],
    )


def test_what_cannot_be_read_is_a_gap_and_the_rest_is_shown(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (captures / "2-0.capture.jsonl").mkdir()
    os.mkfifo(captures / "2-1.capture.jsonl")
    code, shown = show_json(capsys, captures)
    assert (1, 5) == (code, len(shown["rollouts"]))
    assert [[{"code": "model_call_capture_unreadable", "detail": "it is no regular file"}]] * 2 == [
        rollout["gaps"] for rollout in shown["rollouts"][3:]
    ]


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_is_for_terminals_that_want_it(captures: Path, environment: dict[str, str], coloured: bool) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "show", captures],
        stdout=child,
        env={"PATH": os.environ["PATH"], "TERM": "xterm", "COLUMNS": "80", **environment},
    )
    os.close(child)
    text = b""
    try:
        while chunk := os.read(parent, 65536):
            text += chunk
    except OSError:  # the terminal has gone with the process
        pass
    os.close(parent)
    assert (1, coloured) == (process.wait(60), b"\x1b[" in text)
