from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from otel_gym.collect.directory_lock import DirectoryLock
from otel_gym.collect.errors import BusyError
from otel_gym.collecting import COLLECT_LOCK_FILE


def test_a_second_collection_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path, {"process": 17, "writes": "/x/rows.jsonl"})
    with pytest.raises(BusyError) as refused:
        DirectoryLock(tmp_path, {})
    message = str(refused.value)
    assert f"{tmp_path}: another collection runs on this capture directory" in message
    assert "process 17, writes /x/rows.jsonl" in message
    lock.release()
    lock.release()
    DirectoryLock(tmp_path, {}).release()


def test_a_model_server_that_looks_at_the_lock_is_not_taken_for_a_collection(tmp_path: Path) -> None:
    path = tmp_path / COLLECT_LOCK_FILE
    path.touch()
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    looking = threading.Timer(0.05, os.close, [fd])
    looking.start()
    DirectoryLock(tmp_path, {"process": 1}).release()
    looking.join()


def test_a_holder_that_cannot_be_read_is_not_named(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path, {})
    lock.path.write_text("\n[")
    with pytest.raises(BusyError, match="it does not say which"):
        DirectoryLock(tmp_path, {})
    lock.release()
