from __future__ import annotations

import asyncio

import pytest

import otel_gym
from otel_gym.errors import InvalidRolloutIdError


def test_the_block_runs_for_its_rollout_and_what_follows_for_the_outer_one() -> None:
    seen = [otel_gym.current_rollout_id()]
    with otel_gym.rollout("3-1") as rollout_id:
        seen.append(rollout_id)
        with otel_gym.rollout("3-2"):
            seen.append(otel_gym.current_rollout_id())
        with otel_gym.rollout(None):
            seen.append(otel_gym.current_rollout_id())
        seen.append(otel_gym.current_rollout_id())
    seen.append(otel_gym.current_rollout_id())
    assert [None, "3-1", "3-2", None, "3-1", None] == seen


def test_an_exception_ends_it_too() -> None:
    with pytest.raises(KeyError), otel_gym.rollout("3-1"):
        raise KeyError
    assert otel_gym.current_rollout_id() is None


@pytest.mark.parametrize("rollout_id", ["", "../x", ".a", "a/b", "a\n", "x" * 300])
def test_an_id_that_no_rollout_may_have_is_refused(rollout_id: str) -> None:
    with pytest.raises(InvalidRolloutIdError), otel_gym.rollout(rollout_id):
        pass


async def test_tasks_that_run_at_once_have_each_their_own() -> None:
    async def one(number: int) -> str | None:
        with otel_gym.rollout(f"{number}-0"):
            for _ in range(5):
                await asyncio.sleep(0)
                assert f"{number}-0" == otel_gym.current_rollout_id()
            return await asyncio.to_thread(otel_gym.current_rollout_id)

    assert [f"{number}-0" for number in range(50)] == await asyncio.gather(*map(one, range(50)))
    assert otel_gym.current_rollout_id() is None
