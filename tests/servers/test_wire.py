"""Every byte of an answer is the same with capture on and off; the record is there when its end is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from otel_gym.testing import answer
from tests.servers.application import PATHS, PLAYS, TEXTS
from tests.servers.processes import Served
from tests.servers.wire import connected, exchange, request, reset, rest, until, without_date

pytestmark = pytest.mark.servers

SERVERS = ("h11", "httptools", "hypercorn")
TERMINAL = {"responses": b"response.completed", "chat": b"[DONE]", "messages": b'"message_stop"'}
ON_SERVERS = pytest.mark.parametrize("server", SERVERS)
ON_ROUTES = pytest.mark.parametrize("path", PATHS)


def at_once(path: str, play: str) -> list[bytes]:
    return [request(path, play)]


def in_single_bytes(path: str, play: str) -> list[bytes]:
    return [bytes([byte]) for byte in request(path, play)]


def chunked(path: str, play: str) -> list[bytes]:
    head, _, body = request(path, play).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:1], body[1:9], body[9:])]
    return [b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b""]), *chunks, b"0\r\n\r\n"]


def in_http_1_0(path: str, play: str) -> list[bytes]:
    return [request(path, play, version="1.0", close=False)]


def pipelined(path: str, play: str) -> list[bytes]:
    return [request(path, play, close=False) + request(path, play, close=False) + request(path, play)]


WAYS: dict[Callable[[str, str], list[bytes]], int] = {
    at_once: 1,
    in_single_bytes: 1,
    chunked: 1,
    in_http_1_0: 1,
    pipelined: 3,
}


@ON_SERVERS
@ON_ROUTES
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_byte_is_the_same_with_capture_on_and_off(
    served: Served, rollout_id: str, server: str, path: str, way: Callable[[str, str], list[bytes]]
) -> None:
    for number, play in enumerate(PLAYS):
        pieces = way(f"/ng-rollout/{rollout_id}-{number}{path}", play)
        off = exchange(served.ports[f"{server}-off"], pieces)
        assert (off, True) == (exchange(served.ports[server], pieces), off.startswith(b"HTTP/1."))
        records = served.records(f"{rollout_id}-{number}")
        assert [{"model": "m", "play": play, "text": "é"}] * WAYS[way] == [record["request"] for record in records]
        assert [(200, None)] * WAYS[way] == [(record["status_code"], record["error_category"]) for record in records]
        assert [said(record, PATHS[path]) for record in records] == ["".join(TEXTS)] * WAYS[way]
        if play != "stream":
            assert answer(PATHS[path], "".join(TEXTS)) == records[0]["response"]


def said(record: dict[str, Any], dialect: str) -> str:
    response = record["response"]
    found: str = {
        "chat": lambda: response["choices"][0]["message"]["content"],
        "messages": lambda: response["content"][0]["text"],
        "responses": lambda: response["output"][0]["content"][0]["text"],
    }[dialect]()
    return found


@ON_SERVERS
def test_a_connection_that_is_kept_serves_one_call_after_another(served: Served, rollout_id: str, server: str) -> None:
    answers = []
    for name in (server, f"{server}-off"):
        got = b""
        with connected(served.ports[name]) as connection:
            for number, (path, dialect) in enumerate(PATHS.items()):
                connection.sendall(request(f"/ng-rollout/{rollout_id}{path}", "stream", close=False))
                got += until(connection, b"\r\n0\r\n\r\n")
                assert TERMINAL[dialect] in got
                if name == server:
                    assert number + 1 == len(served.records(rollout_id))
            connection.sendall(request(f"/ng-rollout/{rollout_id}/v1/messages", "plain"))
            answers.append(without_date(got + rest(connection)))
    assert answers[0] == answers[1]
    assert ["responses", "chat", "messages", "messages"] == [r["dialect"] for r in served.records(rollout_id)]


@ON_SERVERS
@pytest.mark.parametrize("play", ["plain", "stream"])
def test_a_client_that_waits_for_100_continue_gets_it(served: Served, rollout_id: str, server: str, play: str) -> None:
    whole = request(f"/ng-rollout/{rollout_id}/v1/messages", play, "Expect: 100-continue")
    head, _, body = whole.partition(b"\r\n\r\n")
    answers = []
    for name in (server, f"{server}-off"):
        with connected(served.ports[name]) as connection:
            connection.sendall(head + b"\r\n\r\n")
            got = until(connection, b"\r\n\r\n")
            assert got.startswith(b"HTTP/1.1 100")
            connection.sendall(body)
            answers.append(without_date(got + rest(connection)))
    assert answers[0] == answers[1]
    assert [json.loads(body)] == [record["request"] for record in served.records(rollout_id)]


@ON_SERVERS
@pytest.mark.parametrize(
    ("method", "path", "seen"),
    [
        ("HEAD", "/api/hello", "/api/hello"),
        ("HEAD", "", None),
        ("HEAD", "/v1/messages", "/v1/messages"),
        ("OPTIONS", "/v1/messages/count_tokens?beta=true", "/v1/messages/count_tokens"),
        ("GET", "/v1/files/a%2Fb%20c?x=%2F", "/v1/files/a/b c"),
        ("POST", "/v1/messages/", "/v1/messages/"),
    ],
)
def test_probes_see_the_server_as_it_is_and_leave_nothing(
    served: Served, rollout_id: str, server: str, method: str, path: str, seen: str | None
) -> None:
    prefix = f"/ng-rollout/{rollout_id}"
    head = f"{method} {prefix}{path} HTTP/1.1\r\nHost: model.test\r\nConnection: close\r\n\r\n".encode()
    got = exchange(served.ports[server], [head])
    plain = exchange(served.ports[f"{server}-off"], [head.replace(prefix.encode(), b"", 1) if seen else head])
    header, _, body = got.partition(b"\r\n\r\n")
    assert b" 200 " in header.partition(b"\r\n")[0]
    assert ([], False) == (served.records(rollout_id), served.store.path_for(rollout_id).exists())
    if method == "HEAD":
        assert (b"", True) == (body, b"content-length: " in header.lower())
        return
    shown, bare = json.loads(body), json.loads(plain.partition(b"\r\n\r\n")[2])
    assert {**bare, "rollout": rollout_id} == shown
    assert (seen, path.partition("?")[0], path.partition("?")[2]) == (
        shown["path"],
        shown["raw_path"],
        shown["query_string"],
    )


# ---- clients that leave


@ON_SERVERS
@ON_ROUTES
@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_client_that_hangs_up_in_mid_stream_leaves_what_had_come(
    served: Served, rollout_id: str, server: str, path: str, how: str
) -> None:
    with connected(served.ports[server]) as connection:
        connection.sendall(request(f"/ng-rollout/{rollout_id}{path}", "endless"))
        got = until(connection, b"on and ")
        assert not served.store.path_for(rollout_id).exists()
        if how == "reset":
            reset(connection)
    record = served.wait_for_record(rollout_id)
    assert record["error_category"] in ("stream_truncated", "cancelled", "connection")
    assert said(record, PATHS[path]).startswith("on and ")
    assert (200, True) == (record["status_code"], b"on and " in got)


@ON_SERVERS
@ON_ROUTES
def test_a_client_that_sees_the_end_finds_its_record_and_may_hang_up(
    served: Served, rollout_id: str, server: str, path: str
) -> None:
    """The application lingers after its terminal event; the client does not wait for it."""
    dialect = PATHS[path]
    with connected(served.ports[server]) as connection:
        connection.sendall(request(f"/ng-rollout/{rollout_id}{path}", "lingering"))
        until(connection, TERMINAL[dialect])
        [record] = served.records(rollout_id)
        reset(connection)
    assert (None, "".join(TEXTS)) == (record["error_category"], said(record, dialect))
    assert [record] == served.records(rollout_id)


@ON_SERVERS
def test_a_client_that_leaves_before_its_request_is_whole_harms_nobody(
    served: Served, rollout_id: str, server: str
) -> None:
    path = f"/ng-rollout/{rollout_id}/v1/messages"
    head, _, body = request(path, "plain", "Expect: 100-continue").partition(b"\r\n\r\n")
    with connected(served.ports[server]) as connection:
        connection.sendall(head + b"\r\n\r\n")
        until(connection, b"\r\n\r\n")  # the application waits for the body
        connection.sendall(body[:-5])
        reset(connection)
    served.wait_for_record(rollout_id)
    assert b"200" in exchange(served.ports[server], [request(path, "plain")])[:20]
    first, second = served.records(rollout_id)
    assert (None, None) == (first["request"], second["error_category"])
    assert first["error_category"] is not None


ODD_IDS = ("%2e%2e", "%00", "a%0Ab", "%FF%FE", "-rf", ".hidden", "~", "%25", "a%20b")


@ON_SERVERS
def test_odd_ids_reach_the_application_and_no_file(served: Served, server: str) -> None:
    around = sorted(served.store.directory.parent.iterdir())
    for odd in ODD_IDS:
        call = [request(f"/ng-rollout/{odd}/v1/messages", "plain")]
        off = exchange(served.ports[f"{server}-off"], call)
        assert (off, True) == (exchange(served.ports[server], call), off.startswith(b"HTTP/1.1 200")), odd
    climbing = exchange(served.ports[server], [request("/ng-rollout/..%2F..%2Fescaped/v1/messages", "plain")])
    assert {"path": "/../escaped/v1/messages", "rollout": ".."}.items() <= json.loads(
        climbing.partition(b"\r\n\r\n")[2]
    ).items()
    assert around == sorted(served.store.directory.parent.iterdir())
    assert all(name.startswith("test-") for name in served.store.rollout_ids())
