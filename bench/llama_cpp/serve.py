#!/usr/bin/env python3
# Copyright The AsyncT Authors. SPDX-License-Identifier: Apache-2.0
"""llama.cpp's server and this one, the same weights in bf16, the same load: one machine, one run, rounds in turns.

    tools/export_smollm2.py /tmp/smollm2 --dtype bf16
    llama-quantize --allow-requantize SmolLM2-135M-Instruct.Q4_1.gguf /tmp/smollm2.gguf BF16
    bench/llama_cpp/serve.py --llama-server llama-server --gguf /tmp/smollm2.gguf --program build/asynct --model /tmp/smollm2

The load is `asynct bench serve`: 16 clients in a closed loop, prompts of random token ids, greedy, streamed, no end token.
Each server has all cores while the others sleep. llama.cpp's is told that 16 clients come (-np 16), so is ours
(--max-sequences 16, and 3 rows a step for each, which bounds what a prompt delays others); ours runs with its defaults too.
Prints medians over the rounds, and ratios to llama.cpp.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import time
import urllib.request

KEYS = {"output tokens/s": ("output_throughput",), "TTFT p50, ms": ("ttft_ms", "p50"), "TTFT p99, ms": ("ttft_ms", "p99"),
        "ITL p50, ms": ("itl_ms", "p50"), "ITL p99, ms": ("itl_ms", "p99"), "failed": ("failed",)}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_ready(port):
    for _ in range(600):
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).status == 200:
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the server does not start")


def load(arguments, port, seed):
    command = [arguments.program, "bench", "serve", f"http://127.0.0.1:{port}", "--concurrency", "16", "--requests",
               str(arguments.requests), "--prompt-tokens", arguments.prompt, "--output-tokens", arguments.output,
               "--vocab-size", "49000", "--seed", str(seed), "--temperature", "0", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def value(report, path):
    for key in path:
        report = report[key]
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--program", default="build/asynct")
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--prompt", default="128", help="tokens, or a range: 32..256")
    parser.add_argument("--output", default="48")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    arguments = parser.parse_args()

    ports = {"llama.cpp": free_port(), "asynct": free_port(), "asynct, defaults": free_port()}
    context = 16 * (int(arguments.prompt.split("..")[-1]) + int(arguments.output.split("..")[-1]) + 16)
    commands = {
        "llama.cpp": [arguments.llama_server, "-m", arguments.gguf, "--port", str(ports["llama.cpp"]), "-t", arguments.threads,
                      "-tb", arguments.threads, "-np", "16", "-c", str(context), "--no-webui"],
    }
    for name, options in {"asynct": ["--max-sequences", "16", "--max-batch-tokens", "48"], "asynct, defaults": []}.items():
        commands[name] = [arguments.program, "serve", arguments.model, "--port", str(ports[name]), "--threads",
                          arguments.threads, "--dtype", "bf16", *options]
    servers = {name: subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for name, command in commands.items()}
    reports = {name: [] for name in ports}
    try:
        for port in ports.values():
            wait_ready(port)
        for name, port in ports.items():  # warm
            load(argparse.Namespace(**{**vars(arguments), "requests": 16, "output": "4"}), port, 99)
        for round_ in range(arguments.rounds):
            for name, port in ports.items():
                reports[name].append(load(arguments, port, round_))
    finally:
        for server in servers.values():
            server.terminate()
    table = {name: {key: statistics.median(value(report, path) for report in reports[name]) for key, path in KEYS.items()}
             for name in ports}
    print(f"{arguments.requests} requests, 16 clients, {arguments.prompt} + {arguments.output} tokens, {arguments.threads} threads,"
          f" medians of {arguments.rounds} rounds")
    for key in KEYS:
        other = table["llama.cpp"][key]
        print(f"{key:18} llama.cpp {other:10.2f}", end="")
        for name in list(ports)[1:]:
            ratio = f" ({table[name][key] / other:.2f})" if other else ""
            print(f"   {name} {table[name][key]:10.2f}{ratio}", end="")
        print()
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"settings": {k: v for k, v in vars(arguments).items() if k in (
            "threads", "requests", "prompt", "output", "rounds")}, "medians": table, "rounds": {
                name: [{key: value(r, path) for key, path in KEYS.items()} for r in reports[name]] for name in ports}},
            indent=1) + "\n")


if __name__ == "__main__":
    main()
