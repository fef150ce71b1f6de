#!/usr/bin/env python3
# Copyright The AsyncT Authors. SPDX-License-Identifier: Apache-2.0
"""Mixed load on a server for a while, and what its memory does meanwhile.

    bench/serve/soak.py build/asynct models/asynct-tiny --minutes 20 --plot bench/results/serve_soak.png

The cache is small, so that requests are preempted; some clients leave in the middle of a stream; beams, scores, chats and
constrained texts come beside streams and prompts that share their beginnings. Prints a row for each round and, at the end,
what is left: no request, no block, no descriptor beyond those of the start. matplotlib draws the plot.
"""

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

ROUND = 20


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def resident(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def metrics(url):
    values = {}
    for line in get(url + "/metrics").splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            name = name.split("{")[0]
            values[name] = values.get(name, 0) + float(value)
    return values


class Others(threading.Thread):
    """Requests that `bench serve` does not make, one after the other."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.url, self.going, self.answered, self.failed = url, True, 0, 0

    def run(self):
        bodies = [
            ("/v1/completions", {"prompt": "The sun is", "n": 4, "use_beam_search": True, "max_tokens": 24}),
            ("/v1/completions", {"prompt": "Once upon a time", "n": 3, "max_tokens": 40, "temperature": 1.0, "logprobs": 5}),
            ("/v1/completions", {"prompt": ["Question: ", "Answer: "], "max_tokens": 1, "echo": True, "logprobs": 1}),
            ("/v1/score", {"context": "The sky is", "continuations": [" blue", " green", " made of cheese"]}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}),
            ("/tokenize", {"prompt": "How many tokens are these?"}),
        ]
        turn = 0
        while self.going:
            path, body = bodies[turn % len(bodies)]
            turn += 1
            try:
                post(self.url + path, body)
                self.answered += 1
            except urllib.error.HTTPError as error:
                # 400: the bundled checkpoint has no chat template. 429: the queue is full, as it should be at times.
                if error.code in (400, 429):
                    self.answered += 1
                else:
                    self.failed += 1
            except OSError:
                self.failed += 1
            time.sleep(0.05)


def load_round(program, url):
    """Two loads at once; returns how many requests completed, were cancelled, failed."""
    common = [program, "bench", "serve", url, "--duration", str(ROUND), "--json"]
    streams = common + ["--concurrency", "96", "--prompt-tokens", "8..400", "--output-tokens", "4..200", "--shared-prefix",
                        "48", "--prefixes", "20", "--cancel-share", "0.15", "--temperature", "0.8"]
    prompts = common + ["--rate", "8", "--prompt-tokens", "500:300", "--output-tokens", "16", "--no-stream", "--health"]
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for c in (streams, prompts)]
    return [json.loads(process.communicate()[0]) for process in running]


def draw(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (memory, load) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 6))
    minutes = [row["seconds"] / 60 for row in rows]
    memory.plot(minutes, [row["resident_kib"] / 1024 for row in rows], label="resident memory, MiB")
    memory.set_ylim(bottom=0)
    memory.legend()
    load.plot(minutes, [row["running"] for row in rows], label="running")
    load.plot(minutes, [row["waiting"] for row in rows], label="waiting")
    load.plot(minutes, [100 * row["kv_use"] for row in rows], label="KV use, %")
    load.set_xlabel("minutes")
    load.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("--plot")
    parser.add_argument("--json")
    arguments = parser.parse_args()

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([arguments.program, "serve", arguments.model, "--port", str(port), "--threads",
                               arguments.threads, "--kv-memory", "256M"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    server.stdout.readline()  # ready
    others = Others(url)
    rows, totals = [], {"completed": 0, "cancelled": 0, "failed": 0}

    def row(seconds):
        now = metrics(url)
        rows.append({"seconds": round(seconds), "resident_kib": resident(server.pid), "descriptors": descriptors(server.pid),
                     "running": now["vllm:num_requests_running"], "waiting": now["vllm:num_requests_waiting"],
                     "kv_use": now["vllm:kv_cache_usage_perc"], "tokens": now["vllm:generation_tokens_total"],
                     "preemptions": now["vllm:num_preemptions_total"]})
        print(*rows[-1].values(), flush=True)

    print("seconds, resident KiB, descriptors, running, waiting, KV use, tokens generated, preemptions")
    row(0)
    others.start()
    start = time.time()
    while time.time() - start < 60 * arguments.minutes:
        sampler = threading.Timer(ROUND * 0.75, lambda: row(time.time() - start))
        sampler.start()
        for report in load_round(arguments.program, url):
            for name in totals:
                totals[name] += report[name]
        sampler.join()
    others.going = False
    others.join()
    time.sleep(1)
    row(time.time() - start)
    server.terminate()
    status = server.wait(timeout=60)
    totals |= {"others": others.answered, "others_failed": others.failed, "exit": status}
    print(json.dumps(totals))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"rows": rows, "totals": totals}, indent=1) + "\n")
    if arguments.plot:
        draw(rows, arguments.plot)
    left = rows[-1]
    clean = left["running"] == left["waiting"] == left["kv_use"] == 0 and status == 0
    raise SystemExit(0 if clean and totals["failed"] == others.failed == 0 else 1)


if __name__ == "__main__":
    main()
