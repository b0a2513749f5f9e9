#!/usr/bin/env bash
# Trains the digit-completion job with PPO or GRPO on two ranks of this machine, after quickstart.sh has
# built RPEG. Usage: scripts/digits.sh ppo|grpo [OUT_DIR]      (default: runs/digits_<algorithm>)
set -euo pipefail
cd "$(dirname "$0")/.."

algorithm=${1:-}
case "$algorithm" in
  ppo | grpo) ;;
  *) echo "usage: scripts/digits.sh ppo|grpo [OUT_DIR]" >&2; exit 2 ;;
esac
out=${2:-runs/digits_$algorithm}
bin=build/release/bin
job=configs/demo/digits
[ -x "$bin/rpeg-run" ] || { echo "digits: build first: scripts/quickstart.sh" >&2; exit 2; }
mkdir -p "$out"
. scripts/mpi_env.sh

mpirun -np 2 "$bin/rpeg-calibrate" --quick --config "$job/workload_$algorithm.yaml" --output "$out/hw.yaml"
"$bin/rpeg-optimize" --hw "$out/hw.yaml" --config "$job/workload_$algorithm.yaml" --evals 2000 \
  --opt-plan "$out/optimized.yaml"
"$bin/rpeg-jobplan" --config "$job/job_$algorithm.yaml" --plan "$out/optimized.yaml" --out-dir "$out/job"
"$out/job/mpirun.sh"
