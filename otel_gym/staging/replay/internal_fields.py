"""What a worker's answer tells the model server only: coordinates and tokens. None of it reaches a client."""

from __future__ import annotations

from typing import Any, Final

COMMIT_COORDS: Final = "ng_commit_coords"

INTERNAL_FIELDS: Final = frozenset(
    {
        COMMIT_COORDS,
        "compact_prompt_token_ids",
        "generation_log_probs",
        "generation_token_ids",
        "logprobs",
        "media_spans",
        "prompt_logprobs",
        "prompt_token_ids",
        "required_prefix_token_ids",
        "routed_experts",
        "token_ids",
    }
)


def without_internal_fields(answer: Any) -> Any:
    """The answer without them, wherever they stand; what is given is not changed. A text may say what it likes."""
    if isinstance(answer, dict):
        return {key: without_internal_fields(value) for key, value in answer.items() if key not in INTERNAL_FIELDS}
    if isinstance(answer, list):
        return [without_internal_fields(item) for item in answer]
    return answer
