"""How much memory a process has had at its most.

`ru_maxrss` also counts what the process had before its `exec`, which is the memory of the one that started it: a test
worker with half a GB behind it. The kernel's high-water mark is the process's own.
"""

from __future__ import annotations

from pathlib import Path

PEAK_KB = "int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
"""A Python expression for a child process."""


def peak_kb() -> int:
    """That of this process."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
