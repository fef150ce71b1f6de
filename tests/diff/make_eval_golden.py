"""Writes tests/golden/eval_lm_eval.json: what lm-evaluation-harness makes of answers that depend only on the texts.

The answers come from SHA-256, so the C++ test can give the same ones without a model; every prompt, shot, filter,
metric, standard error and group mean of both evaluators is then compared. Needs lm-eval 0.4.13; run by hand.
"""

import hashlib
import json
import pathlib

import local_datasets

local_datasets.install()

import lm_eval  # noqa: E402  (after install)
from lm_eval.api.model import LM  # noqa: E402

RUNS = [
    {"tasks": ["arc_easy", "arc_challenge", "hellaswag", "piqa", "winogrande", "boolq", "wikitext"]},
    {"tasks": ["gsm8k", "gsm8k_cot"]},
    {"tasks": ["mmlu"], "limit": 40},
    {"tasks": ["mmlu_stem", "mmlu_professional_law"], "limit": 0.05, "num_fewshot": 5},
    {"tasks": ["lambada_openai"], "limit": 200},
    {"tasks": ["arc_easy", "gsm8k_cot"], "limit": 30, "num_fewshot": 3},
    {"tasks": ["lambada_openai"], "limit": 30, "num_fewshot": 2},
]


class HashModel(LM):
    """tests in src/asynct/eval/evaluator_test.cc give the same answers."""

    def loglikelihood(self, requests, **_):
        return [self.score(*request.args) for request in requests]

    def score(self, context, continuation):
        digest = hashlib.sha256((context + "\0" + continuation).encode()).hexdigest()
        number = int(digest[:8], 16)
        return -(number % 1000) / 8.0, number % 7 == 0

    def loglikelihood_rolling(self, requests, **_):
        return [-2.0 * len(request.args[0].encode()) for request in requests]

    def generate_until(self, requests, **_):
        return [self.text(request.args[0]) for request in requests]

    def text(self, prompt):
        number = int(hashlib.sha256(prompt.encode()).hexdigest()[:8], 16) % 40
        return [f"#### {number}", f"so {number}. The answer is {number}.", f"${number}.", "none"][number % 4]


def digest(samples):
    """One hash over the prompts, choices, targets and filtered answers of all samples."""
    total = hashlib.sha256()
    for sample in samples:
        arguments = [a if isinstance(a, str) else "" for args in sample["arguments"] for a in args]
        filtered = [f if isinstance(f, str) else "" for f in sample["filtered_resps"]]
        for part in arguments + filtered + [str(sample["target"]), sample["filter"], sample["prompt_hash"]]:
            total.update(part.encode() + b"\0")
    return total.hexdigest()


def main():
    runs = []
    for run in RUNS:
        result = lm_eval.simple_evaluate(model=HashModel(), log_samples=True, **run)
        keep = ("results", "groups", "versions", "n-shot", "higher_is_better", "n-samples", "group_subtasks")
        entry = {"run": run, **{key: result[key] for key in keep if key in result}}
        entry["samples"] = {task: digest(samples) for task, samples in result["samples"].items()}
        runs.append(entry)
    path = pathlib.Path(__file__).resolve().parents[1] / "golden" / "eval_lm_eval.json"
    path.write_text(json.dumps(runs, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
