"""What a call added to its rollout's tokens: ids, mask and log probabilities behind the prefix before it."""

from __future__ import annotations


def build_staging_delta(
    prompt_token_ids: list[int],
    generated_token_ids: list[int],
    generated_log_probs: list[float],
    prev_len: int,
) -> tuple[list[int], list[float], list[float]]:
    """The new tokens of a call: the prompt behind its first `prev_len` ids, then what was generated.

    Args:
        prompt_token_ids: all of the prompt, the prefix of earlier calls included.
        generated_token_ids, generated_log_probs: as many as each other.
        prev_len: tokens of the prompt that earlier calls have staged.

    Returns:
        ids, mask (0.0 prompt, 1.0 generated) and log probabilities (0.0 for the prompt), of the same length.

    Raises:
        ValueError: nothing is new, the prompt is shorter than its prefix, or the lengths differ.
        TypeError: `prev_len` is no int, or ids are no lists.
    """
    if len(generated_token_ids) != len(generated_log_probs):
        raise ValueError(
            f"each generated token has a log probability, got {len(generated_log_probs)} for {len(generated_token_ids)}"
        )
    if not 0 <= prev_len <= len(prompt_token_ids):
        raise ValueError(f"a prompt of {len(prompt_token_ids)} tokens cannot begin with a prefix of {prev_len}")
    carried = prompt_token_ids[prev_len:]
    ids = carried + generated_token_ids
    if not ids:
        raise ValueError("the call has no new tokens: nothing is behind the prefix")
    mask = [0.0] * len(carried) + [1.0] * len(generated_token_ids)
    return ids, mask, [0.0] * len(carried) + list(generated_log_probs)
