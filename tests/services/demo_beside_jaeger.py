"""`python -m tests.services.demo_beside_jaeger DIR`: the demo on a machine where a Jaeger has its standard ports.

Prints one JSON object: how the demo ended, and which spans each address that it printed opens. To be run where those
ports are free, as in a network namespace of its own, whose loopback interface it switches on.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

from demo.rollouts import ROLLOUTS
from tests.servers.processes import ROOT
from tests.services.jaeger import Jaeger, jaeger_running

OTLP_PORTS, QUERY_PORTS = (4318, 4317), (16686, 16685)
PAGE = f"http://127.0.0.1:{QUERY_PORTS[0]}/trace/"
SPANS = [*(len(rollout.categories) for rollout in ROLLOUTS), 1 + 3 + 4 + 6]
"""How many each rollout has; the collected one a root, three agents, four tools and six model calls."""

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP of Linux


def switch_loopback_on() -> None:
    """In a new network namespace it is off. Where it is on nothing is asked of the kernel."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(any_socket, _GET_FLAGS, request), 16)
        if not flags & _UP:
            fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


def opened(jaeger: Jaeger, address: str, count: int) -> list[list[str | None]]:
    """Name, and name of the parent, of each of so many spans of the trace whose page has this address."""
    spans = jaeger.wait_for(address.removeprefix(PAGE), count)
    names = {span.span_id: span.name for span in spans}
    return [[span.name, names[span.parent_id] if span.parent_id else None] for span in spans]


def main(directory: Path) -> None:
    if sys.platform == "linux":
        switch_loopback_on()
    with jaeger_running(directory, otlp_ports=OTLP_PORTS, query_ports=QUERY_PORTS) as jaeger:
        command = [sys.executable, "-m", "demo", "--out", str(directory / "out")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)
        addresses = re.findall(r"^  trace: (\S+)$", done.stdout, re.MULTILINE)
        pages = {page: opened(jaeger, page, count) for page, count in zip(addresses, SPANS, strict=True)}
        json.dump({"ended": done.returncode, "said": done.stderr, "pages": pages}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
