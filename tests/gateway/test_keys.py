"""Keys: in the place of the client's, at the door, and nowhere else."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_gym import provider
from otel_gym.errors import SettingsError
from otel_gym.gateway import ClientKeys, Key, Upstream
from otel_gym.testing import CapturingExporter, Exchange
from tests.gateway.gateways import gateway
from tests.gateway.raw_upstream import answering, http, playing

CHAT = "/ng-rollout/0-0/v1/chat/completions"
CANARY = "canary-7d1f0c"
Headers = list[tuple[bytes, bytes]]


def bearer(key: str) -> tuple[bytes, bytes]:
    return (b"authorization", b"Bearer " + key.encode())


@pytest.mark.parametrize(
    ("theirs", "header", "ours"),
    [
        ([], None, [bearer("k")]),
        ([bearer("x")], None, [bearer("k")]),
        ([(b"x-api-key", b"x")], None, [(b"x-api-key", b"k")]),
        ([(b"api-key", b"x"), bearer("y")], None, [(b"api-key", b"k")]),
        ([(b"x-api-key", b"x"), (b"x-goog-api-key", b"y")], "Authorization", [bearer("k")]),
        ([bearer("x")], "x-api-key", [(b"x-api-key", b"k")]),
    ],
)
def test_the_upstreams_key_takes_the_place_of_the_clients(theirs: Headers, header: str | None, ours: Headers) -> None:
    other = (b"x-other", b"1")
    assert [other, *ours] == Key(b"k").in_place([*theirs, other], None if header is None else header.lower().encode())


@pytest.mark.parametrize(
    ("headers", "admitted"),
    [
        ([bearer("one")], True),
        ([(b"authorization", b"bearer   two")], True),
        ([(b"x-api-key", b"two")], True),
        ([(b"api-key", b"no"), (b"x-api-key", b"one")], True),
        ([bearer("One")], False),
        ([bearer("on")], False),
        ([bearer("one two")], False),
        ([(b"authorization", b"Basic one")], False),
        ([(b"x-other", b"one")], False),
        ([bearer("")], False),
        ([], False),
    ],
)
def test_only_those_with_a_known_key_are_admitted(headers: Headers, admitted: bool) -> None:
    assert admitted == ClientKeys([b"one", b"two"]).admit(headers)


def test_a_keys_file_has_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# the team\n\n  one  \ntwo\r\n")
    keys = ClientKeys.from_file(tmp_path / "keys")
    assert [True, True, False] == [keys.admit([bearer(key)]) for key in ("one", "two", "# the team")]
    assert "ClientKeys(2 keys)" == repr(keys)


@pytest.mark.parametrize("text", ["", "# nobody\n", "with space\n", "é\n", "one\nt\tw\n"])
def test_a_file_without_usable_keys_is_refused_without_showing_them(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(SettingsError, match="client keys file") as caught:
        ClientKeys.from_file(tmp_path / "keys")
    assert not {"space", "é"} & set(str(caught.value).split("got")[1].split(";")[0].split("with a space")[0].split())


def test_a_key_comes_from_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text(f"{CANARY}\n")
    monkeypatch.setenv("UPSTREAM_KEY", f" {CANARY} ")
    for key in (Key.from_file(tmp_path / "key"), Key.from_environment("UPSTREAM_KEY")):
        assert [bearer(CANARY)] == key.in_place([], None)
        assert "Key(…)" == repr(key) == str(key)


@pytest.mark.parametrize("value", ["", "  ", f"{CANARY} {CANARY}", f"{CANARY}\né"])
def test_what_is_no_key_is_refused_without_showing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    (tmp_path / "key").write_text(value)
    monkeypatch.setenv("UPSTREAM_KEY", value)
    with pytest.raises(SettingsError, match="allowed: ") as of_file:
        Key.from_file(tmp_path / "key")
    with pytest.raises(SettingsError, match="allowed: ") as of_variable:
        Key.from_environment("UPSTREAM_KEY")
    assert CANARY not in str(of_file.value) + str(of_variable.value)
    with pytest.raises(SettingsError, match="No such file"):
        Key.from_file(tmp_path / "none")
    with pytest.raises(SettingsError, match="NO_SUCH_KEY"):
        Key.from_environment("NO_SUCH_KEY")


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/ng-rollout/0-0/v1/messages", {"type": "error", "error": {"type": "authentication_error"}}),
        ("/v1/messages/count_tokens", {"type": "error", "error": {"type": "authentication_error"}}),
        (CHAT, {"error": {"type": "invalid_request_error", "param": None, "code": "invalid_api_key"}}),
        ("/v1/models", {"error": {"type": "invalid_request_error", "param": None, "code": "invalid_api_key"}}),
    ],
)
async def test_a_stranger_gets_401_in_the_words_of_the_api_and_writes_nothing(
    tmp_path: Path, path: str, wanted: dict[str, Any]
) -> None:
    async with (
        playing(answering(http(b"{}"))) as upstream,
        gateway(tmp_path, Upstream(upstream.url), client_keys=ClientKeys([b"one"])) as running,
    ):
        for headers in ([], [bearer("two")]):
            async with Exchange(running.app, path, headers=headers) as exchange:
                (start, _) = await exchange.rest()
            body = json.loads(exchange.body)
            assert "does not know the API key" in body["error"].pop("message")
            assert (401, wanted) == (start["status"], body)
    assert ([], []) == (upstream.heads, running.records())


async def test_the_gateways_own_keys_do_not_reach_the_upstream(tmp_path: Path) -> None:
    async with (
        playing(answering(http(b"{}"))) as upstream,
        gateway(tmp_path, Upstream(upstream.url), client_keys=ClientKeys([b"one"])) as running,
        Exchange(running.app, CHAT, headers=[bearer("one"), (b"x-api-key", b"more")]) as exchange,
    ):
        await exchange.rest()
    (head,) = upstream.heads
    assert (False, False) == (b"one" in head, b"x-api-key" in head)


async def test_no_key_is_in_a_record_a_span_or_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's, the upstream's and the gateway's own, through answers, refusals, retries and failures."""
    ours = {name: f"{CANARY}-{name}" for name in ("upstream", "client", "stranger")}
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    spans = CapturingExporter()
    made = TracerProvider.__init__

    def with_exporter(self: TracerProvider, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.add_span_processor(SimpleSpanProcessor(spans))

    monkeypatch.setattr(TracerProvider, "__init__", with_exporter)
    provider._pipelines.clear()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        answers = (
            http(b"{}"),
            http(b"{}", "401 Unauthorized"),
            http(b"{}", "503 x", "Retry-After: 0"),
            b"nonsense\r\n\r\n",
        )
        async with (
            playing(answering(*answers)) as upstream,
            gateway(
                tmp_path,
                Upstream(upstream.url, key=Key(ours["upstream"].encode())),
                client_keys=ClientKeys([ours["client"].encode()]),
                retries=1,
            ) as running,
        ):
            for key in ("client", "client", "client", "stranger", "client"):
                headers = [bearer(ours[key]), (b"x-api-key", ours[key].encode())]
                async with Exchange(running.app, CHAT, headers=headers) as exchange:
                    await exchange.rest()
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert 5 < len(upstream.heads)
    assert [] == [head for head in upstream.heads if ours["upstream"].encode() not in head]
    files = json.dumps(running.records())
    shown = "".join(repr((span.name, dict(span.attributes or {}), span.resource, span.events)) for span in spans.spans)
    assert len(spans.spans) > len(running.records()) > 5
    assert ["chat", "evidence", "HTTP Request"] == [
        word for word, text in (("chat", files), ("evidence", shown), ("HTTP Request", log.getvalue())) if word in text
    ]
    everything = log.getvalue() + files + shown
    assert [] == [name for name, key in ours.items() if key in everything]
