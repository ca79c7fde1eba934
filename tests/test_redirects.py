from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.correlation import Route, find_route
from otel_gym.redirects import keep_prefix, redirected

HOST = "model.test:8000"


def route_of(path: str, root: str = "") -> Route:
    route = find_route({"type": "http", "path": path, "root_path": root})
    assert route is not None
    return route


PLAIN = route_of("/ng-rollout/5-0/v1/models/")
TOKENS = route_of("/ng-rollout/5-0/training-token-capture/v1/models/")
ROOTED = route_of("/proxy/ng-rollout/5-0/v1/models/", "/proxy")
ODD = route_of("/ng-rollout/ü\r\nX-Evil: 1%€/v1/models/")

LOCATIONS = {
    "root-relative": (PLAIN, "/v1/models", "/ng-rollout/5-0/v1/models"),
    "with query and fragment": (PLAIN, "/v1/models?a=/b#c", "/ng-rollout/5-0/v1/models?a=/b#c"),
    "the root": (PLAIN, "/", "/ng-rollout/5-0/"),
    "same host": (PLAIN, "http://model.test:8000/v1", "http://model.test:8000/ng-rollout/5-0/v1"),
    "same host in other letters": (PLAIN, "HTTP://Model.Test:8000/v1", "HTTP://Model.Test:8000/ng-rollout/5-0/v1"),
    "another scheme": (PLAIN, "https://model.test:8000/v1", "https://model.test:8000/ng-rollout/5-0/v1"),
    "no scheme": (PLAIN, "//model.test:8000/v1", "//model.test:8000/ng-rollout/5-0/v1"),
    "no path": (PLAIN, "http://model.test:8000", "http://model.test:8000/ng-rollout/5-0/"),
    "no path but a query": (PLAIN, "http://model.test:8000?a=1", "http://model.test:8000/ng-rollout/5-0/?a=1"),
    "another host": (PLAIN, "http://else.test:8000/v1", "http://else.test:8000/v1"),
    "another port": (PLAIN, "http://model.test/v1", "http://model.test/v1"),
    "a user before the host": (PLAIN, "http://u@model.test:8000/v1", "http://u@model.test:8000/v1"),
    "a host that only begins so": (PLAIN, "http://model.test:8000.evil/v1", "http://model.test:8000.evil/v1"),
    "another scheme altogether": (PLAIN, "mailto:a@b", "mailto:a@b"),
    "relative": (PLAIN, "models", "models"),
    "relative upwards": (PLAIN, "../models", "../models"),
    "a query alone": (PLAIN, "?a=1", "?a=1"),
    "empty": (PLAIN, "", ""),
    "prefixed already": (PLAIN, "/ng-rollout/5-0/v1", "/ng-rollout/5-0/v1"),
    "prefixed for another rollout": (PLAIN, "/ng-rollout/7-0/v1", "/ng-rollout/7-0/v1"),
    "prefixed with the host": (PLAIN, "http://model.test:8000/ng-rollout/5-0/v1", None),
    "token capture": (TOKENS, "/v1/models", "/ng-rollout/5-0/training-token-capture/v1/models"),
    "behind a proxy path": (ROOTED, "/proxy/v1/models", "/proxy/ng-rollout/5-0/v1/models"),
    "behind a proxy path, prefixed": (ROOTED, "/proxy/ng-rollout/5-0/v1/models", None),
    "past the proxy path": (ROOTED, "/v1/models", "/ng-rollout/5-0/v1/models"),
    "latin-1": (PLAIN, "/v1/\xfc", "/ng-rollout/5-0/v1/\xfc"),
    "an id that no header can carry": (
        ODD,
        "/v1/models",
        "/ng-rollout/%C3%BC%0D%0AX-Evil:%201%25%E2%82%AC/v1/models",
    ),
}


@pytest.mark.parametrize(("route", "location", "expected"), LOCATIONS.values(), ids=LOCATIONS)
def test_a_location_keeps_its_client_in_the_rollout(route: Route, location: str, expected: str | None) -> None:
    headers = [(b"Location", location.encode("latin-1")), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    kept = keep_prefix(headers, HOST, route)
    assert [(b"Location", (location if expected is None else expected).encode("latin-1")), *headers[1:]] == kept


def test_without_a_host_header_no_absolute_location_is_ours() -> None:
    assert [(b"location", b"http:///v1")] == keep_prefix([(b"location", b"http:///v1")], "", PLAIN)


@pytest.mark.parametrize(("status", "kept"), [(200, False), (201, False), (299, False), (300, True), (399, True)])
def test_only_redirects_are_touched(status: int, kept: bool) -> None:
    headers = iter([(b"location", b"/v1")])
    message = redirected({"headers": []}, PLAIN, {"status": status, "headers": headers})
    assert (b"/ng-rollout/5-0/v1" if kept else b"/v1") == dict(message["headers"])[b"location"]


@given(st.text(min_size=1), st.binary(max_size=30))
def test_no_id_and_no_location_makes_an_answer_fail(rollout_id: str, location: bytes) -> None:
    route = Route(rollout_id, "", f"/ng-rollout/{rollout_id}", "/v1", "/v1", b"/v1")
    [(name, kept)] = keep_prefix([(b"location", location)], HOST, route)
    assert b"location" == name
    assert set(kept) - set(location) <= set(range(ord("!"), ord("~") + 1)), "what is put in is printable"
