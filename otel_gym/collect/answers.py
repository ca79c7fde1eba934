"""What an agent answers, while it comes: few bytes in memory, many in a file without a name.

So that 64 answers at a time, of whatever length, take the memory of one.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import IO

HELD_BYTES = 4 << 20
"""So much of an answer is kept in memory."""


class LargeAnswer:
    """One that has come to its end, and lies in a file; the file goes when it has been read, or is forgotten."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self) -> bytes:
        """All of it, once. Blocks.

        Raises:
            OSError: it cannot be read.
        """
        with self._file:
            self._file.seek(0)
            return self._file.read()


class Answer:
    """One that comes.

    Args:
        directory: for the file, if one is needed.

    Attributes:
        size: of what has come, in bytes.
    """

    def __init__(self, directory: Path) -> None:
        self.size = 0
        self._directory = directory
        self._pieces: list[bytes] = []
        self._held = 0
        self._file: IO[bytes] | None = None

    async def add(self, piece: bytes) -> None:
        """Take the next bytes.

        Raises:
            OSError: the disk does not.
        """
        self.size += len(piece)
        self._held += len(piece)
        self._pieces.append(piece)
        if self._held >= HELD_BYTES:
            await asyncio.to_thread(self._put_away)

    async def whole(self) -> bytes | LargeAnswer:
        """It has come to its end.

        Raises:
            OSError: the disk does not take the rest.
        """
        if self._file is None:
            return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        await asyncio.to_thread(self._put_away)
        file, self._file = self._file, None
        return LargeAnswer(file)

    def forget(self) -> None:
        """Nobody wants it any more."""
        self._pieces = []
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _put_away(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - it outlives this call
        pieces, self._pieces, self._held = self._pieces, [], 0
        self._file.writelines(pieces)
        self._file.flush()
