#!/usr/bin/env bash
# Sets up the machine, builds RPEG and runs its whole default test suite: unit, golden, error, MPI and
# end-to-end tests, then the unit tests again under the address and undefined-behaviour sanitizers.
# Usage: scripts/test.sh [--no-sanitizers]
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizers=yes
case "$*" in
  "") ;;
  -h|--help) echo "usage: scripts/test.sh [--no-sanitizers]"; exit 0 ;;
  --no-sanitizers) sanitizers=no ;;
  *) echo "usage: scripts/test.sh [--no-sanitizers]" >&2; exit 2 ;;
esac

run_preset() {
  echo "test: configuring and building preset '$1'"
  cmake --preset "$1" >build-"$1".log 2>&1 || { tail -n 40 build-"$1".log >&2; exit 1; }
  rm -f build-"$1".log
  cmake --build --preset "$1" --parallel "$(nproc)"
  echo "test: running the tests of preset '$1'"
  ctest --preset "$1"
}

scripts/install_deps.sh
if [ "$sanitizers" = yes ]; then
  run_preset asan
fi
run_preset dev
echo "test: everything passed"
