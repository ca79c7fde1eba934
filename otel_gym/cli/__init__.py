"""The command `otel-gym`: parse, call one function, turn errors into exit codes.

Results go to stdout, everything else to stderr. A command is a module here that offers `add_parser(subparsers)`, which
makes a parser of the module's own name, and `run(args) -> int`; a new one is named in `COMMANDS`.

Exit codes: 0 complete · 1 something is missing, damaged or failed · 2 wrong usage or configuration · 130 interrupted.
`run` becomes the command that it starts, and so has that one's.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from otel_gym._version import __version__
from otel_gym.errors import InvalidRolloutIdError, MissingExtraError, OtelGymError, SettingsError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["COMMANDS", "FAILED", "INTERRUPTED", "MISUSED", "main", "make_parser"]

FAILED, MISUSED, INTERRUPTED = 1, 2, 130

COMMANDS = ("run", "show", "verify", "attach", "collect", "gateway")


class Command(Protocol):
    """What the module of a command offers."""

    def add_parser(self, subparsers: Subparsers) -> object:
        """Add the command's parser, with its help."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it, and return the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (the process's own by default) and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A model may have written anything: what a terminal's encoding lacks is shown escaped, not a reason to stop.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(argv)
        sys.stdout.flush()
    except SystemExit as leaving:  # argparse: 0 after --help and --version, 2 after wrong usage
        return leaving.code if isinstance(leaving.code, int) else MISUSED
    except BrokenPipeError:
        # The reader of our output has left, as `| head` does. Python flushes once more at exit: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except (SettingsError, MissingExtraError, InvalidRolloutIdError) as error:
        return _fail(error, MISUSED)
    except (OtelGymError, OSError) as error:
        return _fail(error, FAILED)
    return code


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line, each command with its own below it."""
    return _parser_and_commands()[0]


def _parser_and_commands() -> tuple[argparse.ArgumentParser, dict[str, Command]]:
    parser = argparse.ArgumentParser(
        prog="otel-gym",
        description="Capture the model calls of rollouts, in a server or in front of any upstream; look at what they "
        "left on disk, attach it to the rows; collect rollouts of an agent.",
        epilog="exit codes: 0 complete, 1 something is missing, damaged or failed, 2 wrong usage or configuration, "
        "130 interrupted; of run, once it has started its command: the command's own",
    )
    parser.add_argument("--version", action="version", version=f"otel-gym {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands = {name: cast("Command", importlib.import_module(f"otel_gym.cli.{name}")) for name in COMMANDS}
    for command in commands.values():
        command.add_parser(subparsers)
    return parser, commands


def _run(argv: Sequence[str] | None) -> int:
    parser, commands = _parser_and_commands()
    args = parser.parse_args(argv)
    return commands[args.command].run(args)


def _fail(error: Exception, code: int) -> int:
    print(f"otel-gym: {error}", file=sys.stderr)
    return code
