"""Several upstreams: which one a request is for, and the file that names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from otel_gym.errors import SettingsError
from otel_gym.gateway import Upstream, Upstreams, read_configuration
from otel_gym.testing import Exchange
from tests.gateway.gateways import gateway
from tests.gateway.raw_upstream import answering, http, playing

A = Upstream("http://a.test", "a", ["small", "gpt-*", "both"])
B = Upstream("http://b.test/v1", "b", ["gpt-5", "both", "Qwen/*"])


@pytest.mark.parametrize(
    ("model", "default", "name"),
    [
        ("small", None, "a"),
        ("gpt-4", None, "a"),
        ("gpt-5", None, "b"),
        ("both", None, "a"),
        ("Qwen/Qwen3", None, "b"),
        ("qwen/Qwen3", None, None),
        ("other", None, None),
        ("other", "b", "b"),
        ("", "b", "b"),
    ],
)
def test_a_model_is_found_by_name_then_by_pattern_then_by_default(
    model: str, default: str | None, name: str | None
) -> None:
    found = Upstreams([A, B], default).of_model(model)
    assert name == (found and found.name)


@pytest.mark.parametrize(
    ("path", "body", "headers", "name"),
    [
        ("/v1/chat/completions", b'{"model":"one"}', [], "one"),
        ("/v1/chat/completions", b'{"model":"two"}', [], "two"),
        ("/v1/messages", b'{"x":"' + b"y" * 100_000 + b'","model":"two"}', [], "two"),
        ("/v1/responses", zstandard.compress(b'{"model":"two"}'), [(b"content-encoding", b"zstd")], "two"),
        ("/v1/files", b"--boundary", [], "one"),
        ("/v1/other", b'{"model":5}', [], "one"),
        ("/v1/models", b"", [], "one"),
    ],
)
async def test_a_request_goes_to_the_upstream_of_its_model(
    tmp_path: Path, path: str, body: bytes, headers: list[Any], name: str
) -> None:
    async with playing(answering(http(b'"one"'))) as one, playing(answering(http(b'"two"'))) as two:
        upstreams = Upstream(one.url, "one", ["one"]), Upstream(two.url, "two", ["two"])
        async with gateway(tmp_path, *upstreams, default=None) as running:
            method = "GET" if not body else "POST"
            pieces = [body[:3], body[3:]]
            async with Exchange(running.app, path, pieces, method=method, headers=headers) as exchange:
                await exchange.rest()
        assert (f'"{name}"'.encode(), [body]) == (exchange.body, one.bodies + two.bodies)


@pytest.mark.parametrize(
    ("path", "kind"), [("chat/completions", "invalid_request_error"), ("messages", "not_found_error")]
)
async def test_a_model_that_no_upstream_serves_is_404_in_the_words_of_the_api(
    tmp_path: Path, path: str, kind: str
) -> None:
    async with (
        gateway(tmp_path, A, B, default=None) as running,
        Exchange(running.app, f"/ng-rollout/0-0/v1/{path}", b'{"model":"other"}') as exchange,
    ):
        (start, _) = await exchange.rest()
    assert (404, kind) == (start["status"], json.loads(exchange.body)["error"]["type"])
    (record,) = running.records()
    keys = ("error_category", "upstream_attempted", "response_source", "local_response_reason")
    assert ["not_found", False, "local", "model_not_found"] == [record[key] for key in keys]


def test_a_file_names_upstreams_models_and_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "jk")
    (tmp_path / "policy.key").write_text("pk")
    path = tmp_path / "upstreams.yaml"
    path.write_text(
        "default: policy\n"
        "upstreams:\n"
        "  - {name: policy, url: http://127.0.0.1:8000/v1, key_file: policy.key}\n"
        "  - {name: judge, url: https://judge.test, models: [gpt-5], key_env: JUDGE_KEY, key_header: x-api-key}\n"
    )
    upstreams = read_configuration(path).upstreams
    policy, judge = upstreams.all
    assert ("policy", "judge") == (upstreams.of_model("x").name, upstreams.of_model("gpt-5").name)  # type: ignore[union-attr]  # there is a default
    assert policy.key is not None
    assert judge.key is not None
    assert [(b"authorization", b"Bearer pk")] == policy.key.in_place([], policy.key_header)
    assert [(b"x-api-key", b"jk")] == judge.key.in_place([], judge.key_header)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file"),
        ("upstreams: []", "upstreams"),
        ("upstreams: [{name: a}]", "upstreams.0.url"),
        ("upstreams: [{name: a, url: 'http://a', keys: x}]", "upstreams.0.keys"),
        ("upstreams: [{name: a, url: a.test}]", "allowed: an http"),
        ("upstreams: [{name: a, url: 'https://u:p@a.test'}]", "a URL with a user in it"),
        ("upstreams: [{name: a, url: 'https://a.test?k=v'}]", "without query"),
        ("upstreams: [{name: a, url: 'http://a'}, {name: a, url: 'http://b'}]", "two of one name"),
        ("upstreams: [{name: a, url: 'http://a'}]\ndefault: b", "default: got 'b'"),
        ("upstreams: [{name: a, url: 'http://a', key_env: A, key_file: b}]", "one of them"),
        ("upstreams: [{name: a, url: 'http://a', key_header: cookie}]", "key_header"),
        ("{", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "upstreams.yaml").write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_configuration(tmp_path / "upstreams.yaml")
    with pytest.raises(SettingsError, match="cannot be read"):
        read_configuration(tmp_path / "none.yaml")
