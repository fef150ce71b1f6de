#!/bin/bash
# Runs every fuzzer for SECONDS_EACH (default 60) from its kept seeds; new inputs go to a scratch folder. Fails on the
# first crash, leak, hang or sanitizer report, and leaves the input beside the build.
# usage: fuzz/smoke.sh BUILD_DIR
set -euo pipefail
root=$(cd "$(dirname "$0")" && pwd)
build=$1
seconds=${SECONDS_EACH:-60}
found=0
for fuzzer in "$build"/fuzz_*; do
  [ -f "$fuzzer" ] && [ -x "$fuzzer" ] || continue
  found=1
  name=$(basename "$fuzzer"); name=${name#fuzz_}
  corpus=$(mktemp -d)
  echo "fuzz $name: $seconds s"
  log=$build/fuzz-$name.log
  status=0
  "$fuzzer" "$corpus" "$root/seeds/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$build/crash-$name-" -print_final_stats=1 >"$log" 2>&1 || status=$?
  grep -E 'number_of_executed_units' "$log" || true
  rm -rf "$corpus"
  [ "$status" -eq 0 ] || { tail -40 "$log"; echo "fuzz $name: failed with status $status" >&2; exit 1; }
done
[ "$found" -eq 1 ] || { echo "no fuzzers in $build" >&2; exit 1; }
