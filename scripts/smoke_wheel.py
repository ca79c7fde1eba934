"""Use the installed wheel from outside the tree: `python -I smoke_wheel.py TREE`, in an environment with nothing else.

Only the runtime dependencies are there, as in the model server of a user: what needs more has to say so.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

PACKAGES = {
    "otel_gym": "otel_gym",
    "otel_gym_jsonl": "exporters/otel_gym_jsonl",
    "otel_gym_otlp": "exporters/otel_gym_otlp",
}
BODY = b'{"id": "c1", "object": "chat.completion", "model": "m", "choices": [], "usage": {"prompt_tokens": 3}}'


def installed_files_are_those_of_the_tree(tree: Path) -> None:
    """Every module and marker of the tree is in the wheel, and nothing else."""
    for package, source in PACKAGES.items():
        folder = Path(importlib.import_module(package).__file__ or "").parent
        assert not folder.is_relative_to(tree / source), f"{package} comes from the tree, not from the wheel"
        expected, actual = (
            {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"}
            for root in (tree / source, folder)
        )
        assert expected == actual, f"{package}: wheel and tree differ in {sorted(expected ^ actual)}"
        assert "py.typed" in actual, f"{package} has no py.typed"
        print(f"  {package}: {len(actual)} files, as in the tree")


def every_module_imports_or_names_its_extra() -> None:
    """A module that needs an extra raises the error with the install line."""
    from otel_gym.errors import MissingExtraError

    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if module.name == "otel_gym.__main__":
                continue
            try:
                importlib.import_module(module.name)
            except MissingExtraError as error:
                print(f"  {module.name}: {error}")
    print("  every module imports")


def import_is_light() -> None:
    """What `import otel_gym` costs, and what a server pays that uses it (what they load: `tests/test_package.py`)."""
    for code in ("import otel_gym", "from otel_gym import CaptureMiddleware"):
        milliseconds = min(seconds(code) - seconds("pass") for _ in range(5)) * 1000
        print(f"  {code}: {milliseconds:.0f} ms (best of 5)")


def seconds(code: str) -> float:
    """How long an interpreter of its own takes for it, with its start."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    return time.perf_counter() - started


async def application(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    """A model server of three lines."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": BODY})


async def one_call() -> bytes:
    """One captured call, driven by hand; what the client got."""
    from otel_gym import CaptureMiddleware

    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b'{"model": "m", "messages": []}', "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    path = "/ng-rollout/0-0/v1/chat/completions"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"model"), (b"content-type", b"application/json")],
    }
    await CaptureMiddleware(application)(scope, receive, send)
    return b"".join(message.get("body", b"") for message in sent)


def a_call_is_captured(directory: Path) -> None:
    """The environment switches capture on; the record is there when the answer is."""
    from otel_gym_jsonl import CaptureStore

    os.environ["OTEL_GYM_MODEL_CALL_CAPTURE_DIR"] = str(directory)
    assert BODY == asyncio.run(one_call())
    records = CaptureStore(directory).read("0-0")
    assert [200] == [record["status_code"] for record in records], records
    print(f"  one call captured in {directory}")


def the_command_works(directory: Path) -> None:
    """`otel-gym` is installed beside the interpreter and reads what was captured."""
    command = str(Path(sys.executable).with_name("otel-gym"))
    for arguments in (
        ["--version"],
        ["show", str(directory)],
        ["show", str(directory), "0-0"],
        ["verify", str(directory)],
    ):
        done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (arguments, done)
        print(f"  otel-gym {arguments[0]}: {done.stdout.splitlines()[0]}")


def run_switches_capture_on(directory: Path) -> None:
    """`otel-gym run` reaches the Python that it starts, with nothing installed but what otel-gym needs."""
    command = [str(Path(sys.executable).with_name("otel-gym")), "run", "--capture-dir", str(directory), "--"]
    code = "from otel_gym import served; print(served.captures_all())"
    done = subprocess.run([*command, sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (0, "True\n", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines())), done
    print(f"  otel-gym run: {done.stderr.rstrip()}")


if __name__ == "__main__":
    installed_files_are_those_of_the_tree(Path(sys.argv[1]))
    every_module_imports_or_names_its_extra()
    import_is_light()
    with tempfile.TemporaryDirectory() as folder:
        a_call_is_captured(Path(folder))
        the_command_works(Path(folder))
        run_switches_capture_on(Path(folder))
