from __future__ import annotations

import logging
from typing import Any

import pytest

from otel_gym.unattributed import REMEMBERED, Unattributed


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "otel_gym.unattributed")


def scope_of(peer: str | None = "10.0.0.1", port: int = 40000, path: str = "/v1/messages") -> dict[str, Any]:
    return {"type": "http", "path": path, "client": None if peer is None else (peer, port)}


def test_a_call_without_a_prefix_is_counted_each_time_and_said_once_a_peer(caplog: pytest.LogCaptureFixture) -> None:
    unattributed = Unattributed()
    for scope in (scope_of(), scope_of(port=40001), scope_of("10.0.0.2"), scope_of(None), scope_of(None), scope_of()):
        unattributed.call(scope, None)
    assert {"no_prefix": 6} == dict(unattributed.counts)
    assert ["10.0.0.1", "10.0.0.2", "a client without an address"] == [said(text) for text in caplog.messages]
    assert all("/ng-rollout/<rollout id>/v1" in text for text in caplog.messages)


def said(text: str) -> str:
    return text.removeprefix("otel-gym: ").partition(" calls ")[0]


def test_an_id_that_names_no_file_is_counted_each_time_and_said_once_an_id(caplog: pytest.LogCaptureFixture) -> None:
    unattributed = Unattributed()
    for rollout_id in ("..", "..", "-x", ".."):
        unattributed.call(scope_of(), rollout_id)
    unattributed.call(scope_of("10.0.0.2"), "..")
    assert ({"bad_id": 5}, 2) == (dict(unattributed.counts), len(caplog.messages))
    assert ["'..'" in caplog.messages[0], "'-x'" in caplog.messages[1]] == [True, True]


def test_a_prefix_before_the_root_path_is_said_once_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    unattributed = Unattributed()
    for rollout_id in ("0-0", "0-1"):
        path = f"/ng-rollout/{rollout_id}/proxy/v1/messages"
        unattributed.before_root({**scope_of(path=path), "root_path": "/proxy"}, rollout_id)
    [text] = caplog.messages
    assert ({"before_root": 2}, True) == (dict(unattributed.counts), "the root path '/proxy' before" in text)


def test_an_id_without_end_is_not_remembered_whole() -> None:
    unattributed = Unattributed()
    for number in range(REMEMBERED):
        unattributed.call(scope_of(), f".{number:04}" + "x" * 60_000)
    assert sum(len(who) for _, who in unattributed._said) < 400 * REMEMBERED


def test_a_websocket_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    unattributed = Unattributed()
    for refused in (True, True, False, False):
        unattributed.websocket(scope_of(), "0-0", refused)
    assert {"websocket_refused": 2, "websocket": 2} == dict(unattributed.counts)
    assert ["refused" in text for text in caplog.messages] == [True, False]


def test_what_has_been_said_is_remembered_within_bounds(caplog: pytest.LogCaptureFixture) -> None:
    unattributed = Unattributed()
    ids = [f".{number}" for number in range(REMEMBERED)]
    for rollout_id in (*ids, ids[0], ".new", ids[0], ids[1]):
        unattributed.call(scope_of(), rollout_id)
    assert (1024, REMEMBERED + 4) == (REMEMBERED, unattributed.counts["bad_id"])
    # The oldest was forgotten for the new one; the one asked for in between was not.
    assert [*ids, ".new", ids[1]] == [text.split("rollout id '")[1].partition("'")[0] for text in caplog.messages]


@pytest.mark.parametrize("rollout_id", ["a\r\nERROR: forged", "a" * 5000, "\x1b[2J", "\udc80"])
def test_no_id_can_forge_a_line_of_the_log(rollout_id: str, caplog: pytest.LogCaptureFixture) -> None:
    Unattributed().call(scope_of(path=f"/ng-rollout/{rollout_id}/v1/messages"), rollout_id)
    [text] = caplog.messages
    assert text.isprintable()
    assert len(text) < 1000
