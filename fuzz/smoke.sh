#!/bin/bash
# Runs every fuzzer for SECONDS_EACH (default 60) from its kept seeds, one a core at a time; new inputs go to a scratch
# folder. Fails on a crash, leak, hang or sanitizer report, and leaves the input beside the build.
# usage: fuzz/smoke.sh BUILD_DIR
set -euo pipefail
root=$(cd "$(dirname "$0")" && pwd)
export root build=$1 seconds=${SECONDS_EACH:-60}

smoke() {
  local name corpus log status=0
  name=$(basename "$1"); name=${name#fuzz_}
  log=$build/fuzz-$name.log
  corpus=$(mktemp -d)
  "$1" "$corpus" "$root/seeds/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$build/crash-$name-" -print_final_stats=1 >"$log" 2>&1 || status=$?
  rm -rf "$corpus"
  if [ "$status" -eq 0 ]; then
    echo "fuzz $name: $seconds s, $(grep -o 'number_of_executed_units.*' "$log" || echo done)"
  else
    tail -40 "$log"
    echo "fuzz $name: failed with status $status" >&2
    return 1
  fi
}
export -f smoke

fuzzers=$(find "$build" -maxdepth 1 -name 'fuzz_*' -type f -executable)
[ -n "$fuzzers" ] || { echo "no fuzzers in $build" >&2; exit 1; }
xargs -P "$(nproc)" -I{} bash -c 'smoke {}' <<<"$fuzzers"
