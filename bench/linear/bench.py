#!/usr/bin/env python3
"""Dense products: asynct_linear_bench against PyTorch on the same cores, in turns.

    python bench/linear/bench.py build/asynct_linear_bench [--threads 1,2,4] [--dtype fp32,bf16] [--rounds 3]
                                 [--output FILE.json]

Both sides run in processes pinned to the first N physical cores, and multiply the same type: fp32 rows and
weights, or bf16 rows and weights with float sums. Each reports its fastest call of a round; the best of all
rounds counts, for both. ASYNCT_ISA picks our kernels.
"""

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import time


def physical_cores() -> list[int]:
    """One logical CPU of each core this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    seen, cores = set(), []
    for cpu in allowed:
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
                siblings = file.read().strip()
        except OSError:
            siblings = str(cpu)
        if siblings not in seen:
            seen.add(siblings)
            cores.append(cpu)
    return cores


def cpu_model() -> str:
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def run_pinned(command: list[str], cores: list[int], text: str = "") -> dict:
    environment = dict(os.environ, OMP_NUM_THREADS=str(len(cores)), MKL_NUM_THREADS=str(len(cores)))
    done = subprocess.run(
        command,
        input=text,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return json.loads(done.stdout)


def torch_worker() -> None:
    """The PyTorch side: a job on stdin, rates on stdout."""
    import torch

    job = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[job["dtype"]]
    rates = []
    with torch.inference_mode():
        for m, k, n in job["cases"]:
            x = torch.randn(m, k).to(dtype)
            weight = torch.randn(n, k).to(dtype)
            torch.nn.functional.linear(x, weight)
            best, begin, calls = math.inf, time.perf_counter(), 0
            while time.perf_counter() - begin < 0.4 or calls < 5:
                start = time.perf_counter()
                torch.nn.functional.linear(x, weight)
                best = min(best, time.perf_counter() - start)
                calls += 1
            rates.append(2e-9 * m * k * n / best)
    json.dump({"version": torch.__version__, "gflops": rates}, sys.stdout)


def compare(binary: str, cores: list[int], dtype: str, rounds: int) -> dict:
    threads = len(cores)
    command = [binary, "--threads", str(threads), "--only", "dense", "--json"]
    command += ["--precision", dtype, "--weights", dtype]
    best: dict[tuple, dict] = {}
    peak = 0.0
    for _ in range(rounds):
        report = run_pinned(command, cores)
        peak = max(peak, report["fma_peak_gflops"])
        for row in report["dense"]:
            entry = best.setdefault((row["m"], row["k"], row["n"]), {"asynct": 0.0, "torch": 0.0})
            entry["asynct"] = max(entry["asynct"], row["gflops"])
        job = {"threads": threads, "dtype": dtype, "cases": list(best)}
        theirs = run_pinned([sys.executable, __file__, "--torch-worker"], cores, json.dumps(job))
        for entry, gflops in zip(best.values(), theirs["gflops"]):
            entry["torch"] = max(entry["torch"], gflops)
    rows = [
        {"m": m, "k": k, "n": n, **entry, "of_fma_peak": entry["asynct"] / peak, "ratio": entry["asynct"] / entry["torch"]}
        for (m, k, n), entry in best.items()
    ]
    mean = math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))
    return {
        "threads": threads,
        "cores": cores,
        "dtype": dtype,
        "isa": report["isa"],
        "torch": theirs["version"],
        "fma_peak_gflops": peak,
        "ratio_geomean": mean,
        "gflops": rows,
    }


def print_table(result: dict) -> None:
    print(
        f"\n{result['dtype']}, {result['isa']}, {result['threads']} threads, FMA peak"
        f" {result['fma_peak_gflops']:.1f} GFLOP/s, torch {result['torch']}; GFLOP/s"
    )
    print(f"{'M':>6} {'K':>6} {'N':>6} {'torch':>9} {'asynct':>9} {'of peak':>8} {'ratio':>6}")
    for row in result["gflops"]:
        print(
            f"{row['m']:6} {row['k']:6} {row['n']:6} {row['torch']:9.1f} {row['asynct']:9.1f}"
            f" {row['of_fma_peak']:8.1%} {row['ratio']:6.2f}"
        )
    print(f"geometric mean of ratios: {result['ratio_geomean']:.2f}", flush=True)


def main() -> None:
    if sys.argv[1:] == ["--torch-worker"]:
        torch_worker()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--threads", default="2", help="numbers of threads, separated by commas")
    parser.add_argument("--dtype", default="fp32,bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", help="write the results as JSON")
    args = parser.parse_args()

    cores = physical_cores()
    counts = [int(count) for count in args.threads.split(",")]
    if max(counts) > len(cores):
        parser.error(f"--threads {max(counts)}: this process may use {len(cores)} cores")
    dtypes = args.dtype.split(",")
    if not set(dtypes) <= {"fp32", "bf16"}:
        parser.error(f"--dtype {args.dtype}: expected fp32, bf16 or both")
    report = {
        "what": "dense products y[M, N] = x[M, K] * w[N, K]^T, GFLOP/s of the fastest call",
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_model(),
        "runs": [],
    }
    for dtype in dtypes:
        for count in counts:
            result = compare(args.binary, cores[:count], dtype, args.rounds)
            report["runs"].append(result)
            print_table(result)
            if args.output:  # after each part: a long run may be cut short
                with open(args.output, "w") as file:
                    json.dump(report, file, indent=1)
                    file.write("\n")


if __name__ == "__main__":
    main()
