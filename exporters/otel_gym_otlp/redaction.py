"""What is taken out of content before it leaves. The local record stays whole.

The work is done by `redactor` in a process of its own: no pattern can hold up the calls of this one. Content that
cannot be redacted, or not in time, does not leave.
"""

from __future__ import annotations

import marshal
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from otel_gym_otlp import attributes as names
from otel_gym_otlp import redactor

CPU_SECONDS = 2.0
"""What the patterns may take over the content of one span."""
REST_SECONDS = 20.0
"""After that, or when there is no process to do it, so long no content is tried: spans have to go on."""
_ANSWER_SECONDS = 20.0  # of a machine that has no time for us
_END_SECONDS = 5.0

_SHAPES = {
    names.INPUT_MESSAGES: redactor.MESSAGES,
    names.OUTPUT_MESSAGES: redactor.MESSAGES,
    names.SYSTEM_INSTRUCTIONS: redactor.PARTS,
    names.TOOL_DEFINITIONS: redactor.TOOLS,
}
_of_parents: list[_Process] = []  # in a forked child: not its own, so never ended by it


class NotRedactedError(Exception):
    """Content that must not leave; says why."""


class Redaction:
    """Replaces what matches, in every key, text and number of every content attribute.

    Safe from any thread. The process is started when it is first needed, and again after it was ended.

    Args:
        patterns: regular expressions, searched for in one string at a time.

    Raises:
        ValueError: a pattern is none.
    """

    def __init__(self, patterns: Iterable[str | re.Pattern[str]]) -> None:
        self._patterns: list[re.Pattern[str]] = []
        for pattern in patterns:
            try:
                self._patterns.append(re.compile(pattern))
            except re.error as exc:
                raise ValueError(f"redaction pattern {pattern!r} is no regular expression: {exc}") from exc
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._rests_until = 0.0

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def content(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The same attributes without what matches.

        Args:
            content: of encodable values.

        Raises:
            NotRedactedError: that could not be done, or not in time.
        """
        if not self._patterns:
            return dict(content)
        asked = [(_SHAPES.get(name, ""), value) for name, value in content.items()]
        with self._lock:
            redacted = self._redacted(asked)
        return dict(zip(content, redacted, strict=True))

    def _redacted(self, asked: Sequence[tuple[str, Any]]) -> list[Any]:
        if time.monotonic() < self._rests_until:
            raise NotRedactedError("content before took too long to redact, or could not be")
        try:
            if self._process is None:
                self._process = _Process(self._patterns)
            answer: list[Any] = self._process.ask((CPU_SECONDS, asked))
        except (OSError, EOFError) as exc:
            self._rests_until = time.monotonic() + REST_SECONDS
            process, self._process = self._process, None
            status = None if process is None else process.end()
            raise NotRedactedError(
                f"the redact patterns took more than {CPU_SECONDS:g} s over one content"
                if status == -signal.SIGPROF
                else f"content cannot be redacted: {type(exc).__name__}"
            ) from None
        return answer

    def abandon(self) -> None:
        """In a forked child: the process is the parent's."""
        if self._process is not None:
            self._process.leave()
            _of_parents.append(self._process)
        self._start()

    def close(self) -> None:
        """End the process; content that comes later starts another."""
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            if self._process is not None:
                self._process.end()
            self._process = None
            self._rests_until = 0.0


class _Process:
    """A running `redactor`.

    Raises:
        OSError, EOFError: it cannot be started.
    """

    def __init__(self, patterns: Iterable[re.Pattern[str]]) -> None:
        self._owner = os.getpid()
        if getattr(sys, "frozen", False) or not sys.executable:
            raise FileNotFoundError("no interpreter to run it with")
        self._socket, theirs = socket.socketpair()
        try:
            # Isolated and without `site`: what the environment puts into each Python process is not for this one. In a
            # session of its own: a terminal's Ctrl-C is for the server.
            self._popen: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-I", "-S", redactor.__file__],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        try:
            self.ask([(pattern.pattern, pattern.flags) for pattern in patterns])
        except (OSError, EOFError):
            self.end()
            raise

    def __del__(self) -> None:
        if hasattr(self, "_popen"):
            self.end()

    def ask(self, what: Any) -> Any:
        """Its answer.

        Raises:
            OSError, EOFError: it has ended, or does not answer.
        """
        data = marshal.dumps(what)
        deadline = time.monotonic() + _ANSWER_SECONDS
        self._socket.settimeout(_ANSWER_SECONDS)
        self._socket.sendall(redactor.HEAD.pack(len(data)))
        self._socket.sendall(data)
        (length,) = redactor.HEAD.unpack(self._received(redactor.HEAD.size, deadline))
        return marshal.loads(self._received(length, deadline))  # noqa: S302  (both ends of the socket are ours)

    def _received(self, length: int, deadline: float) -> bytearray:
        data = bytearray(length)
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            got = self._socket.recv_into(rest)
            if not got:
                raise EOFError("the process has ended")
            rest = rest[got:]
        return data

    def kill(self) -> None:
        """End it, from any thread; whoever waits for its answer gets an error."""
        if self._owner == os.getpid():
            self._popen.kill()

    def end(self) -> int | None:
        """End it, and return its status: that of its own end, where it has ended by itself."""
        if self._owner != os.getpid():
            return None
        self._socket.close()
        try:
            status = self._popen.poll()
            if status is None:
                self._popen.kill()
                status = self._popen.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        return status

    def leave(self) -> None:
        """In a forked child: keep no hold of it."""
        self._socket.close()
