"""A forked child has queues, threads and connections of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.otlp.spans import call_ids
from tests.services.receiver import Protocol, receiver_running

# A process of its own: forking pytest's, with receivers and their threads in it, would test other things.
FORKING = """
import os, sys, time
from otel_gym_otlp import Mirror
from tests.otlp.spans import RECEIPT, ended

endpoint, protocol = sys.argv[1:]
mirror = Mirror([{"endpoint": endpoint, "protocol": protocol}])
mirror.prepare()
mirror.offer(ended("parent"), RECEIPT)
assert mirror.flush(10)
mirror.offer(ended("parent's own"), RECEIPT)  # waits in the parent while it forks
children = []
for number in range(2):
    if not (child := os.fork()):
        mirror.offer(ended(f"child {number}"), RECEIPT)
        code = 0 if mirror.close(10) and (mirror.sent, mirror.queued_bytes) == (1, 0) else 1
        os._exit(code)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
sys.exit(0 if mirror.close(10) and codes == [0, 0] else f"{codes} {mirror.sent} {mirror.shed}")
"""


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_spans_of_forked_children_arrive_each_once(protocol: Protocol) -> None:
    with receiver_running(protocol) as receiver:
        environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
        command = [sys.executable, "-W", "ignore", "-c", FORKING, receiver.endpoint, receiver.exporter_protocol]
        with subprocess.Popen(command, env=environment, start_new_session=True) as process:
            try:
                assert 0 == process.wait(timeout=40)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # its children too
        assert ["child 0", "child 1", "parent", "parent's own"] == sorted(call_ids(receiver.spans))
