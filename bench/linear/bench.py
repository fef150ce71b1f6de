#!/usr/bin/env python3
"""Dense products: asynct_linear_bench against PyTorch, fp32, same machine, same run, alternating.

    python bench/linear/bench.py build/asynct_linear_bench [--threads 2] [--rounds 3] [--output FILE.json]

Each side reports the fastest call of a round; the best of all rounds counts, for both.
"""

import argparse
import json
import subprocess
import time

import torch


def torch_gflops(m: int, k: int, n: int, seconds: float = 0.4) -> float:
    x = torch.randn(m, k)
    weight = torch.randn(n, k)
    with torch.inference_mode():
        torch.nn.functional.linear(x, weight)
        best = float("inf")
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            best = min(best, time.perf_counter() - start)
    return 2 * m * k * n / best / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    best: dict[tuple, dict] = {}
    peak = 0.0
    for _ in range(args.rounds):
        command = [args.binary, "--threads", str(args.threads), "--only", "dense", "--json"]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        peak = max(peak, report["fma_peak_gflops"])
        for row in report["dense"]:
            case = (row["m"], row["k"], row["n"])
            entry = best.setdefault(case, {"torch": 0.0})
            entry[row["dtype"]] = max(entry.get(row["dtype"], 0.0), row["gflops"])
        for case, entry in best.items():
            entry["torch"] = max(entry["torch"], torch_gflops(*case))

    print(f"{report['isa']}, {args.threads} threads, FMA peak {peak:.1f} GFLOP/s, torch {torch.__version__}; GFLOP/s")
    print(f"{'M':>6} {'K':>6} {'N':>6} {'torch':>8} {'fp32':>8} {'bf16':>8} {'of peak':>8} {'fp32/torch':>11}")
    rows = []
    for (m, k, n), entry in best.items():
        print(
            f"{m:6} {k:6} {n:6} {entry['torch']:8.1f} {entry['fp32']:8.1f} {entry['bf16']:8.1f}"
            f" {entry['fp32'] / peak:8.1%} {entry['fp32'] / entry['torch']:11.2f}"
        )
        rows.append({"m": m, "k": k, "n": n, **entry})
    if args.output:
        with open(args.output, "w") as file:
            json.dump({"isa": report["isa"], "threads": args.threads, "fma_peak_gflops": peak, "gflops": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
