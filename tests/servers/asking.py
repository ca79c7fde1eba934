"""One call of a real SDK to a model server that wants a key."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic import Anthropic
from openai import OpenAI

ROOT = Path(__file__).resolve().parents[2]
HI: Any = [{"role": "user", "content": "hi"}]
TOKENS = 8
SECONDS_TO_START = 240.0
"""Of a server that imports some GB, for the first time perhaps."""

Ask = Callable[[str, str, str, bool], None]
"""Base URL of a rollout without the API's version, key, model, whether to ask for a stream."""

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


def chat(url: str, key: str, model: str, streamed: bool) -> None:
    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        if not streamed:
            client.chat.completions.create(model=model, messages=HI, max_tokens=TOKENS)
            return
        for _ in client.chat.completions.create(model=model, messages=HI, max_tokens=TOKENS, stream=True):
            pass


def responses(url: str, key: str, model: str, streamed: bool) -> None:
    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        if not streamed:
            client.responses.create(model=model, input="hi", max_output_tokens=TOKENS)
            return
        for _ in client.responses.create(model=model, input="hi", max_output_tokens=TOKENS, stream=True):
            pass


def messages(url: str, key: str, model: str, streamed: bool) -> None:
    with Anthropic(base_url=url, auth_token=key, api_key=None, max_retries=0) as client:
        if not streamed:
            client.messages.create(model=model, messages=HI, max_tokens=TOKENS)
            return
        for _ in client.messages.create(model=model, messages=HI, max_tokens=TOKENS, stream=True):
            pass


ASK: dict[str, Ask] = {"chat": chat, "messages": messages, "responses": responses}


def status(url: str, dialect: str, headers: dict[str, str] | None = None, **body: Any) -> int:
    """What a call that no SDK would send is answered."""
    return httpx.post(url + PATHS[dialect], headers=headers, json=body, timeout=60, trust_env=False).status_code


def program(environment: str, name: str) -> str:
    """A program of a server's environment; the test is left out where that is not made."""
    path = ROOT / ".services" / environment / "bin" / name
    if not path.exists():
        how = {"litellm": "make test-litellm", "vllm": "make test-vllm", "sglang": "see tests/servers/test_sglang.py"}
        pytest.skip(f"{environment} is not installed: {how.get(environment, 'make test-servers')}")
    return str(path)


def outside(**variables: str) -> dict[str, str]:
    """Variables for a server in an environment of its own: nothing of ours, nothing from the network."""
    return {
        "PYTHONPATH": "",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PATH": os.environ["PATH"],
        **variables,
    }
