#!/usr/bin/env python3
"""Writes tests/golden/data/update (needs `pip install torch`).

grpo, ppo: two iterations of two passes over three mini-batches, on recorded rollouts.
three/grpo, three/ppo, three/dpo: three updates at learning rate 1e-3, each on a batch of its own, with the gradient
of every update and the change of the weights.

An implementation of its own, in float64 with automatic differentiation: the model is golden_model.py, the losses
are golden_algorithms.py, the optimizer is torch.optim.AdamW.
"""
import json

import torch

from golden_algorithms import (Job, dpo_terms, grpo_advantages, make_optimizer, mini_batches, policy_terms,
                               ppo_advantages, rate_factor, update, value_terms)
from golden_model import (LONGEST, ROOT, SAMPLES, TARGET, float32, kl, normal, random, random_model, sample, scores,
                          values, write_model, write_shape)

PROMPTS = ["3=", "14=", "159=", "26=", "53589="]


def run_iteration(job, k, rows, models, optimizers, gradients):
    """Trains on one batch and returns its metrics; appends (role, gradient) of every optimizer step."""
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
            norm, gradient = update(loss, actor, optimizers["actor"], job, job["actor_rate"] * factor)
            norms.append(norm)
            gradients.append(("actor", gradient))
            if critic:
                value = value_terms(job, critic, batch)
                value_losses.append(float(value))
                norm, gradient = update(value, critic, optimizers["critic"], job, job["critic_rate"] * factor)
                value_norms.append(norm)
                gradients.append(("critic", gradient))
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


def copy_of(model):
    return {name: w.clone().requires_grad_() for name, w in model.items()}


def train(folder, initial, iterations):
    """Records rollouts and metrics; returns the trained models and the gradients of every iteration."""
    job = Job(folder)
    models = {"actor": copy_of(initial["actor"])}
    optimizers = {"actor": make_optimizer(models["actor"], job, job["actor_rate"])}
    if job.name == "ppo":
        models["critic"] = copy_of(initial["critic"])
        optimizers["critic"] = make_optimizer(models["critic"], job, job["critic_rate"])
    lines, metrics, gradients = "", [], []
    for k in range(iterations):
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
        gradients.append([])
        metrics.append(run_iteration(job, k, rows, models, optimizers, gradients[-1]))
        lines += "".join(rollout_line(r) for r in rows)
    (folder / "rollouts.jsonl").write_text(lines)
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
    return models, gradients


def write_steps(folder, initial, models, gradients):
    """The gradient of every update before clipping, and by how much all updates together moved the weights."""
    for k, steps in enumerate(gradients):
        for role, gradient in steps:
            write_model(folder / f"gradient_{k}" / role, gradient)
    for role, model in models.items():
        write_model(folder / "change" / role, {name: w - initial[role][name] for name, w in model.items()})


def record_pairs(actor):
    rows = []
    for prompt in PROMPTS:
        tokens = [10 if c == "=" else int(c) for c in prompt]
        chosen, rejected = sample(actor, tokens, 1.0)[0], sample(actor, tokens, 1.0)[0]
        rows.append({"prompt": tokens, "chosen": chosen, "rejected": rejected})
    return rows


def train_dpo(folder, initial, updates):
    """DPO on recorded pairs, one batch an update."""
    job = Job(folder)
    actor = copy_of(initial["actor"])
    optimizer = make_optimizer(actor, job, job["actor_rate"])
    records, gradients = [], []
    for k in range(updates):
        pairs = record_pairs(actor)
        loss, terms = dpo_terms(job, actor, initial["reference"], pairs)
        norm, gradient = update(loss, actor, optimizer, job, job["actor_rate"] * rate_factor(job, k))
        gradients.append([("actor", gradient)])
        records.append({"pairs": pairs, "loss": float(loss), "gradient_norm": norm} | terms)
    (folder / "updates.json").write_text("[\n" + ",\n".join(json.dumps(r) for r in records) + "]\n")
    return {"actor": actor}, gradients


def write_initial(folder, scale):
    """Actor, critic and a reference that differs from the actor."""
    actor = random_model("lm_head.weight", scale)
    initial = {"actor": actor, "critic": random_model("score.weight", scale),
               "reference": {name: float32(w + 0.05 * normal(*w.shape)) for name, w in actor.items()}}
    for role, model in initial.items():
        write_model(folder / role, model)
        write_shape(folder / role)
    tokenizer = (ROOT / "configs/demo/copy/model/tokenizer.json").read_text()
    (folder / "actor/tokenizer.json").write_text(tokenizer)
    return initial


def main():
    random.manual_seed(20261129)
    initial = write_initial(TARGET, 0.5)
    (TARGET / "prompts.jsonl").write_text(
        "".join(json.dumps({"prompt": prompt, "answer": prompt[:-1]}) + "\n" for prompt in PROMPTS))
    for name in ["grpo", "ppo"]:
        models, _ = train(TARGET / name, initial, 2)
        for role, model in models.items():
            write_model(TARGET / name / role, model)
    random.manual_seed(20261130)
    # Gradients are compared to five digits, so the model must not amplify rounding: smaller weights.
    initial = write_initial(TARGET / "three", 0.25)
    for name in ["grpo", "ppo", "dpo"]:
        folder = TARGET / "three" / name
        models, gradients = (train_dpo if name == "dpo" else train)(folder, initial, 3)
        write_steps(folder, initial, models, gradients)


main()
