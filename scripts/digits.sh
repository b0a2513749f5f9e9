#!/usr/bin/env bash
# Trains the digit-completion job with PPO or GRPO on two ranks of this machine, after quickstart.sh has
# built RPEG. Usage: scripts/digits.sh ppo|grpo [OUT_DIR [TAU]]
# OUT_DIR: runs/digits_<algorithm> unless given; TAU: iterations by which generation may run ahead (0).
set -euo pipefail
cd "$(dirname "$0")/.."

algorithm=${1:-}
case "$algorithm" in
  ppo | grpo) ;;
  *) echo "usage: scripts/digits.sh ppo|grpo [OUT_DIR [TAU]]" >&2; exit 2 ;;
esac
out=${2:-runs/digits_$algorithm}
tau=${3:-0}
case "$tau" in
  [0-9]) ;;
  *) echo "digits: TAU is a number of iterations from 0 to 9, found $tau" >&2; exit 2 ;;
esac
bin=build/release/bin
job=configs/demo/digits
[ -x "$bin/rpeg-run" ] || { echo "digits: build first: scripts/quickstart.sh" >&2; exit 2; }
mkdir -p "$out"
. scripts/mpi_env.sh
workload="$out/workload.yaml"
sed -e "s|hf_config: |hf_config: $PWD/$job/|" -e "s|staleness_candidates: .*|staleness_candidates: {actor: [$tau], critic: [0]}|" \
  "$job/workload_$algorithm.yaml" >"$workload"

mpirun -np 2 "$bin/rpeg-calibrate" --quick --config "$workload" --output "$out/hw.yaml"
"$bin/rpeg-optimize" --hw "$out/hw.yaml" --config "$workload" --evals 2000 \
  --opt-plan "$out/optimized.yaml"
"$bin/rpeg-jobplan" --config "$job/job_$algorithm.yaml" --plan "$out/optimized.yaml" --out-dir "$out/job"
"$out/job/mpirun.sh"
