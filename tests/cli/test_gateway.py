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
        (
            [*UPSTREAM, "--key-file", "/no/such/file"],
            "key file: got '/no/such/file', which cannot be read (No such file",
        ),
        ([*UPSTREAM, "--client-keys-file", "/no/such/file"], "key file: got '/no/such/file', which cannot be read"),
        (["gateway", "--upstreams", "/no/such/file"], "cannot be read"),
        (["gateway", "--upstreams", "/no/such/file", "--key-env", "A"], "allowed: keys in the file"),
        ([*UPSTREAM, "--capture-dir", "/proc/no"], "which cannot be used"),
        ([*UPSTREAM, "--capture-dir", ""], "--capture-dir: got ''; allowed: a directory"),
        (["gateway", "--upstream", "http://127.0.0.1:1", "--port", "65536"], "a port from 1 to 65535"),
        (["gateway", "--upstream", "http://127.0.0.1:1", "--port", "-1"], "a port from 1 to 65535"),
    ],
)
def test_what_cannot_be_served_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert 2 == cli.main(arguments)
    seen = capsys.readouterr()
    assert "" == seen.out
    assert message in seen.err


def test_a_port_that_is_taken_is_told_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ["gateway", "--upstream", "http://127.0.0.1:1", "--port", port, "--capture-dir", str(tmp_path)]
        assert 2 == cli.main(arguments)
    assert (
        f"otel-gym: gateway --port: got {port}, at which another program listens already on 127.0.0.1; allowed: a free "
        "port; stop what listens there, give another --port, or 0 for any that is free\n"
    ) == capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("192.0.2.1", "Cannot assign requested address"),
        ("no-such-host.invalid", ""),  # as the system's resolver words it
        ("é" * 64 + ".test", "no name of a host"),
    ],
)
def test_a_host_that_is_not_this_machine_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, host: str, reason: str
) -> None:
    assert 2 == cli.main([*UPSTREAM, "--host", host, "--allow-any-client", "--capture-dir", str(tmp_path)])
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"otel-gym: gateway --host: got {host!r}, where this machine cannot listen ({reason}")
    assert line.endswith("; allowed: an address of this machine; correct it, or leave it out for 127.0.0.1")


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
        (
            ["--staging-log", "/proc/no"],
            "staging log: got '/proc/no', which cannot be used (No such file or directory)",
        ),
        (["--staging-log", "/proc/self"], "staging log: got '/proc/self', which cannot be used"),
        (["--staging-log", "staging.yaml"], "which cannot be used (File exists)"),
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
    assert 2 == cli.main(["gateway", "--port", "0", *place])
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_file_of_upstreams_that_is_no_yaml_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "upstreams.yaml"
    file.write_text("upstreams:\n  - name: [\n")
    assert 2 == cli.main(["gateway", "--port", "0", "--upstreams", str(file)])
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"otel-gym: upstreams: got {str(file)!r}, which cannot be read (")
    assert line.endswith(" in line 3, column 1); allowed: a YAML file; correct the path or the file")
