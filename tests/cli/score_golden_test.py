"""Scores of the bundled checkpoint as lm-eval's hf backend gave them (tests/diff/make_score_golden.py)."""

import json
import math
import unittest

from command import MODEL, ROOT, CommandTest


class ScoreGolden(CommandTest):
    def test_scores_are_lm_evals(self):
        golden = json.loads((ROOT / "tests" / "golden" / "scores_asynct_tiny.json").read_text())
        self.assertEqual(golden[0]["tasks"], "arc_easy")
        self.assertIsNone(golden[0]["limit"])
        for run in golden:
            limit = [] if run["limit"] is None else ["--limit", run["limit"]]
            result = self.succeeds("eval", MODEL, "--tasks", run["tasks"], *limit, "--json", timeout=300)
            found = json.loads(result.stdout)["results"]
            for task, scores in run["results"].items():
                for key, value in scores.items():
                    with self.subTest(f"{task} {key}"):
                        if "perplexity" in key:  # an exponential of sums that the hf backend takes in fp32
                            self.assertTrue(math.isclose(found[task][key], value, rel_tol=2e-5))
                        else:
                            self.assertEqual(f"{found[task][key]:.4f}", f"{value:.4f}")


if __name__ == "__main__":
    unittest.main()
