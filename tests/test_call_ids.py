"""Ids of calls: as many as one wants, none twice, not even in forked children."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

from otel_gym.call_ids import new_call_id

MANY = 2000


def test_an_id_is_32_lower_case_hex_characters_and_comes_once() -> None:
    ids = [new_call_id() for _ in range(MANY)]
    assert MANY == len(set(ids))
    assert [] == [one for one in ids if re.fullmatch("[0-9a-f]{32}", one) is None]


def test_threads_that_draw_at_once_get_ids_of_their_own() -> None:
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: [new_call_id() for _ in range(MANY)], range(8)))
    assert 8 * MANY == len({one for ids in drawn for one in ids})


def test_a_forked_child_does_not_draw_what_its_parent_has_in_stock() -> None:
    new_call_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "".join(new_call_id() for _ in range(300)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    theirs = {text[start : start + 32] for start in range(0, len(text), 32)}
    assert 300 == len(theirs)
    assert set() == theirs & {new_call_id() for _ in range(300)}
