"""Where inference engines put exact tokens in their answers.

Source: the staging contract and the cases `vllm-*` and `megatron-*` of its corpus.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

_TOKEN_ID = "token_id:"  # noqa: S105  the engine's spelling of a token as text, no secret
_EXTRAS = ("routed_experts", "media_spans")


class TokenMaterial(NamedTuple):
    """The tokens of one answer.

    Attributes:
        prompt_token_ids: the whole prompt.
        generated_token_ids, generated_logprobs: as many as each other.
        extras: None when the answer has none.
    """

    prompt_token_ids: list[int]
    generated_token_ids: list[int]
    generated_logprobs: list[float]
    extras: dict[str, Any] | None


class CaptureAdapter(Protocol):
    """Knows one engine's requests and answers."""

    def inject_prefix(self, request: dict[str, Any], prefix_token_ids: list[int]) -> dict[str, Any]:
        """The request, with the tokens that its prompt must begin with; the one given is left as it is."""
        ...  # pragma: no cover

    def extract(self, payload: Mapping[str, Any]) -> TokenMaterial:
        """The tokens of an answer.

        Raises:
            ValueError, TypeError, KeyError: they are not there, or not as the engine writes them.
        """
        ...  # pragma: no cover


class VLLMCaptureAdapter:
    """vLLM's Chat Completions, as the RL worker serves them.

    Prompt ids stand at the top of the answer, else in the message of the only choice. Generated tokens are
    `generation_token_ids` with `generation_log_probs` in the message, else `logprobs.content` of the choice with tokens
    spelled `token_id:N`. Numbers may be texts.
    """

    def inject_prefix(self, request: dict[str, Any], prefix_token_ids: list[int]) -> dict[str, Any]:
        """The request with `required_prefix_token_ids`."""
        return {**request, "required_prefix_token_ids": list(prefix_token_ids)}

    def extract(self, payload: Mapping[str, Any]) -> TokenMaterial:
        """The tokens of a chat answer.

        Raises:
            ValueError, TypeError, KeyError: not exactly one choice, or something of it is missing or odd.
        """
        choices = payload["choices"]
        if len(choices) != 1:
            raise ValueError(f"an answer that is staged has one choice, got {len(choices)}")
        choice = choices[0]
        message = choice["message"]
        prompt = payload.get("prompt_token_ids")
        if prompt is None:
            prompt = message["prompt_token_ids"]
        ids, log_probs = self._generation(choice, message)
        return TokenMaterial([int(token) for token in prompt], ids, log_probs, self._extras(payload, choice, message))

    @staticmethod
    def _generation(choice: Mapping[str, Any], message: Mapping[str, Any]) -> tuple[list[int], list[float]]:
        tokens = message.get("generation_token_ids")
        if tokens is not None:
            log_probs = message["generation_log_probs"]
        else:
            found = choice.get("logprobs")
            if not found:
                raise ValueError("the answer has no generated tokens: neither generation_token_ids nor logprobs")
            content = found["content"]
            tokens = [entry["token"] for entry in content]
            log_probs = [entry["logprob"] for entry in content]
        return [_token_id(token) for token in tokens], [float(log_prob) for log_prob in log_probs]

    @staticmethod
    def _extras(
        payload: Mapping[str, Any], choice: Mapping[str, Any], message: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        extras = {}
        for name in _EXTRAS:
            found = next((place[name] for place in (payload, choice, message) if place.get(name) is not None), None)
            if found is not None:
                extras[name] = found
        if not isinstance(extras.get("routed_experts", ""), (str, dict, list)):
            raise TypeError(f"routed_experts is a text, dict or list, got {type(extras['routed_experts']).__name__}")
        spans = extras.get("media_spans", [])
        if not isinstance(spans, list) or not all(isinstance(span, dict) for span in spans):
            raise TypeError("media_spans is a list of objects")
        return extras or None


class MegatronCaptureAdapter:
    """Megatron's answers: three lists at the top, of exact types (log probabilities may be ints)."""

    def inject_prefix(self, request: dict[str, Any], prefix_token_ids: list[int]) -> dict[str, Any]:
        """The request with `required_prefix_token_ids`."""
        return {**request, "required_prefix_token_ids": list(prefix_token_ids)}

    def extract(self, payload: Mapping[str, Any]) -> TokenMaterial:
        """The tokens of an answer.

        Raises:
            TypeError, KeyError: a list is missing, or has an item of another type.
        """
        prompt, generated = (_exact(payload, name, (int,)) for name in ("prompt_token_ids", "generated_token_ids"))
        log_probs = _exact(payload, "generated_log_probs", (int, float))
        return TokenMaterial(prompt, generated, [float(log_prob) for log_prob in log_probs], None)


def _exact(payload: Mapping[str, Any], name: str, allowed: tuple[type, ...]) -> list[Any]:
    values = payload[name]
    if type(values) is not list or any(type(value) not in allowed for value in values):
        raise TypeError(f"{name} is a list of {' or '.join(kind.__name__ for kind in allowed)}")
    return values


def _token_id(token: Any) -> int:
    return int(token.removeprefix(_TOKEN_ID) if isinstance(token, str) else token)
