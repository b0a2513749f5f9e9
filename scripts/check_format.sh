#!/usr/bin/env bash
# Checks every C++ file with clang-format 19; exit 77 (skipped) where that version is absent.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-format-19 >/dev/null; then
  echo "check_format: clang-format-19 is not installed; skipped"
  exit 77
fi
find include src apps tests -name '*.h' -o -name '*.cpp' | sort |
  xargs clang-format-19 --dry-run --Werror
echo "check_format: all files are formatted"
