#!/usr/bin/env bash
# Installs what RPEG needs to build and test, from the distribution's own packages (Debian 12+,
# Ubuntu 22.04+). Does nothing when everything is there. Usage: scripts/install_deps.sh
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config python3 git
  libyaml-cpp-dev libcli11-dev libfmt-dev libspdlog-dev libeigen3-dev libdnnl-dev nlohmann-json3-dev
  libpcre2-dev libcairo2-dev libgraphviz-dev fonts-dejavu-core
  libopenmpi-dev openmpi-bin
  libgtest-dev libgmock-dev libbenchmark-dev libboost-graph-dev poppler-utils
)

missing=()
if ! command -v dpkg-query >/dev/null; then
  echo "install_deps: this is not a Debian or Ubuntu system; install the equivalents of:" >&2
  echo "  ${packages[*]}" >&2
  exit 2
fi
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
# The formatter and the linter are pinned to version 19; where the distribution lacks it, they skip.
if ! command -v clang-format-19 >/dev/null && apt-cache show clang-format-19 >/dev/null 2>&1; then
  missing+=(clang-format-19)
fi
if [ ${#missing[@]} -eq 0 ]; then
  echo "install_deps: all packages are there"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps: these packages are missing and neither root nor sudo is available:" >&2
    echo "  ${missing[*]}" >&2
    exit 2
  fi
  as_root=(sudo)
fi
echo "install_deps: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq ||
  echo "install_deps: apt-get update failed (no network?); trying with the lists at hand" >&2
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
  --no-install-recommends "${missing[@]}" >/dev/null; then
  echo "install_deps: apt-get could not install the packages (its reason stands above); install" >&2
  echo "  ${missing[*]}" >&2
  echo "by hand, then run this again" >&2
  exit 2
fi
echo "install_deps: done"
