from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gym_jsonl import CaptureStore
from tests.faults.processes import PATIENCE_S, ROOT, held

# A process that has one call accepted, says so, and waits until it is told to end.
CAPTURING = """
import asyncio, os, signal, sys, threading, time
from pathlib import Path
from otel_gym import CaptureMiddleware, Settings
from otel_gym.testing import Exchange, ScriptedModel, answer

def captured():
    return CaptureMiddleware(
        ScriptedModel.of(answer("chat", "hi")),
        Settings(observability_enabled=True, model_call_capture_dir=Path(sys.argv[1])),
    )

async def call():
    async with Exchange(captured(), "/ng-rollout/a/v1/chat/completions") as exchange:
        await exchange.message()
        print("accepted", flush=True)
        await exchange.message()
        await asyncio.sleep(60)

{preparation}
asyncio.run(call())
"""
EARLIER_HANDLER = """
def handler(number, frame):
    print("handled", flush=True)
    os._exit(7)

signal.signal(signal.SIGTERM, handler)
"""
EARLIER_IGNORANCE = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
captured()
os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
"""
ANOTHER_THREAD = """
thread = threading.Thread(target=captured)
thread.start()
thread.join()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""
SEVERAL = """
many = [captured() for _ in range(3)]
"""
LATER_HANDLER = """
first = captured()
theirs = signal.signal(signal.SIGTERM, lambda number, frame: None)
os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGTERM, theirs)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    captures = tmp_path / "captures"
    captures.mkdir()
    return captures


@contextlib.contextmanager
def capturing(directory: Path, preparation: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process with one call whose record is accepted."""
    command = [sys.executable, "-c", CAPTURING.replace("{preparation}", preparation), str(directory)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "accepted\n" == process.stdout.readline()
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize("preparation", ["", EARLIER_IGNORANCE, ANOTHER_THREAD, SEVERAL, LATER_HANDLER])
def test_where_nobody_handles_sigterm_the_process_dies_of_it_and_the_loss_is_marked(
    directory: Path, preparation: str
) -> None:
    with held(directory / "a.capture.jsonl"), capturing(directory, preparation) as process:
        process.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == process.wait(PATIENCE_S)
    assert CaptureStore(directory).is_incomplete("a")


def test_a_record_that_is_durable_soon_is_there_when_the_process_has_died(directory: Path) -> None:
    with capturing(directory) as process:
        process.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == process.wait(PATIENCE_S)
    store = CaptureStore(directory)
    assert (1, False) == (len(store.read("a")), store.is_incomplete("a"))


def test_a_second_sigterm_ends_the_process_at_once(directory: Path) -> None:
    with held(directory / "a.capture.jsonl"), capturing(directory) as process:
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
    assert -signal.SIGTERM == process.returncode


def test_a_handler_that_was_there_keeps_its_say(directory: Path) -> None:
    with capturing(directory, EARLIER_HANDLER) as process:
        process.send_signal(signal.SIGTERM)
        assert 7 == process.wait(PATIENCE_S)
        assert process.stdout is not None
        assert "handled\n" == process.stdout.read()


FORKING = """
made = captured()
for _ in range(50):
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(1)
    os.kill(child, signal.SIGTERM)
    assert -signal.SIGTERM == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
"""


def test_a_forked_child_that_is_told_to_end_ends_however_soon(directory: Path) -> None:
    with held(directory / "a.capture.jsonl"), capturing(directory, FORKING) as process:
        process.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == process.wait(PATIENCE_S)
    assert CaptureStore(directory).is_incomplete("a")
