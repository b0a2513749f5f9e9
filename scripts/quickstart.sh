#!/usr/bin/env bash
# Sets up the machine, builds RPEG, and runs the whole loop on this CPU: calibrate two ranks, find the
# fastest plan of a GRPO job for them, compile it, and train a small Llama from random weights.
# Usage: scripts/quickstart.sh [--seed N] [--out DIR]      (default: seed 1, runs/copy)
set -euo pipefail
cd "$(dirname "$0")/.."

usage="scripts/quickstart.sh [--seed N] [--out DIR]"
seed=1
out=runs/copy
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) echo "usage: $usage"; exit 0 ;;
    --seed) seed=${2:-}; shift $(($# > 1 ? 2 : 1)) ;;
    --out) out=${2:-}; shift $(($# > 1 ? 2 : 1)) ;;
    *) echo "quickstart: unknown argument '$1'; usage: $usage" >&2; exit 2 ;;
  esac
done
case "$seed" in
  ""|*[!0-9]*) echo "quickstart: --seed takes a whole number, not '$seed'" >&2; exit 2 ;;
esac
if [ ${#seed} -gt 18 ]; then echo "quickstart: --seed $seed is too large" >&2; exit 2; fi
if [ -z "$out" ]; then echo "quickstart: --out needs a folder" >&2; exit 2; fi

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
step() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }

step "1/5 set up and build"
scripts/install_deps.sh
cmake --preset release >/dev/null
cmake --build --preset release --parallel "$(nproc)"
bin=build/release/bin
job=configs/demo/copy
mkdir -p "$out"

. scripts/mpi_env.sh

step "2/5 calibrate: measure this machine with two ranks"
mpirun -np 2 "$bin/rpeg-calibrate" --quick --config "$job/workload.yaml" --output "$out/hw.yaml"

step "3/5 optimize: find the plan that trains fastest"
"$bin/rpeg-optimize" --hw "$out/hw.yaml" --config "$job/workload.yaml" --evals 2000 --seed "$seed" \
  --base-plan "$out/baseline.yaml" --opt-plan "$out/optimized.yaml"

step "4/5 compile: plan and job into rank programs"
"$bin/rpeg-jobplan" --config "$job/job.yaml" --plan "$out/optimized.yaml" --seed "$seed" \
  --out-dir "$out/job"

step "5/5 run: train"
"$out/job/mpirun.sh"

step "done"
echo "hardware     $out/hw.yaml"
echo "plan         $out/optimized.yaml (baseline: $out/baseline.yaml)"
echo "compiled job $out/job/run.yaml"
echo "metrics      $out/job/metrics/metrics.jsonl"
echo "model        $out/job/model/actor (a Hugging Face directory)"
