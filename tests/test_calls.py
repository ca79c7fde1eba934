from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from enum import Enum
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import HTTPException

from otel_gym.calls import Call
from otel_gym.dialects import DIALECTS
from otel_gym.testing import answer, stream

PREFIX = "otel_gym.evidence."
HI = answer("chat", "hi")


def call_of(limit: int = 1 << 20, server: str | None = None) -> Call:
    return Call("0-0", DIALECTS["/v1/chat/completions"], limit, server)


def evidence(call: Call, error: BaseException | None = None) -> dict[str, Any]:
    """The evidence of a call, keys without their prefix, objects read."""
    call.complete(error)
    found = {key.removeprefix(PREFIX): value for key, value in call.evidence().items()}
    return {key: json.loads(value) if key in ("request", "response") else value for key, value in found.items()}


# ---- what an application raises

REQUEST = httpx.Request("POST", "http://upstream/v1")


SLOW_DOWN = httpx.Response(429, text="slow down", request=REQUEST)


class ReadTimeoutOfSomebody(Exception):  # noqa: N818  (its name is what is tested)
    pass


class LostConnection(Exception):  # noqa: N818
    pass


class OddError(Exception):
    """Its properties raise, as an SDK's do on an answer that was not read."""

    @property
    def response(self) -> Any:
        raise RuntimeError("not read")


def carrying(**attributes: Any) -> Exception:
    error = Exception()
    vars(error).update(attributes)
    return error


RAISED: dict[str, tuple[BaseException, int | None, str, str | None]] = {
    # error -> status, category, raw response
    "anything": (ValueError("x"), None, "exception", None),
    "a BaseException": (SystemExit(1), None, "exception", None),
    "cancelled": (asyncio.CancelledError(), None, "cancelled", None),
    "closed": (GeneratorExit(), None, "cancelled", None),
    "a time-out": (TimeoutError(), None, "timeout", None),
    "asyncio's time-out": (asyncio.TimeoutError(), None, "timeout", None),
    "httpx's time-out": (httpx.ReadTimeout("x"), None, "timeout", None),
    "a time-out by its name": (ReadTimeoutOfSomebody(), None, "timeout", None),
    "no connection": (ConnectionRefusedError(), None, "connection", None),
    "no connection by its name": (LostConnection(), None, "connection", None),
    "httpx's connection": (httpx.ConnectError("x"), None, "connection", None),
    "httpx's status": (
        httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(503, text="é", request=REQUEST)),
        503,
        "upstream_error",
        "é",
    ),
    "a client's status": (carrying(response=SLOW_DOWN), 429, "rate_limit", "slow down"),
    "a framework's status": (HTTPException(404, "x"), 404, "not_found", None),
    "a status from the enumeration": (HTTPException(HTTPStatus.UNAUTHORIZED), 401, "auth", None),
    "aiohttp's status": (carrying(status=408), 408, "timeout", None),
    "a body beside the status": (carrying(status=400, response_content=b"\xff!"), 400, "client_error", "\ufffd!"),
    "a body of text": (carrying(response=SimpleNamespace(text="why")), None, "exception", "why"),
    "a status that is a bool": (carrying(status=True), None, "exception", None),
    "a status that is text": (carrying(status="500", status_code=502), 502, "upstream_error", None),
    "a status beyond 64 bits": (carrying(status=10**30, status_code=502), 502, "upstream_error", None),
    "properties that raise": (OddError(), None, "exception", None),
}


@pytest.mark.parametrize(("error", "status", "category", "raw"), RAISED.values(), ids=RAISED)
def test_an_exception_says_what_became_of_the_call(
    error: BaseException, status: int | None, category: str, raw: str | None
) -> None:
    found = evidence(call_of(), error)
    assert (status, category, raw, None) == (
        found.get("status_code"),
        found.get("error_category"),
        found.get("response_raw"),
        found.get("response"),
    )


def test_what_had_passed_counts_more_than_the_exception() -> None:
    whole = call_of()
    whole.status, whole.ended = 200, True
    whole.response.add(json.dumps(HI).encode())
    partial = call_of()
    partial.status, partial.is_stream = 200, True
    partial.response.add(b"".join(stream("chat", "par")[:2]))
    begun = call_of()
    begun.status = 502
    found = [evidence(call, ConnectionResetError()) for call in (whole, partial, begun)]
    assert [(200, None), (200, "connection"), (502, "upstream_error")] == [
        (each["status_code"], each.get("error_category")) for each in found
    ]
    assert (HI, "par") == (found[0]["response"], found[1]["response"]["choices"][0]["message"]["content"])


# ---- statuses

STATUSES = {
    200: None,
    299: None,
    302: None,
    399: None,
    400: "client_error",
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "timeout",
    413: "client_error",
    429: "rate_limit",
    499: "client_error",
    500: "upstream_error",
    504: "timeout",
    529: "upstream_error",
}


@pytest.mark.parametrize(("status", "category"), STATUSES.items())
def test_a_status_says_what_became_of_the_call(status: int, category: str | None) -> None:
    call = call_of()
    call.status, call.ended = status, True
    call.response.add(json.dumps(HI).encode())
    found = evidence(call)
    assert (status, category, HI) == (found["status_code"], found.get("error_category"), found["response"])


def test_a_status_from_the_enumeration_is_a_number_in_the_record() -> None:
    call = call_of()
    call.status, call.ended = HTTPStatus.OK, True
    call.response.add(json.dumps(HI).encode())
    found = evidence(call)
    assert (200, int) == (found["status_code"], type(found["status_code"]))


# ---- bodies

BODIES: dict[str, tuple[bytes, Any, str | None]] = {
    # body -> the object, the raw text
    "nothing": (b"", None, None),
    "an object": (b' {"a": 1}\n', {"a": 1}, None),
    "a list": (b"[1]", None, "[1]"),
    "a text": (b'"a"', None, '"a"'),
    "no JSON": (b"a=1", None, "a=1"),
    "cut JSON": (b'{"a":', None, '{"a":'),
    "bad UTF-8": (b'{"a":"\xff"}', None, '{"a":"\ufffd"}'),
    "not a number": (b'{"a":NaN}', {"a": None}, None),
    "a huge integer": (b'{"a":123456789012345678901234567890}', None, '{"a":123456789012345678901234567890}'),
    "half a pair": (b'{"a":"\\ud83d"}', None, '{"a":"\\ud83d"}'),
}


@pytest.mark.parametrize(("body", "value", "raw"), BODIES.values(), ids=BODIES)
def test_a_body_is_an_object_or_its_text(body: bytes, value: Any, raw: str | None) -> None:
    call = call_of()
    call.status, call.ended = 200, True
    call.request.add(body)
    call.response.add(body)
    found = evidence(call)
    assert [(value, raw)] * 2 == [(found.get(side), found.get(f"{side}_raw")) for side in ("request", "response")]
    assert (None if value or not body else "capture_parse_error") == found.get("error_category")


def test_a_body_above_the_limit_is_missing_and_the_call_says_so() -> None:
    call = call_of(limit=10)
    call.status, call.ended = 200, True
    call.request.add(b"x" * 11)
    call.response.add(b'{"a":1}   ')
    found = evidence(call)
    assert ({"a": 1}, True) == (found["response"], call.body_missing)
    assert {"request", "request_raw", "error_category"}.isdisjoint(found)


def test_no_response_at_all_is_an_exception() -> None:
    assert "exception" == evidence(call_of())["error_category"]


# ---- the execution outcome

WHOLE: dict[str, Any] = {
    "upstream_attempted": True,
    "response_source": "upstream",
    "upstream_status_code": 200,
    "local_response_reason": "x",
}


class Source(str, Enum):
    UPSTREAM = "upstream"


class Number(int):
    def __int__(self) -> int:
        raise ZeroDivisionError


class Text(str):
    def __str__(self) -> str:
        raise ZeroDivisionError


OUTCOMES: dict[str, tuple[Any, dict[str, Any], list[str] | None]] = {
    # outcome -> attributes, keys that are null
    "none": (None, {}, None),
    "whole": (WHOLE, WHOLE, None),
    "nulls": (
        dict.fromkeys(WHOLE),
        {},
        ["local_response_reason", "response_source", "upstream_status_code"],
    ),
    "empty": ({}, {}, None),
    "no mapping": ([1], {}, None),
    "odd types": (
        {
            "upstream_attempted": 1,
            "response_source": "elsewhere",
            "upstream_status_code": True,
            "local_response_reason": 5,
        },
        {},
        None,
    ),
    "what no record can hold": (
        {**WHOLE, "upstream_status_code": 10**30, "local_response_reason": "\ud800"},
        {"upstream_attempted": True, "response_source": "upstream"},
        None,
    ),
    "members of enumerations": (
        {
            **WHOLE,
            "response_source": Source.UPSTREAM,
            "upstream_status_code": HTTPStatus.OK,
            "local_response_reason": "x",
        },
        WHOLE,
        None,
    ),
    "subclasses of one's own": (
        {**WHOLE, "upstream_status_code": Number(200), "local_response_reason": Text("x")},
        WHOLE,
        None,
    ),
    "more keys": ({**WHOLE, "model_call_id": "x"}, WHOLE, None),
}


@pytest.mark.parametrize(("outcome", "attributes", "nulls"), OUTCOMES.values(), ids=OUTCOMES)
def test_of_an_outcome_each_key_of_its_type_is_taken(
    outcome: Any, attributes: dict[str, Any], nulls: list[str] | None
) -> None:
    call = call_of()
    call.outcome = outcome
    found = evidence(call)
    taken = {key: found[key] for key in WHOLE if key in found}
    assert attributes == taken
    assert {bool, int, str} >= set(map(type, taken.values()))
    assert nulls == (sorted(found["null_keys"]) if "null_keys" in found else None)
    assert call.model_call_id == found["model_call_id"]


def test_a_context_that_was_too_long_is_a_category_of_its_own() -> None:
    call = call_of()
    call.status = 200
    call.outcome = {**WHOLE, "local_response_reason": "context_length_exceeded"}
    assert "context_length_exceeded" == evidence(call)["error_category"]


# ---- times and names


def test_times_and_names_are_there_when_they_are_known() -> None:
    call = call_of(server="policy")
    call.client_session_id = "s1"
    bare = evidence(call_of())
    call.first_token()
    found = evidence(call)
    assert {"latency_ttft_ms", "model_ref_name", "client_session_id"}.isdisjoint(bare)
    assert ("policy", "s1", True) == (
        found["model_ref_name"],
        found["client_session_id"],
        0 <= found["latency_ttft_ms"] <= found["latency_ms"],
    )
    assert found["started_at"] <= found["completed_at"]
    assert call.start_time_ns <= call.end_time_ns


def test_a_clock_that_is_set_back_during_a_call_gives_it_no_negative_length(monkeypatch: pytest.MonkeyPatch) -> None:
    call = call_of()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    found = evidence(call)
    assert found["started_at"] == found["completed_at"] > 0


@pytest.mark.parametrize("make", [call_of, lambda: call_of()])
def test_each_call_has_an_id_of_its_own(make: Callable[[], Call]) -> None:
    ids = {make().model_call_id for _ in range(100)}
    assert (100, {32}) == (len(ids), {len(each) for each in ids})
    assert all(set(each) <= set("0123456789abcdef") for each in ids)


@pytest.mark.parametrize(("levels", "category"), [(253, None), (254, "capture_parse_error")])
def test_a_rebuilt_response_leaves_room_for_the_record_around_it(levels: int, category: str | None) -> None:
    call = Call("0-0", DIALECTS["/v1/responses"], 1 << 20, None)
    response = '{"a":' * levels + "1" + "}" * levels
    call.is_stream, call.status = True, 200
    call.response.add(b'event: response.completed\ndata: {"response":' + response.encode() + b"}\n\n")
    found = evidence(call)
    assert (category, category is None, True) == (
        found.get("error_category"),
        found.get("response") == json.loads(response),
        response in found["response_raw"],
    )
