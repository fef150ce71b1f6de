#!/usr/bin/env python3
"""Writes tests/golden/scores_asynct_tiny.json: what lm-eval's hf backend says of the bundled checkpoint in fp32.

    PYTHONPATH=tests/diff python tests/diff/make_score_golden.py        # in the environment of `make test-diff`

tests/cli/score_golden_test.py holds the engine to it where PyTorch is not at hand. Make it anew when the checkpoint
changes.
"""

import json
import pathlib

from test_eval import hf_results

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "scores_asynct_tiny.json"
RUNS = [("arc_easy", None), ("arc_challenge,piqa,winogrande,boolq,hellaswag", 100), ("mmlu_anatomy,lambada_openai", 50)]


def main():
    golden = []
    for tasks, limit in RUNS:
        found = hf_results(tasks, limit, None, {})
        scores = {
            task: {key: value for key, value in table.items() if "," in key and not isinstance(value, str)}
            for task, table in found["results"].items()
        }
        golden.append({"tasks": tasks, "limit": limit, "results": scores})
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
