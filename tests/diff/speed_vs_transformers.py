"""Evaluation speed of `asynct eval` against transformers eager under lm-evaluation-harness, in one run.

    python tests/diff/speed_vs_transformers.py [--tasks arc_easy,mmlu,gsm8k] [--limits mmlu=10,gsm8k=32] [--batch mmlu=1]

Both sides: fp32, the same threads, the same documents, and the scores must agree. lm-eval runs each task at several batch
sizes on a small part first and takes the fastest. Loading is outside the clocks on both sides. Writes
bench/results/eval_cpu.json.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

import local_datasets

local_datasets.install()

import lm_eval  # noqa: E402  (after install)
import torch  # noqa: E402
import transformers  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH_SIZES = {"arc_easy": (8, 16, 32, 64), "mmlu": (1, 2, 4), "gsm8k": (4, 8, 16)}
PROBE = {"arc_easy": 100, "mmlu": 1, "gsm8k": 16}  # documents (of each subject) that choose the batch size
SHOTS = {"mmlu": 5}


def hf_run(model, task, limit):
    """Seconds of lm-eval's requests alone (its prompt building is not what is compared), and the scores."""
    clock = {"seconds": 0.0}

    def timed(method):
        def call(requests, *rest, **more):
            start = time.perf_counter()
            result = method(requests, *rest, **more)
            clock["seconds"] += time.perf_counter() - start
            return result

        return call

    names = ("loglikelihood", "generate_until")
    originals = {name: getattr(model, name) for name in names}
    for name in names:
        setattr(model, name, timed(originals[name]))
    result = lm_eval.simple_evaluate(
        model=model, tasks=[task], limit=limit, num_fewshot=SHOTS.get(task), bootstrap_iters=0, log_samples=False
    )
    for name in names:
        setattr(model, name, originals[name])
    return clock["seconds"], scores_of(result["results"][task])


def scores_of(entry):
    return {k: v for k, v in entry.items() if "," in k and "_stderr" not in k}


def best_batch(model, task):
    seconds = {}
    for size in BATCH_SIZES[task]:
        model.batch_size_per_gpu = size
        seconds[size] = hf_run(model, task, PROBE[task])[0]
    print(f"{task}: batch sizes {({k: round(v, 2) for k, v in seconds.items()})}", flush=True)
    return min(seconds, key=seconds.get), seconds


def asynct_run(asynct, model, task, limit, threads):
    """Seconds from prompt building to scores, as `asynct eval` reports them for its tasks."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        command = [asynct, "eval", model, "--tasks", task, "--threads", str(threads), "--data", str(ROOT / "data")]
        command += ["--output", str(out), "--dtype", "fp32", "--truncate"]
        command += [] if limit is None else ["--limit", str(limit)]
        command += ["--num-fewshot", str(SHOTS[task])] if task in SHOTS else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report = json.loads(out.read_text())
    return sum(report["task_seconds"].values()), scores_of(report["results"][task]), sum(report["task_tokens"].values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asynct", default=str(ROOT / "build/asynct"))
    parser.add_argument("--model", default=str(ROOT / "models/asynct-tiny"))
    parser.add_argument("--tasks", default="arc_easy,mmlu,gsm8k")
    parser.add_argument("--limits", default="mmlu=10,gsm8k=32", help="task=documents (of each subject), comma-separated")
    parser.add_argument("--batch", default="", help="task=size, comma-separated: lm-eval's batch size, not tried out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", default=str(ROOT / "bench/results/eval_cpu.json"))
    args = parser.parse_args()
    limits, batches = (
        {name: int(n) for name, n in (item.split("=") for item in text.split(",") if item)}
        for text in (args.limits, args.batch)
    )

    torch.set_num_threads(args.threads)
    model = HFLM(pretrained=args.model, trust_remote_code=True, dtype="float32", device="cpu", batch_size=8)
    rows = []
    for task in args.tasks.split(","):
        limit = limits.get(task)
        batch, probes = (batches[task], {}) if task in batches else best_batch(model, task)
        model.batch_size_per_gpu = batch
        hf_seconds, hf_scores = hf_run(model, task, limit)
        our_seconds, our_scores, tokens = asynct_run(args.asynct, args.model, task, limit, args.threads)
        same = all(f"{our_scores[k]:.4f}" == f"{v:.4f}" for k, v in hf_scores.items())
        rows.append(
            {"task": task, "command": " ".join(["python", *sys.argv]), "limit": limit, "shots": SHOTS.get(task), "asynct_seconds": our_seconds, "asynct_tokens": tokens,
             "transformers_seconds": hf_seconds, "transformers_batch_size": batch,
             "transformers_probe_seconds": probes, "ratio": hf_seconds / our_seconds,
             "scores_equal": same, "scores": our_scores, "transformers_scores": hf_scores}
        )
        print(f"{task}: asynct {our_seconds:.1f} s, transformers {hf_seconds:.1f} s (batch {batch}), "
              f"ratio {hf_seconds / our_seconds:.2f}, scores {'equal' if same else 'DIFFER'}", flush=True)
    record = {
        "threads": args.threads, "dtype": "fp32",
        "cpu": cpu_name(), "torch": torch.__version__, "transformers": transformers.__version__,
        "lm_eval": lm_eval.__version__, "rows": rows,
    }
    path = pathlib.Path(args.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():  # a task measured alone replaces its own row
        old = [row for row in json.loads(path.read_text())["rows"] if row["task"] not in args.tasks.split(",")]
        record["rows"] = old + rows
    path.write_text(json.dumps(record, indent=1) + "\n")
    if not all(row["scores_equal"] for row in rows):
        raise SystemExit("scores differ")


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n"):
        if line.startswith("model name"):
            return f"{line.split(':')[1].strip()}, {os.cpu_count()} logical cores"
    return platform.processor()


if __name__ == "__main__":
    main()
