#!/usr/bin/env python3
"""What fusion, staleness, sharing and tracing change, on real processes.

    tests/bench/rewrites_bench.py --bin build/dev/bin --out DIR --rounds 9

Every round runs each job of rpeg_bench_rewrites_jobs once, in turn forwards and backwards, so that whatever else
the machine does meets all of them. A run's time is the mean over its iterations after the first. Two ratios are
printed: the median (least, greatest) over rounds of two runs of one round; and that of the undisturbed times, in
which every iteration counts with its fastest run.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMP_NUM_THREADS": "1",
}
# (what, with the rewrite, without it)
COMPARISONS = [
    ("fusion, cuts at 1/2 and 3/4", "split_cuts", "split"),
    ("staleness 1 against 0", "split_tau1", "split"),
    ("shared trunk against two", "shared_trunk", "two_trunks"),
    ("traced against untraced", "small", "small_untraced"),
]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(job, binaries):
    """Runs a job to its end; returns its times and, of one rank alone, the peak resident bytes."""
    ranks = 2 if job.name.startswith("split") else 1
    launcher = ["mpirun", "-np", "2"] if ranks == 2 else []
    command = [*launcher, str(binaries / "rpeg-run"), "--config", str(job / "run.yaml")]
    with open(job / "log", "w") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **MPI})
        _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed:\n{(job / 'log').read_text()}")
    times = [line["iteration_s"] for line in lines(job / "metrics/metrics.jsonl")]
    return {"times": times[1:], "s": statistics.mean(times[1:]), "tasks": tasks(job), "rss": usage.ru_maxrss * 1024, "load": os.getloadavg()[0],
            "overlap": overlap(job) if job.name == "split_cuts" else None}


def events(job, rank):
    records = lines(job / f"trace/rank_{rank}.jsonl")
    return [r for r in records if r["record"] == "event"]


def overlap(job):
    """Shares of the inference of all chunks but the last during the generation of a later stage."""
    stages = [e for e in events(job, 0) if e["kind"] == "generate"]
    last = max(int(e["vertex"].split(".")[1]) for e in stages)
    inside = total = 0.0
    for chunk in (e for e in events(job, 1) if e["kind"] == "infer"):
        part = int(chunk["vertex"].split(".")[1])
        if part == last:
            continue
        total += chunk["end_s"] - chunk["start_s"]
        for stage in stages:
            if stage["iteration"] == chunk["iteration"] and int(stage["vertex"].split(".")[1]) > part:
                shared = min(chunk["end_s"], stage["end_s"]) - max(chunk["start_s"], stage["start_s"])
                inside += max(0.0, shared)
    return inside / total


def tasks(job):
    """Seconds of each computation by iteration after the first."""
    found = {}
    for path in job.glob("trace/rank_*.jsonl"):
        for e in lines(path):
            if e["record"] == "event" and e["iteration"] > 0 and e["kind"] in ("generate", "infer", "train"):
                found.setdefault(e["vertex"], []).append(e["end_s"] - e["start_s"])
    return found


def undisturbed(columns):
    """Mean over iterations of the least of the runs."""
    return statistics.mean(map(min, zip(*columns)))


def tokens(job):
    return sorted((r["iteration"], r["prompt"], r["sample"], r["tokens"]) for r in lines(job / "rollouts.jsonl"))


def differing_losses(a, b):
    pairs = zip(lines(a / "metrics/metrics.jsonl"), lines(b / "metrics/metrics.jsonl"))
    return max(abs(x[k] - y[k]) for x, y in pairs for k in ("policy_loss", "value_loss"))


def report(results, out):
    for what, changed, base in COMPARISONS:
        ratios = [a["s"] / b["s"] for a, b in zip(results[changed], results[base])]
        best = [undisturbed([r["times"] for r in results[name]]) for name in (changed, base)]
        print(f"{what}: {len(ratios)} rounds, ratio {statistics.median(ratios):.3f} ({min(ratios):.3f}, {max(ratios):.3f}); "
              f"undisturbed {best[0] / best[1]:.3f} = {1e3 * best[0]:.2f} ms / {1e3 * best[1]:.2f} ms")
    cuts, whole = out / "split_cuts", out / "split"
    same = sum(a == b for a, b in zip(tokens(cuts), tokens(whole)))
    shares = [r["overlap"] for r in results["split_cuts"]]
    print(f"inference of early chunks during generation: {statistics.median(shares):.1%} ({min(shares):.1%}, {max(shares):.1%}); "
          f"{same} of {len(tokens(whole))} responses equal; losses differ by {differing_losses(cuts, whole):.1e} at most")
    for name in ("two_trunks", "shared_trunk"):
        print(f"{name}: peak resident {statistics.median(r['rss'] for r in results[name]) / 1e6:.1f} MB")
    count = len(events(out / "small", 0)) / len(lines(out / "small/metrics/metrics.jsonl"))
    print(f"small: {count:.2f} events an iteration")
    for name in ("split", "split_cuts", "split_tau1", "two_trunks", "shared_trunk"):
        runs = [r["tasks"] for r in results[name]]
        times = {task: undisturbed([r[task] for r in runs]) for task in sorted(runs[0])}
        print(f"{name}: " + "  ".join(f"{task} {1e3 * s:.0f} ms" for task, s in times.items()))
    loads = [r["load"] for runs in results.values() for r in runs]
    print(f"load average {min(loads):.1f}-{max(loads):.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="build/<preset>/bin")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory for the jobs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--minutes", type=float, default=60.0, help="no round begins after this")
    parser.add_argument("--iterations", type=int, default=5)
    arguments = parser.parse_args()
    memory = subprocess.run([arguments.bin / "rpeg_bench_rewrites_jobs", "--out", arguments.out,
                             "--iterations", str(arguments.iterations)],
                            check=True, capture_output=True, text=True).stdout
    print(memory, end="")
    names = sorted({name for _, *pair in COMPARISONS for name in pair})
    results = {name: [] for name in names}
    start = time.monotonic()
    for number in range(arguments.rounds):
        if time.monotonic() - start > 60.0 * arguments.minutes:
            break
        for name in names if number % 2 == 0 else reversed(names):
            results[name].append(run(arguments.out / name, arguments.bin))
            print(f"round {number} {name} {results[name][-1]['s']:.4f} s", file=sys.stderr, flush=True)
    report(results, arguments.out)


if __name__ == "__main__":
    main()
