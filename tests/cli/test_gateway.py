"""`otel-gym gateway`: what it refuses to do, and how it says so; that it serves is tested in `tests/gateway`."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from otel_gym import cli

UPSTREAM = ["gateway", "--upstream", "http://127.0.0.1:1", "--port", "0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gateway"], "one of the arguments --upstream --upstreams is required"),
        ([*UPSTREAM, "--upstreams", "x.yaml"], "not allowed with argument"),
        ([*UPSTREAM, "--key-env", "A", "--key-file", "b"], "not allowed with argument"),
        ([*UPSTREAM, "--retries", "-1"], "a whole number from 0"),
        ([*UPSTREAM, "--max-connections", "0"], "a whole number from 1"),
        ([*UPSTREAM, "--read-timeout", "inf"], "seconds from 0"),
        ([*UPSTREAM, "--read-timeout", "soon"], "invalid _seconds value"),
        (["gateway", "--upstream", "api.openai.com"], "allowed: an http(s) URL"),
        ([*UPSTREAM, "--host", "0.0.0.0"], "or say --allow-any-client"),
        ([*UPSTREAM, "--host", "::"], "or say --allow-any-client"),
        ([*UPSTREAM, "--host", "gateway.test"], "or say --allow-any-client"),
        ([*UPSTREAM, "--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY: got nothing"),
        ([*UPSTREAM, "--key-file", "/no/such/file"], "No such file"),
        ([*UPSTREAM, "--client-keys-file", "/no/such/file"], "No such file"),
        (["gateway", "--upstreams", "/no/such/file"], "cannot be read"),
        (["gateway", "--upstreams", "/no/such/file", "--key-env", "A"], "allowed: keys in the file"),
        ([*UPSTREAM, "--capture-dir", "/proc/no"], "which cannot be used"),
    ],
)
def test_what_cannot_be_served_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert 2 == cli.main(arguments)
    seen = capsys.readouterr()
    assert "" == seen.out
    assert message in seen.err


def test_a_port_that_is_taken_is_a_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ["gateway", "--upstream", "http://127.0.0.1:1", "--port", port, "--capture-dir", str(tmp_path)]
        assert 1 == cli.main(arguments)
    assert "ddress already in use" in capsys.readouterr().err


@pytest.mark.parametrize("library", ["uvicorn", "httpx"])
def test_without_its_libraries_the_install_line_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("otel_gym.gateway")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    assert 2 == cli.main(UPSTREAM)
    assert (
        "otel-gym: the gateway needs an optional library: pip install 'otel-gym[gateway]'\n" == capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--staging-log", "/proc/no"], "/proc/no"),
        (["--upstreams", "staging.yaml"], "got true and no place for its log"),
    ],
)
def test_staging_needs_a_place_for_its_log(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "staging.yaml").write_text(
        "upstreams: [{name: w, url: 'http://127.0.0.1:1'}]\ntoken_id_capture: {external_staging: true}\n"
    )
    place = arguments if "--upstreams" in arguments else ["--upstream", "http://127.0.0.1:1", *arguments]
    assert 0 < cli.main(["gateway", "--port", "0", *place])
    assert message in capsys.readouterr().err
