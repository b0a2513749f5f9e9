"""GRPO, PPO and DPO as whole sums over a batch, without any splitting, with automatic differentiation.

Settings come from the job.yaml files beside the recorded answers, so that tests and answers cannot drift apart.
"""
import math
import re

import torch

from golden_model import SAMPLES, kl, scores, values


class Job:
    """The settings of job.yaml that matter here."""

    def __init__(self, folder):
        text = (folder / "job.yaml").read_text()
        self.name = folder.name
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
    return {"constant": 1.0, "linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}[job["kind"]]


def make_optimizer(weights, job, rate):
    betas = tuple(float(b) for b in re.search(r"betas: \[([^\]]+)\]", job.text).group(1).split(","))
    return torch.optim.AdamW(list(weights.values()), lr=rate, betas=betas, eps=job["eps"],
                             weight_decay=job["weight_decay"])


def update(loss, weights, optimizer, job, rate):
    """One optimizer step; returns the norm of the gradient before clipping, and the gradient."""
    optimizer.zero_grad()
    loss.backward()
    gradient = {name: w.grad.clone() for name, w in weights.items()}
    norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), math.inf)
    for w in weights.values():
        w.grad *= min(1.0, job["grad_clip"] / float(norm))
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    return float(norm), gradient


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


def dpo_terms(job, actor, reference, pairs):
    """Loss of a batch of pairs, and its sums for the metrics."""
    rewards = {}
    for side in ["chosen", "rejected"]:
        rewards[side] = job["beta"] * torch.stack([
            scores(actor, r["prompt"], r[side], 1.0)[0].sum() -
            scores(reference, r["prompt"], r[side], 1.0)[0].sum().detach() for r in pairs])
    margin = rewards["chosen"] - rewards["rejected"]
    log_sigmoid = torch.nn.functional.logsigmoid
    smoothing = job["label_smoothing"]
    loss = (-(1 - smoothing) * log_sigmoid(margin) - smoothing * log_sigmoid(-margin)).mean()
    return loss, {"margin_sum": float(margin.sum()), "accurate_pairs": int((margin > 0).sum()),
                  "chosen_reward_sum": float(rewards["chosen"].sum()),
                  "rejected_reward_sum": float(rewards["rejected"].sum())}
