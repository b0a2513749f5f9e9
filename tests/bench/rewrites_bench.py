#!/usr/bin/env python3
"""What fusion, staleness, sharing and tracing change, on real processes.

    tests/bench/rewrites_bench.py --bin build/dev/bin --out DIR --rounds 5

Every round runs each job of rpeg_bench_rewrites_jobs once, in turn forwards and backwards, so that whatever else
the machine does meets all of them. A run's time is the mean over its iterations after the first; a
ratio compares two runs of one round. The median over the rounds is printed with the least and the
greatest, and the ratio of the fastest runs.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

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
    ("fusion, cut at 1/2", "split_cut1", "split"),
    ("fusion, cuts at 1/2 and 3/4", "split_cut12", "split"),
    ("staleness 1 against 0", "split_tau1", "split"),
    ("shared trunk against two", "shared_trunk", "two_trunks"),
    ("traced against untraced", "split", "split_untraced"),
    ("traced against untraced, small job", "small", "small_untraced"),
]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(job, binaries):
    """Runs a job to its end; returns seconds per iteration and the peak resident bytes (one rank only)."""
    ranks = 2 if job.name.startswith("split") else 1
    launcher = ["mpirun", "-np", "2"] if ranks == 2 else []
    command = [*launcher, str(binaries / "rpeg-run"), "--config", str(job / "run.yaml")]
    with open(job / "log", "w") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **MPI})
        _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed:\n{(job / 'log').read_text()}")
    times = [line["iteration_s"] for line in lines(job / "metrics/metrics.jsonl")]
    return {"s": statistics.mean(times[1:]), "rss": usage.ru_maxrss * 1024, "load": os.getloadavg()[0]}


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
    """Median seconds of each computation after the first iteration."""
    found = {}
    for rank in (0, 1) if job.name.startswith("split") else (0,):
        for e in events(job, rank):
            if e["iteration"] > 0 and e["kind"] in ("generate", "infer", "train"):
                found.setdefault(e["vertex"], []).append(e["end_s"] - e["start_s"])
    return "  ".join(f"{name} {1e3 * statistics.median(s):.0f} ms" for name, s in sorted(found.items()))


def tokens(job):
    return sorted((r["iteration"], r["sequence"], r["tokens"]) for r in lines(job / "rollouts.jsonl"))


def differing_losses(a, b):
    pairs = zip(lines(a / "metrics/metrics.jsonl"), lines(b / "metrics/metrics.jsonl"))
    return max(abs(x[k] - y[k]) for x, y in pairs for k in ("policy_loss", "value_loss"))


def report(results, out):
    for what, changed, base in COMPARISONS:
        ratios = [a["s"] / b["s"] for a, b in zip(results[changed], results[base])]
        median = [statistics.median(r["s"] for r in results[name]) for name in (changed, base)]
        fastest = min(r["s"] for r in results[changed]) / min(r["s"] for r in results[base])
        print(f"{what}: ratio {statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}), of the fastest "
              f"{fastest:.3f}; {median[0]:.4f} s against {median[1]:.4f} s, {len(ratios)} rounds")
    for name in ("split_cut1", "split_cut12"):
        same = sum(a == b for a, b in zip(tokens(out / name), tokens(out / "split")))
        print(f"{name}: {overlap(out / name):.1%} of the inference of early chunks during generation; {same} of "
              f"{len(tokens(out / 'split'))} responses equal; losses differ by at most "
              f"{differing_losses(out / name, out / 'split'):.1e}")
    for name in ("two_trunks", "shared_trunk"):
        print(f"{name}: peak resident {statistics.median(r['rss'] for r in results[name]) / 1e6:.1f} MB")
    for name in ("split", "small"):
        count = {rank: len(events(out / name, rank)) for rank in ((0, 1) if name == "split" else (0,))}
        iterations = len(lines(out / name / "metrics/metrics.jsonl"))
        print(f"{name}: events per iteration of the busiest rank {max(count.values()) / iterations:.1f}")
    for name in ("split", "split_cut1", "split_cut12", "split_tau1", "two_trunks", "shared_trunk"):
        print(f"{name}: {tasks(out / name)}")
    loads = [r["load"] for runs in results.values() for r in runs]
    print(f"load average {min(loads):.1f}-{max(loads):.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="build/<preset>/bin")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory for the jobs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=5)
    arguments = parser.parse_args()
    memory = subprocess.run([arguments.bin / "rpeg_bench_rewrites_jobs", "--out", arguments.out,
                             "--iterations", str(arguments.iterations)],
                            check=True, capture_output=True, text=True).stdout
    print(memory, end="")
    names = sorted({name for _, *pair in COMPARISONS for name in pair})
    results = {name: [] for name in names}
    for number in range(arguments.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            results[name].append(run(arguments.out / name, arguments.bin))
            print(f"round {number} {name} {results[name][-1]['s']:.4f} s", file=sys.stderr, flush=True)
    report(results, arguments.out)


if __name__ == "__main__":
    main()
