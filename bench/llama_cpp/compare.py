#!/usr/bin/env python3
"""SmolLM2-135M in llama.cpp and here, and an AsyncT model of equal size here: one machine, one run.

    pip install llama-cpp-python==0.3.36 numpy          # builds llama.cpp for this CPU
    tools/export_smollm2.py /tmp/smollm2          # the same weights as an ordinary checkpoint
    build/asynct synth --shape smollm2 --gate-zeros 0.87 --out /tmp/synth --seed 1
    bench/llama_cpp/compare.py --gguf SmolLM2.Q4_1.gguf --model /tmp/smollm2 --synth /tmp/synth

llama.cpp runs the weights in f16 and in bf16 (made from the Q4_1 file by its own quantizer); the faster one counts.
Rounds alternate between the programs, so that a change of the machine's clock meets all of them; medians are kept.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import llama_cpp
import numpy as np

PROMPT = 512
STEPS = 32


@llama_cpp.llama_log_callback
def silent(_level, _text, _data):
    pass


def requantize(source, target, ftype):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = ftype
    params.allow_requantize = True
    params.nthread = os.cpu_count()
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)) != 0:
        raise RuntimeError(f"cannot write {target}")


class LlamaCpp:
    def __init__(self, path, threads):
        self.model = llama_cpp.Llama(
            model_path=path, n_ctx=PROMPT + STEPS + 16, n_batch=PROMPT, n_ubatch=PROMPT, n_threads=threads,
            n_threads_batch=threads, verbose=False)
        self.tokens = [int(t) for t in np.random.default_rng(1).integers(1000, 40000, PROMPT)]

    def round(self):
        """Tokens a second: prefill of PROMPT tokens, then STEPS greedy steps."""
        self.model.reset()
        start = time.perf_counter()
        self.model.eval(self.tokens)
        prefill = time.perf_counter() - start
        token = 42
        start = time.perf_counter()
        for _ in range(STEPS):
            self.model.eval([token])
            logits = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
            token = int(np.argmax(np.ctypeslib.as_array(logits, shape=(self.model.n_vocab(),))))
        return PROMPT / prefill, STEPS / (time.perf_counter() - start)


class Asynct:
    def __init__(self, binary, path, threads, dtype):
        self.command = [binary, "bench", path, "--prefill", str(PROMPT), "--batch", "1", "--context", str(PROMPT),
                        "--steps", str(STEPS), "--repeats", "1", "--threads", str(threads), "--dtype", dtype, "--json"]

    def round(self):
        report = json.loads(subprocess.run(self.command, check=True, capture_output=True, text=True).stdout)
        self.machine = {k: report[k] for k in ("isa", "fma_peak_flops", "read_bandwidth_bytes")}
        self.active = report["results"][1]["active_neurons"]
        return tuple(r["tokens_per_second"] for r in report["results"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--synth", required=True)
    parser.add_argument("--binary", default="build/asynct")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", default="bench/results/llama_cpp_cpu.json")
    args = parser.parse_args()

    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    with tempfile.TemporaryDirectory() as folder:
        sides = {}
        for name, ftype in (("f16", llama_cpp.LLAMA_FTYPE_MOSTLY_F16), ("bf16", llama_cpp.LLAMA_FTYPE_MOSTLY_BF16)):
            path = os.path.join(folder, f"smollm2.{name}.gguf")
            requantize(args.gguf, path, ftype)
            sides[f"llama.cpp {name}"] = LlamaCpp(path, args.threads)
        for dtype in ("fp32", "bf16"):
            sides[f"asynct SmolLM2 {dtype}"] = Asynct(args.binary, args.model, args.threads, dtype)
            sides[f"asynct synthetic AsyncT {dtype}"] = Asynct(args.binary, args.synth, args.threads, dtype)
        rates = {name: [] for name in sides}
        for side in sides.values():
            side.round()  # warm-up
        for _ in range(args.rounds):
            for name, side in sides.items():
                rates[name].append(side.round())

    median = {n: [statistics.median(r[i] for r in rs) for i in (0, 1)] for n, rs in rates.items()}
    best = [max(median[f"llama.cpp {t}"][i] for t in ("f16", "bf16")) for i in (0, 1)]
    print(f"{'tokens/s, ' + str(args.threads) + ' threads':34} {'prefill':>9} {'decode':>9} {'ratios to the best llama.cpp':>30}")
    for name, (prefill, decode) in median.items():
        print(f"{name:34} {prefill:9.1f} {decode:9.2f} {prefill / best[0]:17.2f} {decode / best[1]:12.2f}")
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    report = {"command": " ".join(["python", *sys.argv]), "cpu": f"{cpu}, {os.cpu_count()} logical cores", "prompt": PROMPT, "steps": STEPS, "threads": args.threads, "rounds": args.rounds, "median_tokens_per_second": median,
              "all": rates, "machine": side.machine, "active_neurons_synthetic": sides["asynct synthetic AsyncT bf16"].active,
              "llama_cpp_python": llama_cpp.__version__}
    pathlib.Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(args.output).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
