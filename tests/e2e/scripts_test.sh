#!/usr/bin/env bash
# What the set-up scripts answer to wrong arguments and to a machine where nothing can be installed.
# Usage: scripts_test.sh <source folder>
set -uo pipefail
cd "$1/scripts" || exit 1
failed=0

# expect <exit code> <words of the output> <command...>
expect() {
  local code=$1 words=$2 output actual=0
  shift 2
  output=$("$@" 2>&1) || actual=$?
  if [ "$actual" != "$code" ] || [[ $output != *"$words"* ]]; then
    echo "FAILED: '$*' gave $actual, not $code with '$words': $output"
    failed=1
  fi
}

expect 0 "usage:" ./quickstart.sh --help
expect 2 "usage:" ./quickstart.sh --bogus
expect 2 "--seed takes a whole number" ./quickstart.sh --seed
expect 2 "--seed takes a whole number" ./quickstart.sh --seed one
expect 2 "too large" ./quickstart.sh --seed 99999999999999999999
expect 2 "--out needs a folder" ./quickstart.sh --out
expect 0 "usage:" ./test.sh --help
expect 2 "usage:" ./test.sh --no-sanitizers twice

# A machine without packages: dpkg-query knows none.
fake=$(mktemp -d)
trap 'rm -rf "$fake"' EXIT
tool() { printf '#!/bin/sh\n%s\n' "$2" >"$fake/$1" && chmod +x "$fake/$1"; }
for name in bash sh env; do ln -s "$(command -v "$name")" "$fake/$name"; done
expect 2 "not a Debian or Ubuntu system" env PATH="$fake" bash ./install_deps.sh
tool dpkg-query "exit 1"
tool apt-cache "exit 1"
tool id "echo 1000"
expect 2 "neither root nor sudo" env PATH="$fake" bash ./install_deps.sh
tool id "echo 0"
tool apt-get "echo 'E: no network' >&2; exit 100"
expect 2 "apt-get could not install" env PATH="$fake" bash ./install_deps.sh
exit "$failed"
