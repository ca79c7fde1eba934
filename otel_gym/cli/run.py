"""`otel-gym run`: start a command with capture on in every ASGI server that it starts.

The command takes this process's place: its signals and its exit code are its own. Capture goes along in the
environment: a directory in front of PYTHONPATH, whose `sitecustomize` switches it on in each Python process, and the
variables that say where to. So it reaches worker processes, and ends where an environment ends (`env -i`, `sudo`,
`python -I`, a container).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from otel_gym.cli import MISUSED
from otel_gym.cli.capture_directory import directory_to_make
from otel_gym.errors import MissingExtraError
from otel_gym_otlp import environment as otlp_environment

if TYPE_CHECKING:
    from otel_gym.cli import Subparsers
    from otel_gym.settings import Settings

LAUNCHED = Path(__file__).resolve().parent.parent / "launched"
"""The directory that is put in front of PYTHONPATH."""

_DIRECTORY = "OTEL_GYM_MODEL_CALL_CAPTURE_DIR"
_SWITCH = "OTEL_GYM_OBSERVABILITY_ENABLED"
_CONTENT = {"on": "SPAN_ONLY", "off": "NO_CONTENT"}


def add_parser(subparsers: Subparsers) -> None:
    """Add `run` to the command line."""
    parser = subparsers.add_parser(
        "run",
        usage="otel-gym run [-h] [--capture-dir DIR] [--endpoint URL] [--content {on,off}] [--server-name NAME] "
        "-- COMMAND [ARGUMENT ...]",
        help="start a command with capture on in every ASGI server that it starts",
        description="Start a command with capture on in every ASGI application that uvicorn, gunicorn, hypercorn or "
        "granian serves under it, in worker processes too, without a change to its code. otel-gym has to be installed "
        "in the environment of the Python that serves. The command takes the place of this one: its signals and its "
        "exit code are its own.",
        epilog="What no option says stands in the environment, as docs/settings.md has it. Exit code 2, before "
        "anything is started: wrong usage, a setting that cannot be used, a command that is not there.",
    )
    parser.add_argument(
        "--capture-dir",
        metavar="DIR",
        type=directory_to_make,
        help="where the capture files go, from the current directory on unless it is absolute, wherever the command's "
        f"processes change to; sets {_DIRECTORY}",
    )
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="base URL of an OTLP/HTTP backend for the spans, such as http://localhost:4318; its key, if it wants one, "
        "stands in OTEL_EXPORTER_OTLP_HEADERS; sets OTEL_GYM_MIRROR_DESTINATIONS",
    )
    parser.add_argument(
        "--content",
        choices=list(_CONTENT),
        help="whether spans carry messages; sets OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
    )
    parser.add_argument(
        "--server-name", metavar="NAME", help="the model server's name in each record; sets OTEL_GYM_MODEL_SERVER_NAME"
    )
    parser.add_argument("command_line", metavar="COMMAND", nargs=argparse.REMAINDER, help="what to start, after '--'")


def run(args: argparse.Namespace) -> int:
    """Become the command; return the exit code where that cannot be.

    Raises:
        SettingsError: capture is on and a setting cannot be used.
        MissingExtraError: spans are to be sent and what sends them is not installed.
    """
    command: list[str] = args.command_line
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        return _misused("no command: otel-gym run [options] -- COMMAND [ARGUMENT ...]")
    if shutil.which(command[0]) is None:
        return _misused(
            f"{command[0]}: no such command; give a program that can be run, by its name in PATH or by its path"
        )
    if args.endpoint is not None and not args.endpoint.startswith(("http://", "https://")):
        return _misused(f"--endpoint: got {args.endpoint!r}; allowed: a URL such as http://localhost:4318")
    _set_environment(args)
    from otel_gym.settings import CONFIG_FILE_VARIABLE, Settings  # pydantic, which other commands do without

    if (
        not any(os.environ.get(name, "").strip() for name in (_DIRECTORY, CONFIG_FILE_VARIABLE))
        and os.environ[_SWITCH] == "true"
    ):
        return _misused(f"no capture directory: give --capture-dir DIR, or set {_DIRECTORY}")
    settings = Settings()
    if settings.observability_enabled:
        settings.open_capture_dir()
    print(f"otel-gym: {_announcement(settings)}", file=sys.stderr, flush=True)
    try:
        os.execvp(command[0], command)  # noqa: S606  (to be that process is the purpose)
    except OSError as error:
        return _misused(f"{shlex.join(command[:1])} cannot be run: {error.strerror}")


def _misused(what: str) -> int:
    print(f"otel-gym run: {what}", file=sys.stderr)
    return MISUSED


def _set_environment(args: argparse.Namespace) -> None:
    """Our own, which the command inherits."""
    environment = os.environ
    if args.capture_dir is not None:
        environment[_DIRECTORY] = str(args.capture_dir)
    if not environment.get(_SWITCH, "").strip():
        environment[_SWITCH] = "true"
    if args.server_name is not None:
        environment["OTEL_GYM_MODEL_SERVER_NAME"] = args.server_name
    if args.endpoint is not None:
        if not _is_installed("opentelemetry.exporter.otlp.proto.http"):
            raise MissingExtraError("--endpoint", "otlp")
        headers = otlp_environment.headers()  # a destination of ours gets those that it names, and no other
        destination = {"endpoint": args.endpoint, **({"headers": headers} if headers else {})}
        environment["OTEL_GYM_MIRROR_DESTINATIONS"] = json.dumps([destination])
    if args.content is not None:
        environment["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = _CONTENT[args.content]
    before = environment.get("PYTHONPATH")
    others = [path for path in before.split(os.pathsep) if path != str(LAUNCHED)] if before else []
    environment["PYTHONPATH"] = os.pathsep.join([str(LAUNCHED), *others])


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is not
        return False


def _announcement(settings: Settings) -> str:
    """One line: what is captured, to where, and how to switch it off."""
    if not settings.observability_enabled:
        return f"capture is off, as {_SWITCH} says: only the rollout prefix is taken off the paths"
    return (
        f"capture is on: the model calls under /ng-rollout/<id> go to {settings.model_call_capture_dir}, "
        f"{_spans(settings)}; {_SWITCH}=false switches it off"
    )


def _spans(settings: Settings) -> str:
    messages_wanted = otlp_environment.content_wanted()
    if settings.mirror is False or otlp_environment.sdk_disabled():
        return "no spans anywhere" + (", and so no messages" if messages_wanted else "")
    entries = settings.mirror_destinations
    if entries is not None:
        names = [_without_password(entry.endpoint) for entry in entries]
        content = [messages_wanted if entry.content is None else entry.content for entry in entries]
    else:
        protocol = otlp_environment.protocol()
        exporters = otlp_environment.trace_exporters() or (["otlp"] if settings.mirror else [])
        endpoint = _without_password(otlp_environment.endpoint(protocol))
        names = [endpoint if name == "otlp" else name for name in exporters]
        content = [messages_wanted] * len(names)
    if not names:
        return "no spans but to a tracer provider of the server's own" + (
            ", nor messages: name an --endpoint to send them to" if messages_wanted else ""
        )
    ways = [
        f"{name} {'with' if with_content else 'without'} messages"
        for name, with_content in zip(names, content, strict=True)
    ]
    return f"their spans to {' and '.join(ways)}"


def _without_password(endpoint: str) -> str:
    url = urlsplit(endpoint)
    return urlunsplit((url.scheme, url.netloc.rpartition("@")[2], url.path, "", ""))
