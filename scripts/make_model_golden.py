#!/usr/bin/env python3
"""Writes tests/golden/data/models: tiny random models of every family as the transformers package saves them, with the
logits and log-probabilities that it computes in float64 (needs `pip install torch transformers`; written with 5.24)."""
import json
import pathlib
import shutil

import torch
import transformers as hf

TARGET = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/data/models"
TEMPERATURE = 0.7
SHAPE = dict(vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3)
# Wavelengths of theta 500 and 4 pairs are 6, 30, 141 and 665: one below 64 / 4, one between, two above 64 / 1.
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)


def cases():
    yield "llama3_scaling", hf.LlamaForCausalLM(hf.LlamaConfig(
        **SHAPE, rope_parameters=LLAMA3, rms_norm_eps=1e-5)), {}
    yield "linear_scaling", hf.LlamaForCausalLM(hf.LlamaConfig(
        **SHAPE, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0), tie_word_embeddings=True)), {}
    yield "qwen2", hf.Qwen2ForCausalLM(hf.Qwen2Config(**SHAPE, tie_word_embeddings=True)), {}
    # A head's width that is not hidden_size / num_attention_heads.
    yield "qwen3", hf.Qwen3ForCausalLM(hf.Qwen3Config(**SHAPE, head_dim=16)), {}
    yield "mistral_bf16_shards", hf.MistralForCausalLM(hf.MistralConfig(
        **SHAPE, head_dim=8, sliding_window=48)), dict(dtype=torch.bfloat16, max_shard_size="20KB")
    yield "qwen2_classifier", hf.Qwen2ForSequenceClassification(hf.Qwen2Config(**SHAPE, num_labels=1)), {}


def golden(model, ids):
    hidden = model.model(input_ids=ids).last_hidden_state[0]
    if hasattr(model, "score"):
        return {"values": model.score(hidden)[:, 0].tolist()}
    logits = model(input_ids=ids).logits[0]
    logprobs = torch.log_softmax(logits / TEMPERATURE, -1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    chosen = logprobs[:-1].gather(-1, ids[0, 1:, None])[:, 0]
    return {"logprobs": [0.0] + chosen.tolist(), "entropies": [0.0] + entropy[:-1].tolist(),
            "last_logits": logits[-1].tolist()}


def main():
    torch.manual_seed(20261130)
    shutil.rmtree(TARGET, ignore_errors=True)
    for name, model, saving in cases():
        with torch.no_grad():
            for parameter in model.parameters():  # norms and biases start at constants
                parameter += 0.1 * torch.randn_like(parameter)
        model = model.to(saving.get("dtype", torch.float32))
        model.save_pretrained(TARGET / name, **{k: v for k, v in saving.items() if k != "dtype"})
        ids = torch.randint(0, SHAPE["vocab_size"], (1, 40))
        with torch.no_grad():
            # Read again: a cast of the model would have rounded its rotary frequencies too.
            result = golden(type(model).from_pretrained(TARGET / name, dtype=torch.float64).eval(), ids)
        result = {"ids": ids[0].tolist(), "temperature": TEMPERATURE, **result}
        (TARGET / name / "golden.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
