from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym import current_rollout_id
from otel_gym.correlation import declared_rollout_id, enter, find_route, leave

ROUTES: dict[str, tuple[str, bytes | None, str, tuple[str, str, str, bytes] | None]] = {
    # name: path, raw path, root path -> rollout id, prefix, path and raw path for the application
    "a model call": (
        "/ng-rollout/3-1/v1/responses",
        b"/ng-rollout/3-1/v1/responses",
        "",
        ("3-1", "/ng-rollout/3-1", "/v1/responses", b"/v1/responses"),
    ),
    "token capture": (
        "/ng-rollout/3-1/training-token-capture/v1/responses",
        b"/ng-rollout/3-1/training-token-capture/v1/responses",
        "",
        ("3-1", "/ng-rollout/3-1/training-token-capture", "/v1/responses", b"/v1/responses"),
    ),
    "token capture and nothing after it": (
        "/ng-rollout/3-1/training-token-capture",
        b"/ng-rollout/3-1/training-token-capture",
        "",
        ("3-1", "/ng-rollout/3-1", "/training-token-capture", b"/training-token-capture"),
    ),
    "the root": ("/ng-rollout/3-1/", b"/ng-rollout/3-1/", "", ("3-1", "/ng-rollout/3-1", "/", b"/")),
    "a prefix in the rest": (
        "/ng-rollout/a/ng-rollout/b/x",
        b"/ng-rollout/a/ng-rollout/b/x",
        "",
        ("a", "/ng-rollout/a", "/ng-rollout/b/x", b"/ng-rollout/b/x"),
    ),
    "an encoded rest": (
        "/ng-rollout/3-1/v1/files/a/b c",
        b"/ng-rollout/3-1/v1/files/a%2Fb%20c",
        "",
        ("3-1", "/ng-rollout/3-1", "/v1/files/a/b c", b"/v1/files/a%2Fb%20c"),
    ),
    "an encoded prefix": (
        "/ng-rollout/3-1/v1/x",
        b"/%6eg-rollout/3%2D1/v1/x",
        "",
        ("3-1", "/ng-rollout/3-1", "/v1/x", b"/v1/x"),
    ),
    "an encoded percent sign": (
        "/ng-rollout/%41/v1/x",
        b"/ng-rollout/%2541/v1/x",
        "",
        ("%41", "/ng-rollout/%41", "/v1/x", b"/v1/x"),
    ),
    "a slash encoded in the id": (
        "/ng-rollout/../etc/é x",
        b"/ng-rollout/..%2Fetc/%C3%A9%20x",
        "",
        ("..", "/ng-rollout/..", "/etc/é x", b"/etc/%C3%A9%20x"),
    ),
    "bytes that are no UTF-8": (
        "/ng-rollout/\ufffd/v1/x",
        b"/ng-rollout/%FF/v1/x",
        "",
        ("\ufffd", "/ng-rollout/\ufffd", "/v1/x", b"/v1/x"),
    ),
    "lone surrogates": (
        "/ng-rollout/a/\udc80",
        b"/ng-rollout/\x80/\x80",
        "",
        ("a", "/ng-rollout/a", "/\udc80", b"/%ED%B2%80"),
    ),
    "no raw path": ("/ng-rollout/3-1/v1/x y", None, "", ("3-1", "/ng-rollout/3-1", "/v1/x y", b"/v1/x%20y")),
    "behind a proxy path": (
        "/proxy/ng-rollout/3-1/v1/x",
        b"/proxy/ng-rollout/3-1/v1/x",
        "/proxy",
        ("3-1", "/ng-rollout/3-1", "/proxy/v1/x", b"/proxy/v1/x"),
    ),
    "behind a proxy path that ends in a slash": (
        "/proxy/ng-rollout/3-1/v1/x",
        b"/proxy/ng-rollout/3-1/v1/x",
        "/proxy/",
        ("3-1", "/ng-rollout/3-1", "/proxy/v1/x", b"/proxy/v1/x"),
    ),
    "behind a proxy path that the raw path lacks": (
        "/proxy/ng-rollout/3-1/v1/x",
        b"/ng-rollout/3-1/v1/x",
        "/proxy",
        ("3-1", "/ng-rollout/3-1", "/proxy/v1/x", b"/v1/x"),
    ),
    "behind a proxy path that was taken off": (
        "/ng-rollout/3-1/v1/x",
        b"/ng-rollout/3-1/v1/x",
        "/proxy",
        ("3-1", "/ng-rollout/3-1", "/v1/x", b"/v1/x"),
    ),
    "another path before the prefix": ("/other/ng-rollout/3-1/v1/x", b"/other/ng-rollout/3-1/v1/x", "/proxy", None),
    "no prefix": ("/v1/responses", b"/v1/responses", "", None),
    "the id and nothing after it": ("/ng-rollout/3-1", b"/ng-rollout/3-1", "", None),
    "no id": ("/ng-rollout//v1/x", b"/ng-rollout//v1/x", "", None),
    "a longer name": ("/ng-rollouts/3-1/v1/x", b"/ng-rollouts/3-1/v1/x", "", None),
    "other letters": ("/NG-rollout/3-1/v1/x", b"/NG-rollout/3-1/v1/x", "", None),
    "a line end after the id": ("/ng-rollout/3-1/v1\n/x", b"/ng-rollout/3-1/v1%0A/x", "", None),
}


def scope_of(path: str, raw_path: bytes | None = None, root_path: str = "") -> dict[str, Any]:
    raw = {} if raw_path is None else {"raw_path": raw_path}
    return {"type": "http", "path": path, "root_path": root_path, **raw}


@pytest.mark.parametrize(("path", "raw_path", "root_path", "expected"), ROUTES.values(), ids=ROUTES)
def test_the_prefix_is_found_and_taken_off(
    path: str, raw_path: bytes | None, root_path: str, expected: tuple[str, str, str, bytes] | None
) -> None:
    route = find_route(scope_of(path, raw_path, root_path))
    assert expected == (None if route is None else (route.rollout_id, route.prefix, route.path, route.raw_path))


@st.composite
def spellings(draw: st.DrawFn, text: str) -> bytes:
    """A percent-encoded spelling of a path; what need not be encoded may be."""
    encoded = bytearray()
    for byte in text.encode():
        plain = bytes((byte,))
        if plain.isalnum() or plain in b"/-._~":
            encoded += b"%%%02x" % byte if plain != b"/" and draw(st.integers(0, 5)) == 0 else plain
        else:
            encoded += b"%%%02X" % byte
    return bytes(encoded)


TEXT = st.text(st.characters(exclude_characters="/\n", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.data())
def test_path_and_raw_path_go_on_meaning_the_same(data: st.DataObject) -> None:
    root = data.draw(st.sampled_from(["", "/proxy", "/a b/ü"]))
    rest = "/" + data.draw(TEXT) + data.draw(st.sampled_from(["", "/", "/%2F/x"]))
    rollout_id = data.draw(TEXT)
    path = f"{root}/ng-rollout/{rollout_id}{rest}"
    route = find_route(scope_of(path, data.draw(spellings(path)), root))
    assert route is not None
    assert (rollout_id, root + rest, root + rest) == (route.rollout_id, route.path, unquote(route.raw_path.decode()))


@given(st.binary(max_size=20), st.sampled_from(["", "/proxy"]))
def test_no_path_is_too_odd(rest: bytes, root: str) -> None:
    raw = (root + "/ng-rollout/").encode() + quote(rest, safe="/%").encode()
    route = find_route(scope_of(unquote(raw.decode()), raw, root))
    if route is not None:
        assert unquote(route.raw_path.decode()) == route.path


DECLARED: dict[str, tuple[list[tuple[bytes, bytes]], str | None, bool, str | None]] = {
    "nothing is asked for": ([(b"x-rollout", b"3-1"), (b"baggage", b"ng.rollout.id=3-2")], None, False, None),
    "the header": ([(b"x-rollout", b" 3-1 ")], "x-rollout", False, "3-1"),
    "the header as it was written": ([(b"X-Rollout", b"3-1")], "x-rollout", False, "3-1"),
    "an empty header": ([(b"x-rollout", b" "), (b"baggage", b"ng.rollout.id=3-2")], "x-rollout", True, "3-2"),
    "the header before the baggage": (
        [(b"baggage", b"ng.rollout.id=3-2"), (b"x-rollout", b"3-1")],
        "x-rollout",
        True,
        "3-1",
    ),
    "one member of many": ([(b"baggage", b"a=1;p=2, ng.rollout.id = 3%2D2;x=y ,b=3")], None, True, "3-2"),
    "a second baggage header": ([(b"baggage", b"a=1"), (b"baggage", b"ng.rollout.id=3-2")], None, True, "3-2"),
    "another key": ([(b"baggage", b"ng.rollout.idx=3-2,xng.rollout.id=1")], None, True, None),
    "a member without a value": ([(b"baggage", b"ng.rollout.id")], None, True, None),
    "an empty value": ([(b"baggage", b"ng.rollout.id=")], None, True, None),
    "no headers": ([], "x-rollout", True, None),
}


@pytest.mark.parametrize(("headers", "header", "baggage", "expected"), DECLARED.values(), ids=DECLARED)
def test_a_rollout_may_be_declared_elsewhere(
    headers: list[tuple[bytes, bytes]], header: str | None, baggage: bool, expected: str | None
) -> None:
    assert expected == declared_rollout_id(headers, header, baggage)


def test_a_rollout_within_another_gives_the_outer_one_back() -> None:
    before = current_rollout_id()
    outer = enter("3-1")
    inner = enter("3-2")
    assert (None, "3-1", "3-2") == (before, inner, current_rollout_id())
    leave(inner)
    assert "3-1" == current_rollout_id()
    leave(outer)
    assert current_rollout_id() is None
