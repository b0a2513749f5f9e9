#!/usr/bin/env python3
"""Writes tests/golden/data/update: two iterations of GRPO and of PPO on recorded rollouts (needs `pip install torch`).

An implementation of its own, in float64 with automatic differentiation: a Llama written down from its
definition, losses as whole sums over the batch without any splitting, torch.optim.AdamW. It reads its settings
from the job.yaml files in that folder, so that the test and this script cannot drift apart.
"""
import json
import math
import pathlib
import re
import struct

import torch

torch.set_default_dtype(torch.float64)
ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests/golden/data/update"
VOCABULARY, WIDTH, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 12, 8, 12, 2, 2, 1, 4
EPS, THETA = 1e-5, 10000.0
SAMPLES, LONGEST, ITERATIONS = 3, 5, 2
PROMPTS = ["3=", "14=", "159=", "26=", "53589="]
random = torch.Generator().manual_seed(20261129)


def normal(*shape):
    return torch.randn(*shape, generator=random)


def float32(x):
    return x.to(torch.float32).to(torch.float64)


def random_model(head):
    weights = {"model.embed_tokens.weight": normal(VOCABULARY, WIDTH)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        kv = KV_HEADS * HEAD_DIM
        for name, shape in [("self_attn.q_proj", (HEADS * HEAD_DIM, WIDTH)), ("self_attn.k_proj", (kv, WIDTH)),
                            ("self_attn.v_proj", (kv, WIDTH)), ("self_attn.o_proj", (WIDTH, HEADS * HEAD_DIM)),
                            ("mlp.gate_proj", (FFN, WIDTH)), ("mlp.up_proj", (FFN, WIDTH)),
                            ("mlp.down_proj", (WIDTH, FFN))]:
            weights[at + name + ".weight"] = 0.5 * normal(*shape)
        for name in ["input_layernorm", "post_attention_layernorm"]:
            weights[at + name + ".weight"] = 1.0 + 0.1 * normal(WIDTH)
    weights["model.norm.weight"] = 1.0 + 0.1 * normal(WIDTH)
    weights[head] = 0.5 * normal(VOCABULARY if head == "lm_head.weight" else 1, WIDTH)
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


class Job:
    """The settings of job.yaml that matter here."""

    def __init__(self, name):
        text = (TARGET / name / "job.yaml").read_text()
        self.name = name
        self.text = re.sub(r"#.*", "", text)

    def __getitem__(self, key):
        key, scope = {"actor_rate": ("actor", "learning_rate"), "critic_rate": ("critic", "learning_rate")}.get(
            key, (key, ""))
        found = re.search(rf"\b{key}: *([^,}}\n]+)", self.text[self.text.index(scope):]).group(1).strip()
        try:
            return float(found)
        except ValueError:
            return found


def rate_factor(job, k):
    warmup, total = job["warmup"], job["iterations"]
    if k < warmup:
        return (k + 1) / warmup
    done = (k - warmup) / (total - warmup)
    return {"linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}[job["kind"]]


def make_optimizer(weights, job, rate):
    betas = tuple(float(b) for b in re.search(r"betas: \[([^\]]+)\]", job.text).group(1).split(","))
    return torch.optim.AdamW(list(weights.values()), lr=rate, betas=betas, eps=job["eps"],
                             weight_decay=job["weight_decay"])


def update(loss, weights, optimizer, job, rate):
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), math.inf)
    for w in weights.values():
        w.grad *= min(1.0, job["grad_clip"] / float(norm))
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    return float(norm)


def clipped_surrogate(job, ratio, advantage):
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp(1 - job["clip_low"], 1 + job["clip_high"])
    loss = torch.maximum(plain, bounded)
    capped = torch.minimum(loss, -advantage * job["dual_clip"]) if job["dual_clip"] else loss
    return torch.where(advantage < 0, capped, loss), (bounded > plain).sum()


def grpo_advantages(rows):
    rewards = torch.tensor([r["reward"] for r in rows]).view(-1, SAMPLES)
    centred = rewards - rewards.mean(1, keepdim=True)
    scaled = centred / (rewards.std(1, keepdim=True) + 1e-6)
    return [a.expand(len(r["tokens"])) for a, r in zip(scaled.reshape(-1), rows)]


def ppo_advantages(job, rows):
    advantages, returns = [], []
    for r in rows:
        reward = -job["kl_coef"] * kl(job["kl_estimator"], r["old"], r["ref"])
        reward[-1] += r["reward"]
        estimate = torch.zeros(len(reward))
        following, value_after = 0.0, 0.0
        for t in reversed(range(len(reward))):
            delta = reward[t] + job["gamma"] * value_after - r["value"][t]
            following = delta + job["gamma"] * job["lambda"] * following
            value_after = r["value"][t]
            estimate[t] = following
        advantages.append(estimate)
        returns.append(estimate + r["value"])
    everything = torch.cat(advantages)
    mean, deviation = everything.mean(), torch.sqrt(everything.var() + 1e-8)
    return [(a - mean) / deviation for a in advantages], returns


def policy_terms(job, actor, batch):
    """Loss of a mini-batch, and its per-token numbers for the metrics."""
    logps, entropies, losses, clipped = [], [], [], 0
    for r in batch:
        logp, entropy = scores(actor, r["prompt_tokens"], r["tokens"], job["temperature"])
        loss, count = clipped_surrogate(job, torch.exp(logp - r["old"]), r["advantage"])
        if job.name == "grpo":
            loss = loss + job["kl_coef"] * kl(job["kl_estimator"], logp, r["ref"])
        losses.append(loss - job["entropy_coef"] * entropy)
        logps.append(logp.detach())
        entropies.append(entropy.detach())
        clipped += int(count)
    if job["loss"] == "token_mean":
        loss = torch.cat(losses).mean()
    else:
        loss = torch.stack([l.mean() for l in losses]).mean()
    return loss, torch.cat(logps), torch.cat(entropies), clipped


def value_terms(job, critic, batch):
    losses = []
    for r in batch:
        v = values(critic, r["prompt_tokens"], r["tokens"])
        bounded = torch.clamp(v, r["value"] - job["value_clip"], r["value"] + job["value_clip"])
        losses.append(0.5 * torch.maximum((v - r["return"])**2, (bounded - r["return"])**2))
    return torch.cat(losses).mean()


def mini_batches(rows, count):
    size, larger = divmod(len(rows), count)
    begin = 0
    for j in range(count):
        end = begin + size + (j < larger)
        yield rows[begin:end]
        begin = end


def run_iteration(job, k, rows, models, optimizers):
    actor, critic = models["actor"], models.get("critic")
    factor = rate_factor(job, k)
    old, ref = (torch.cat([r[name] for r in rows]) for name in ("old", "ref"))
    losses, norms, value_losses, value_norms, clipped, tokens = [], [], [], [], 0, 0
    first_old, first_new, entropies = [], [], []
    for epoch in range(int(job["epochs"])):
        for j, batch in enumerate(mini_batches(rows, int(job["minibatches"]))):
            loss, logp, entropy, count = policy_terms(job, actor, batch)
            behaviour = torch.cat([r["old"] for r in batch])
            if epoch == 0:
                first_old.append(behaviour)
                first_new.append(logp)
                entropies.append(entropy)
                if j == 0:
                    mismatch = (logp - behaviour).abs()
            clipped, tokens = clipped + count, tokens + len(logp)
            losses.append(float(loss))
            norms.append(update(loss, actor, optimizers["actor"], job, job["actor_rate"] * factor))
            if critic:
                value = value_terms(job, critic, batch)
                value_losses.append(float(value))
                value_norms.append(update(value, critic, optimizers["critic"], job, job["critic_rate"] * factor))
    mean = lambda x: float(sum(x) / len(x))
    rewards = torch.tensor([r["reward"] for r in rows])
    return {
        "iteration": k, "reward_mean": float(rewards.mean()), "reward_std": float(rewards.std(unbiased=False)),
        "response_tokens_mean": mean([len(r["tokens"]) for r in rows]),
        "stopped_share": mean([float(r["stopped"]) for r in rows]), "policy_loss": mean(losses),
        "value_loss": mean(value_losses) if critic else None,
        "kl_reference": float(kl(job["kl_estimator"], old, ref).mean()),
        "kl_old": float((torch.cat(first_old) - torch.cat(first_new)).mean()), "clip_fraction": clipped / tokens,
        "entropy": float(torch.cat(entropies).mean()), "gradient_norm_actor": mean(norms),
        "gradient_norm_critic": mean(value_norms) if critic else None,
        "learning_rate": job["actor_rate"] * factor, "mismatch_mean": float(mismatch.mean()),
        "mismatch_max": float(mismatch.max())}


def record_rollouts(job, k, actor):
    rows = []
    for p, prompt in enumerate(PROMPTS):
        tokens = [10 if c == "=" else int(c) for c in prompt]
        for s in range(SAMPLES):
            response, old = sample(actor, tokens, job["temperature"])
            # The second group is all equal: no advantage.
            reward = 0.25 if p == 1 else float(torch.randint(0, 5, (1,), generator=random)) / 4
            rows.append({"iteration": k, "prompt": p, "sample": s, "dataset_index": p, "version": k,
                         "reward": reward, "stopped": len(response) < LONGEST, "tokens": response, "old": old,
                         "prompt_tokens": tokens})
    return rows


def rollout_line(row):
    line = {key: row[key] for key in ["iteration", "prompt", "sample", "dataset_index", "version", "reward",
                                      "stopped", "tokens"]}
    return json.dumps(line | {"logprobs": row["old"].tolist(), "text": ""}) + "\n"


def train(job, initial):
    copy = lambda model: {name: w.clone().requires_grad_() for name, w in model.items()}
    models = {"actor": copy(initial["actor"])}
    optimizers = {"actor": make_optimizer(models["actor"], job, job["actor_rate"])}
    if job.name == "ppo":
        models["critic"] = copy(initial["critic"])
        optimizers["critic"] = make_optimizer(models["critic"], job, job["critic_rate"])
    lines, metrics = "", []
    for k in range(ITERATIONS):
        rows = record_rollouts(job, k, models["actor"])
        for r in rows:
            r["ref"] = scores(initial["reference"], r["prompt_tokens"], r["tokens"], job["temperature"])[0]
            if job.name == "ppo":
                r["value"] = values(models["critic"], r["prompt_tokens"], r["tokens"]).detach()
        if job.name == "ppo":
            advantages, returns = ppo_advantages(job, rows)
            for r, target in zip(rows, returns):
                r["return"] = target
        else:
            advantages = grpo_advantages(rows)
        for r, advantage in zip(rows, advantages):
            r["advantage"] = advantage
        metrics.append(run_iteration(job, k, rows, models, optimizers))
        lines += "".join(rollout_line(r) for r in rows)
    (TARGET / job.name / "rollouts.jsonl").write_text(lines)
    (TARGET / job.name / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
    for role, model in models.items():
        write_model(TARGET / job.name / role, model)


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


def main():
    actor = random_model("lm_head.weight")
    initial = {"actor": actor, "critic": random_model("score.weight"),
               "reference": {name: float32(w + 0.05 * normal(*w.shape)) for name, w in actor.items()}}
    for role, model in initial.items():
        write_model(TARGET / role, model)
        write_shape(TARGET / role)
    tokenizer = (ROOT / "configs/demo/copy/model/tokenizer.json").read_text()
    (TARGET / "actor/tokenizer.json").write_text(tokenizer)
    (TARGET / "prompts.jsonl").write_text(
        "".join(json.dumps({"prompt": prompt, "answer": prompt[:-1]}) + "\n" for prompt in PROMPTS))
    for name in ["grpo", "ppo"]:
        train(Job(name), initial)


main()
