"""A tiny Llama written down from its definition, in float64, for the recorded answers of tests/golden.

Weights are dictionaries by Hugging Face name. Needs `pip install torch`.
"""
import json
import math
import pathlib
import struct

import torch

torch.set_default_dtype(torch.float64)
ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests/golden/data/update"
VOCABULARY, WIDTH, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 12, 8, 12, 2, 2, 1, 4
EPS, THETA = 1e-5, 10000.0
SAMPLES, LONGEST = 3, 5
random = torch.Generator()  # every file of answers seeds it


def normal(*shape):
    return torch.randn(*shape, generator=random)


def float32(x):
    return x.to(torch.float32).to(torch.float64)


def random_model(head, scale=0.5):
    weights = {"model.embed_tokens.weight": normal(VOCABULARY, WIDTH)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        kv = KV_HEADS * HEAD_DIM
        for name, shape in [("self_attn.q_proj", (HEADS * HEAD_DIM, WIDTH)), ("self_attn.k_proj", (kv, WIDTH)),
                            ("self_attn.v_proj", (kv, WIDTH)), ("self_attn.o_proj", (WIDTH, HEADS * HEAD_DIM)),
                            ("mlp.gate_proj", (FFN, WIDTH)), ("mlp.up_proj", (FFN, WIDTH)),
                            ("mlp.down_proj", (WIDTH, FFN))]:
            weights[at + name + ".weight"] = scale * normal(*shape)
        for name in ["input_layernorm", "post_attention_layernorm"]:
            weights[at + name + ".weight"] = 1.0 + 0.1 * normal(WIDTH)
    weights["model.norm.weight"] = 1.0 + 0.1 * normal(WIDTH)
    weights[head] = scale * normal(VOCABULARY if head == "lm_head.weight" else 1, WIDTH)
    return {name: float32(w) for name, w in weights.items()}


def rms_norm(x, weight):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def rotate(x):  # (T, heads, d): pairs (i, i + d/2)
    frequency = THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angle = torch.arange(x.shape[0])[:, None] * frequency[None, :]
    cosine, sine = torch.cos(angle)[:, None, :], torch.sin(angle)[:, None, :]
    a, b = x[..., :HEAD_DIM // 2], x[..., HEAD_DIM // 2:]
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


def head_outputs(weights, head, tokens):  # (T, V) logits or (T, 1) values
    x = weights["model.embed_tokens.weight"][tokens]
    count = len(tokens)
    mask = torch.full((count, count), -math.inf).triu(1)
    for i in range(LAYERS):
        w = {name: weights[f"model.layers.{i}.{name}.weight"] for name in
             ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
              "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm"]}
        h = rms_norm(x, w["input_layernorm"])
        q = rotate((h @ w["self_attn.q_proj"].T).view(count, HEADS, HEAD_DIM))
        k = rotate((h @ w["self_attn.k_proj"].T).view(count, KV_HEADS, HEAD_DIM))
        v = (h @ w["self_attn.v_proj"].T).view(count, KV_HEADS, HEAD_DIM)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        score = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(HEAD_DIM) + mask
        attended = torch.einsum("hqk,khd->qhd", torch.softmax(score, -1), v).reshape(count, -1)
        x = x + attended @ w["self_attn.o_proj"].T
        h = rms_norm(x, w["post_attention_layernorm"])
        gate = torch.nn.functional.silu(h @ w["mlp.gate_proj"].T)
        x = x + (gate * (h @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
    return rms_norm(x, weights["model.norm.weight"]) @ weights[head].T


def scores(weights, prompt, response, temperature):
    """Log-probability and entropy at every response token."""
    logits = head_outputs(weights, "lm_head.weight", torch.tensor(prompt + response))
    logp = torch.log_softmax(logits[len(prompt) - 1:-1] / temperature, -1)
    return logp[torch.arange(len(response)), torch.tensor(response)], -(logp.exp() * logp).sum(-1)


def values(weights, prompt, response):
    outputs = head_outputs(weights, "score.weight", torch.tensor(prompt + response))
    return outputs[len(prompt) - 1:-1, 0]


def kl(kind, logp, ref):
    x = logp - ref
    return {"k1": x, "k2": x * x / 2, "k3": torch.exp(-x) + x - 1}[kind]


def sample(weights, prompt, temperature):
    """A response with its log-probabilities, which are then shifted a little so that ratios get clipped."""
    length = int(torch.randint(1, LONGEST + 1, (1,), generator=random))
    response = []
    for _ in range(length):
        logits = head_outputs(weights, "lm_head.weight", torch.tensor(prompt + response))[-1]
        response.append(int(torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=random)))
    logp = scores(weights, prompt, response, temperature)[0].detach()
    return response, float32(logp + 0.15 * normal(length))


def write_model(folder, weights):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(weights):
        flat = weights[name].detach().flatten().tolist()
        raw = struct.pack(f"<{len(flat)}f", *flat)
        header[name] = {"dtype": "F32", "shape": list(weights[name].shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_shape(folder):
    config = json.loads((ROOT / "configs/demo/copy/model/config.json").read_text())
    config |= {"hidden_size": WIDTH, "intermediate_size": FFN, "head_dim": HEAD_DIM, "num_attention_heads": HEADS,
               "num_key_value_heads": KV_HEADS, "num_hidden_layers": LAYERS, "max_position_embeddings": 16,
               "rms_norm_eps": EPS, "rope_theta": THETA, "vocab_size": VOCABULARY}
    (folder / "config.json").write_text(json.dumps(config) + "\n")
