"""Make a tiny random model that real model servers can load: `python make_tiny_model.py DIRECTORY`, with transformers.

A Llama of two layers and a byte-level BPE, trained on the spot; what it says is noise, in the form that each API has.
No project's code is imported: the servers' environments have none of the tests' libraries.
"""

from __future__ import annotations

import sys

TEMPLATE = """{% for message in messages %}<|{{ message['role'] }}|>{% if message['content'] is string %}{{
 message['content'] }}{% else %}{% for part in message['content'] or [] %}{{ part['text'] }}{% endfor %}{% endif %}
<|end|>{% endfor %}{% if tools %}<|tools|>{{ tools | tojson }}<|end|>{% endif %}{% if add_generation_prompt %}
<|assistant|>{% endif %}"""
CORPUS = ["the quick brown fox jumps over the lazy dog", "a rollout is a run of an agent in an environment"] * 50


def make(directory: str) -> None:
    """Write config, weights and tokenizer: some 300 KB."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>", "<|tools|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # a head of 32: the least that vLLM takes on a CPU
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
        pad_token_id=fast.pad_token_id,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)


if __name__ == "__main__":
    make(sys.argv[1])
