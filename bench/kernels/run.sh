#!/bin/bash
# Measures everything on this machine's GPU: the program's own bench, then kernels beside their peers in one process.
# usage: bench/kernels/run.sh OUTPUT_FOLDER [PEERS.tar.xz] [--quick]
# BUILD names a folder with asynct and libasynct_kernels.so that were built elsewhere; without it they are built here.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$1
peers=${2:-}
quick=${3:-}
build=${BUILD:-$root/build}
if [ ! -e "$build/libasynct_kernels.so" ]; then
  (cd "$root" && cmake --preset release && cmake --build build --target asynct asynct_kernels)
fi
mkdir -p "$out"
if [ -x "$build/asynct" ]; then
  "$build/asynct" bench kernels $quick --json "$out/program.json" | tee "$out/program.txt"
fi
python3 "$root/bench/kernels/peers.py" --library "$build/libasynct_kernels.so" ${peers:+--peers "$peers"} \
  --output "$out/peers.json" $quick | tee "$out/peers.txt"
