"""Scores of `asynct eval` against lm-evaluation-harness's hf backend in fp32 on the bundled checkpoint.

    pytest tests/diff/test_eval.py
    ASYNCT=build/asynct ASYNCT_MODEL=models/asynct-tiny ASYNCT_DIFF_LIMIT=100 pytest ...

lm-eval's own task files, prompts, samplers, filters and metrics run; only its rows come from data/ (local_datasets).
arc_easy is run whole, the others with a limit (lm-eval takes minutes for what asynct does in seconds; mmlu's is of each of
its 57 subjects); generated texts must be equal, log-probabilities within 1e-4 (1e-6 of the sum
where that is more).
"""

import json
import math
import os
import pathlib
import subprocess

import local_datasets
import pytest

local_datasets.install()

import lm_eval  # noqa: E402  (after install)
import torch  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
ASYNCT = os.environ.get("ASYNCT", str(ROOT / "build/asynct"))
MODEL = os.environ.get("ASYNCT_MODEL", str(ROOT / "models/asynct-tiny"))
LIMIT = int(os.environ.get("ASYNCT_DIFF_LIMIT", "100"))

# (tasks, limit, shots, further options of asynct, further arguments of HFLM)
RUNS = {
    "arc_easy": ("arc_easy", None, None, [], {}),
    "choice": ("arc_challenge,hellaswag,piqa,winogrande,boolq", LIMIT, None, [], {}),
    "arc_easy 3 shots": ("arc_easy", LIMIT, 3, [], {}),
    "mmlu": ("mmlu", max(1, LIMIT // 20), None, [], {}),
    "mmlu 5 shots": ("mmlu_anatomy,mmlu_professional_law", max(1, LIMIT // 20), 5, ["--truncate"], {}),
    "lambada": ("lambada_openai", LIMIT, None, [], {}),
    "wikitext": ("wikitext", 3, None, [], {}),
    "bos": ("arc_challenge,lambada_openai", LIMIT, None, ["--bos"], {"add_bos_token": True}),
    "no bos": ("arc_challenge", LIMIT, None, ["--no-bos"], {"add_bos_token": False}),
    "gsm8k": ("gsm8k", max(1, LIMIT // 10), None, ["--truncate"], {}),
    "gsm8k_cot": ("gsm8k_cot", max(1, LIMIT // 10), None, [], {}),
}


def hf_results(tasks, limit, shots, arguments):
    torch.set_num_threads(2)
    model = HFLM(
        pretrained=MODEL, trust_remote_code=True, dtype="float32", device="cpu", batch_size=16, **arguments
    )
    return lm_eval.simple_evaluate(
        model=model, tasks=tasks.split(","), limit=limit, num_fewshot=shots, log_samples=True
    )


def asynct_results(tasks, limit, shots, options, folder):
    command = [ASYNCT, "eval", MODEL, "--tasks", tasks, "--data", str(ROOT / "data"), "--threads", "2"]
    command += ["--output", str(folder / "out.json"), "--log-samples", str(folder / "samples.jsonl"), *options]
    command += [] if limit is None else ["--limit", str(limit)]
    command += [] if shots is None else ["--num-fewshot", str(shots)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    samples = {}
    for line in (folder / "samples.jsonl").read_text(encoding="utf-8").split("\n"):
        if line:
            sample = json.loads(line)
            samples.setdefault(sample["task"], []).append(sample)
    return json.loads((folder / "out.json").read_text()), samples


def check_score(where, found, expected):
    """Equal as printed. Perplexities are exponentials of sums that the hf backend takes in fp32."""
    if isinstance(expected, str):
        assert found == expected, where
    elif "perplexity" in where or "bits_per_byte" in where:
        assert math.isclose(found, expected, rel_tol=2e-5), (where, found, expected)
    else:
        assert f"{found:.4f}" == f"{expected:.4f}", where


def tolerance(logprob):
    """1e-4, or what summing in fp32 costs the hf backend when the sum is in the hundreds."""
    return max(1e-4, 1e-6 * abs(logprob))


def check_sample(where, found, expected):
    for field in ("doc_id", "filter", "metrics", "prompt_hash", "target_hash"):
        assert found[field] == expected[field], (where, field)
    for mine, theirs in zip(found["resps"], expected["resps"], strict=True):
        if isinstance(theirs[0], str):
            assert mine[0] == theirs[0], where
        elif isinstance(theirs[0], tuple):
            assert abs(float(mine[0][0]) - theirs[0][0]) <= tolerance(theirs[0][0]), (where, mine, theirs)
            assert mine[0][1] == str(theirs[0][1]), where
        else:  # a rolling sum, taken in fp32 over thousands of tokens
            assert math.isclose(float(mine[0]), theirs[0], rel_tol=2e-6), (where, mine, theirs)


@pytest.mark.parametrize("name", RUNS)
def test_equals_lm_eval(name, tmp_path):
    tasks, limit, shots, options, arguments = RUNS[name]
    expected = hf_results(tasks, limit, shots, arguments)
    found, samples = asynct_results(tasks, limit, shots, options, tmp_path)
    for task, scores in expected["results"].items():
        for key, value in scores.items():
            if "," in key:
                check_score(f"{task} {key}", found["results"][task][key], value)
    for table in ("versions", "n-samples"):
        assert found[table] == expected[table]
    for task, lines in expected["samples"].items():
        assert len(samples[task]) == len(lines)
        by_key = {(s["doc_id"], s["filter"]): s for s in samples[task]}
        for sample in lines:
            key = (sample["doc_id"], sample["filter"])
            check_sample(f"{task} {key}", by_key[key], sample)
