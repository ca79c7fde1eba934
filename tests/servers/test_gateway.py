"""`otel-gym gateway` in front of servers that nobody touched: LiteLLM's proxy, and `transformers serve`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.gateway.test_process import Served as Gateway
from tests.gateway.test_process import serving
from tests.servers.asking import HI, TOKENS, status
from tests.servers.processes import Served, wait_until
from tests.servers.test_litellm import KEY, proxying
from tests.servers.test_sdks import substance
from tests.servers.test_transformers import make_model, transformers

pytestmark = pytest.mark.servers

SDK: dict[str, Any] = {"api_key": "none", "max_retries": 0}
"""The gateway has the upstream's key, its clients have none."""


@pytest.fixture(scope="module")
def before_litellm(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    directory = tmp_path_factory.mktemp("before-litellm")
    with (
        proxying(directory, served.ports["h11-sdk"]) as upstream,
        serving(
            directory,
            f"http://127.0.0.1:{upstream}/v1",
            "--key-env",
            "LITELLM_KEY",
            upstream=upstream,
            variables={"LITELLM_KEY": KEY},
        ) as gateway,
    ):
        yield gateway


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def before_transformers(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    directory = tmp_path_factory.mktemp("before-transformers")
    with (
        transformers(directory, model) as upstream,
        serving(directory, f"http://127.0.0.1:{upstream}", upstream=upstream) as gateway,
    ):
        yield gateway


# ---------------------------------------------------------------- what an SDK has in the end


def chat(url: str, model: str, streamed: bool) -> Any:
    asked: dict[str, Any] = {"model": model, "messages": HI, "max_tokens": TOKENS}
    with OpenAI(base_url=f"{url}/v1", **SDK) as client:
        if not streamed:
            return client.chat.completions.create(**asked).to_dict()
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            stream.until_done()
            # An answer cut by its token limit is an error of `get_final_completion`, not of this.
            return stream.current_completion_snapshot.to_dict()


def messages(url: str, model: str, streamed: bool) -> Any:
    asked: dict[str, Any] = {"model": model, "messages": HI, "max_tokens": TOKENS}
    with Anthropic(base_url=url, **SDK) as client:
        if not streamed:
            return client.messages.create(**asked).to_dict()
        with client.messages.stream(**asked) as stream:
            return stream.get_final_message().to_dict()


def responses(url: str, model: str, streamed: bool) -> Any:
    asked: dict[str, Any] = {"model": model, "input": "hi", "max_output_tokens": TOKENS}
    with OpenAI(base_url=f"{url}/v1", **SDK) as client:
        if not streamed:
            return client.responses.create(**asked, stream=False).to_dict()
        with client.responses.stream(**asked) as stream:
            return stream.get_final_response().to_dict()


GOT: dict[str, Callable[[str, str, bool], Any]] = {"chat": chat, "messages": messages, "responses": responses}

ANSWER = {"chat": "choices", "messages": "content", "responses": "output"}


def one_record(gateway: Gateway, rollout_id: str) -> dict[str, Any]:
    wait_until(lambda: bool(gateway.records(rollout_id)))  # an answer without a terminal event waits for none
    (record,) = gateway.records(rollout_id)
    return record


def outcome(record: dict[str, Any]) -> list[Any]:
    keys = ("upstream_attempted", "response_source", "upstream_status_code", "local_response_reason")
    return [record[key] for key in keys]


@pytest.mark.litellm
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("dialect", "model_name"),
    [("chat", "scripted"), ("messages", "claude"), ("messages", "scripted"), ("responses", "scripted")],
)
def test_before_litellm_the_record_has_what_the_sdk_got(
    before_litellm: Gateway, rollout_id: str, dialect: str, model_name: str, streamed: bool
) -> None:
    got = GOT[dialect](before_litellm.url(rollout_id), model_name, streamed)
    record = one_record(before_litellm, rollout_id)
    assert (dialect, 200, None) == (record["dialect"], record["status_code"], record["error_category"])
    assert (model_name, streamed) == (record["request"]["model"], record["request"].get("stream", False))
    assert substance(got) == substance(record["response"])
    assert got[ANSWER[dialect]]
    assert [True, "upstream", 200, None] == outcome(record)


@pytest.mark.litellm
def test_litellms_refusals_are_the_upstreams(before_litellm: Gateway, rollout_id: str) -> None:
    url = before_litellm.url(rollout_id)
    assert 400 == status(url, "chat", model="no-such-model", messages=HI)
    record = one_record(before_litellm, rollout_id)
    assert (400, "client_error") == (record["status_code"], record["error_category"])
    assert [True, "upstream", 400, None] == outcome(record)


@pytest.mark.transformers
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_before_transformers_the_record_has_what_the_sdk_got(
    before_transformers: Gateway, model: str, rollout_id: str, dialect: str, streamed: bool
) -> None:
    got = GOT[dialect](before_transformers.url(rollout_id), model, streamed)
    record = one_record(before_transformers, rollout_id)
    assert (dialect, 200, model) == (record["dialect"], record["status_code"], record["request"]["model"])
    # Its chat streams end without [DONE]: truncated, by the format's rule; nothing of them is lost.
    assert ("stream_truncated" if dialect == "chat" and streamed else None) == record["error_category"]
    assert substance(got) == substance(record["response"])
    assert got[ANSWER[dialect]]
    assert [True, "upstream", 200, None] == outcome(record)


@pytest.mark.transformers
def test_the_stream_that_nobody_asked_transformers_for_is_recorded_as_the_text_it_is(
    before_transformers: Gateway, model: str, rollout_id: str
) -> None:
    with OpenAI(base_url=f"{before_transformers.url(rollout_id)}/v1", **SDK) as client:
        got: Any = client.responses.create(model=model, input="hi", max_output_tokens=TOKENS)
    record = one_record(before_transformers, rollout_id)
    assert (got, None) == (record["response_raw"], record["error_category"])
    assert [True, "upstream", 200, None] == outcome(record)


@pytest.mark.transformers
def test_an_api_that_transformers_does_not_serve_is_its_404(before_transformers: Gateway, rollout_id: str) -> None:
    assert 404 == status(before_transformers.url(rollout_id), "messages", model="m", messages=[], max_tokens=8)
    record = one_record(before_transformers, rollout_id)
    assert (404, "not_found") == (record["status_code"], record["error_category"])
    assert [True, "upstream", 404, None] == outcome(record)
