"""The command line: help, exit codes, and what becomes of errors; each command has tests of its own."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_gym import cli
from otel_gym._version import __version__
from otel_gym.errors import CaptureWriteError, InvalidRolloutIdError, MissingExtraError, SettingsError

ROOT = Path(__file__).resolve().parent.parent

Outcome = Callable[[], int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Outcome], None]:
    """Make `otel-gym act` do what is given."""

    def install(outcome: Outcome) -> None:
        module = types.ModuleType("otel_gym.cli.act")
        module.__dict__["add_parser"] = lambda subparsers: subparsers.add_parser("act", help="do it")
        module.__dict__["run"] = lambda args: outcome()
        monkeypatch.setitem(sys.modules, "otel_gym.cli.act", module)
        monkeypatch.setattr(cli, "COMMANDS", ("act",))

    return install


def raising(error: BaseException) -> Outcome:
    def outcome() -> int:
        raise error

    return outcome


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (lambda: 0, 0, ""),
        (lambda: 1, 1, ""),
        (raising(CaptureWriteError("0-0", "disk full")), 1, "rollout '0-0' could not be written: disk full"),
        (raising(FileNotFoundError(2, "No such file or directory", "/x")), 1, "No such file or directory: '/x'"),
        (raising(SettingsError("writer_threads: got 'x'")), 2, "writer_threads: got 'x'"),
        (raising(MissingExtraError("the view", "cli")), 2, "pip install 'otel-gym[cli]'"),
        (raising(InvalidRolloutIdError("../x")), 2, "'../x' cannot name a capture file"),
        (raising(KeyboardInterrupt()), 130, ""),
    ],
)
def test_what_happens_decides_the_exit_code_and_one_line_on_stderr(
    command: Callable[[Outcome], None],
    capsys: pytest.CaptureFixture[str],
    outcome: Outcome,
    code: int,
    message: str,
) -> None:
    command(outcome)
    assert code == cli.main(["act"])
    seen = capsys.readouterr()
    assert "" == seen.out
    assert message in seen.err
    assert (1 if message else 0) == len(seen.err.splitlines())
    assert not message or seen.err.startswith("otel-gym: ")


def test_a_fault_of_ours_is_not_dressed_up_as_the_users(command: Callable[[Outcome], None]) -> None:
    command(raising(TypeError("ours")))
    with pytest.raises(TypeError, match="ours"):
        cli.main(["act"])


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["show"], ["show", "DIR", "ID", "more"], ["--what"]])
def test_wrong_usage_is_exit_code_2_with_the_usage_on_stderr(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert 2 == cli.main(arguments)
    seen = capsys.readouterr()
    assert "" == seen.out
    assert seen.err.startswith("usage: otel-gym")


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == cli.main(["--version"])
    assert f"otel-gym {__version__}\n" == capsys.readouterr().out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_has_help_and_appears_in_the_readme(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == cli.main([name, "--help"])
    usage, _, rest = capsys.readouterr().out.partition("\n\n")
    assert f"usage: otel-gym {name} " in usage
    assert len(rest.partition("\n\n")[0]) > 40, "a command says what it does"
    assert f"otel-gym {name}" in (ROOT / "README.md").read_text("utf-8")


def test_each_command_and_the_exit_codes_stand_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == cli.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "0 complete, 1 something is missing, damaged or failed, 2 wrong usage or configuration, 130" in text
    assert "130 interrupted; of run, once it has started its command: the command's own" in text
    for action in cli.make_parser()._subparsers._group_actions:  # type: ignore[union-attr]  # argparse has no public way
        assert isinstance(action, argparse._SubParsersAction)
        assert [*cli.COMMANDS] == [choice.dest for choice in action._choices_actions if choice.help]


def test_a_reader_that_leaves_costs_no_traceback(tmp_path: Path) -> None:
    """As in `otel-gym show DIR | head -1`; the exit code says that the result did not all arrive."""
    script = tmp_path / "long_output.py"
    script.write_text(
        "import sys, types\n"
        "from otel_gym import cli\n"
        "act = types.ModuleType('act')\n"
        "act.add_parser = lambda subparsers: subparsers.add_parser('act')\n"
        "act.run = lambda args: [print(f'line {n}') for n in range(100_000)] and 0\n"
        "sys.modules['otel_gym.cli.act'] = act\n"
        "cli.COMMANDS = ('act',)\n"
        "sys.exit(cli.main(['act']))\n"
    )
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    assert b"line 0\n" == child.stdout.readline()
    child.stdout.close()
    assert (b"", 1) == (child.stderr.read(), child.wait(timeout=60))
    child.stderr.close()


def test_a_terminal_that_lacks_a_character_gets_it_escaped(tmp_path: Path) -> None:
    script = tmp_path / "odd_output.py"
    script.write_text(
        "import sys, types\n"
        "from otel_gym import cli\n"
        "act = types.ModuleType('act')\n"
        "act.add_parser = lambda subparsers: subparsers.add_parser('act')\n"
        "act.run = lambda args: print('\\u2192 \\ud800') or 0\n"
        "sys.modules['otel_gym.cli.act'] = act\n"
        "cli.COMMANDS = ('act',)\n"
        "sys.exit(cli.main(['act']))\n"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, env=environment, timeout=60)
    assert (b"\\u2192 \\ud800\n", b"", 0) == (done.stdout, done.stderr, done.returncode)


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "otel_gym", "--version"], capture_output=True, text=True, timeout=60)
    assert (f"otel-gym {__version__}\n", "", 0) == (done.stdout, done.stderr, done.returncode)
