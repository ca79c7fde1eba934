"""One thread that writes finished rows in the order in which they come, all that wait with one fsync."""

from __future__ import annotations

import asyncio
import queue
import threading

from otel_gym.collect.row_file import RowFile

_BATCH_BYTES = 64 << 20

_Waiting = tuple[bytes, "asyncio.Future[None]"]


class RowWriter:
    """Made and used on the event loop; the file belongs to its thread until `close` has returned."""

    def __init__(self, file: RowFile) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="otel-gym-rows", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> asyncio.Future[None]:
        """Write one line; the future is done when it is durable, or has the OSError that the disk gave."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((line, future))
        return future

    async def close(self) -> None:
        """Write what waits, and end."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        ended = False
        while not ended:
            batch: list[_Waiting] = []
            size = 0
            entry = self._queue.get()
            while True:
                if entry is None:
                    ended = True
                    break
                batch.append(entry)
                size += len(entry[0])
                if size >= _BATCH_BYTES:
                    break
                try:
                    entry = self._queue.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._write(batch)

    def _write(self, batch: list[_Waiting]) -> None:
        error: OSError | None = None
        try:
            self._file.append(b"".join(line for line, _ in batch))
        except OSError as exc:
            error = exc
        self._loop.call_soon_threadsafe(_settle, [future for _, future in batch], error)


def _settle(futures: list[asyncio.Future[None]], error: OSError | None) -> None:
    for future in futures:
        if future.cancelled():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
