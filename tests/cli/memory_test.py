"""Memory: what inspect says is what a process holds, limits are kept, and what does not fit is refused with numbers."""

import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import unittest

from command import BINARY, MODEL, ROOT, CommandTest, asynct, require_binary

setUpModule = require_binary

MIB = 1 << 20
THP = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
HUGE_PAGES_EVERYWHERE = THP.exists() and "[always]" in THP.read_text()


def with_address_space(limit, *args):
    return asynct(*args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))


def peak_of(*args):
    """Peak resident bytes of a command that succeeds, as it says itself: a parent's would hide in getrusage's."""
    environment = {**os.environ, "ASYNCT_LOG": "debug"}
    result = subprocess.run([BINARY, *map(str, args)], capture_output=True, cwd=ROOT, timeout=120, env=environment)
    assert result.returncode == 0, result.stderr
    return int(re.search(rb"peak resident size: (\d+) KiB", result.stderr).group(1)) * 1024


class InspectAgreesWithReality(CommandTest):
    """One prompt fills the batch and nearly the cache; the peak is then what inspect says of the same options."""

    def prompt(self, tokens):
        """Different words of one token each, so that all pages of the embedding are read."""
        vocabulary = json.loads((MODEL / "tokenizer.json").read_text())["model"]["vocab"]
        words = [word[1:] for word in vocabulary if word[0] == "\u0120" and word[1:].isalpha()]
        return " ".join(words[:tokens])

    def check(self, model, cache, *options):
        options = ["--threads", "2", "--kv-memory", cache, *options]
        report = json.loads(self.succeeds("inspect", model, "--json", *options).stdout)
        self.assertIsNone(report["does_not_fit"])
        self.assertEqual(report["memory_total"], sum(part["bytes"] for part in report["memory"]))
        self.assertEqual((report["batch_tokens"], report["kv_tokens"]), (1024, 2048))
        peak = peak_of("run", model, "-p", self.prompt(1900), "-n", "4", *options)
        allowed = 0.05 * report["memory_total"] + (4 * MIB if HUGE_PAGES_EVERYWHERE else 0)  # heap and stacks
        self.assertLess(abs(peak - report["memory_total"]), allowed, (peak, report["memory_total"], report["memory"]))

    def test_bundled_model(self):
        self.check(MODEL, "16M")

    def test_bundled_model_in_bf16(self):
        self.check(MODEL, "8M", "--dtype", "bf16")

    def test_weights_are_held_once(self):
        out = self.directory / "synth"
        self.succeeds("synth", "--shape", "smollm2,vocab=4096,positions=2048", "--gate-zeros", "0.87", "--out", out)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(MODEL / name, out)
        self.check(out, "90M")

    def test_a_long_context_costs_nothing_until_it_is_used(self):
        short = peak_of("run", MODEL, "-p", "The sun", "-n", "4")
        long = peak_of("run", self.checkpoint(max_position_embeddings=1 << 20), "-p", "The sun", "-n", "4")
        self.assertLess(long - short, 16 * MIB)


class KvMemory(CommandTest):
    def scores(self, *options):
        report = json.loads(self.succeeds("eval", MODEL, "--tasks", "arc_easy", "--limit", "24", "--json", *options).stdout)
        return report["results"]

    def test_a_small_cache_gives_the_same_scores(self):
        self.assertEqual(self.scores("--kv-memory", "2M"), self.scores())

    def test_sizes_are_checked(self):
        run = ["run", MODEL, "-p", "The sun", "-n", "1", "--kv-memory"]
        self.fails_silently_on_stdout(*run, "many", naming=["--kv-memory", "many"])
        self.fails_silently_on_stdout(*run, "-1", naming=["--kv-memory"])
        self.fails_silently_on_stdout(*run, "100K", naming=["KV cache: 102400 bytes hold no block of 131072 bytes", "--kv-memory"])
        self.fails_silently_on_stdout(*run, "90T", naming=["not enough memory", "KV cache", "MiB are left", "the most that fits"])
        self.succeeds(*run, "128K")

    def test_a_prompt_that_the_cache_cannot_hold(self):
        self.fails("run", MODEL, "-p", "word " * 100, "-n", "1", "--kv-memory", "128K", naming=["KV blocks", "--kv-memory"])

    def test_bench(self):
        sizes = ["--prefill", "32", "--batch", "1", "--context", "16", "--steps", "2", "--repeats", "1"]
        self.fails_silently_on_stdout("bench", MODEL, *sizes, "--kv-memory", "128K", naming=["--kv-memory", "needs"])


class AddressSpace(CommandTest):
    """Under any limit a run gives the scores it gives without one, or says what is missing before it starts."""

    EVAL = ["eval", MODEL, "--tasks", "arc_easy", "--limit", "24", "--json", "--threads", "2"]
    CLEAR = r"\Aasynct: error: (not enough memory: .* MiB are left \(address-space limit|.*cannot map|cannot start 2 threads|out of memory: |request: needs .* KV blocks)"

    def test_same_scores_or_a_clear_error(self):
        expected = json.loads(self.succeeds(*self.EVAL).stdout)["results"]
        finished = []
        for limit in (24, 40, 60, 100, 130, 150, 200, 400, 1000):
            with self.subTest(limit):
                result = with_address_space(limit * MIB, *self.EVAL)
                if result.returncode == 0:
                    self.assertEqual(json.loads(result.stdout)["results"], expected)
                else:
                    self.assertEqual(result.returncode, 1)
                    self.assertRegex(result.stderr, self.CLEAR)
                finished.append(result.returncode == 0)
        self.assertEqual(finished, sorted(finished))  # never less with more
        self.assertIn(False, finished)
        self.assertEqual(finished[-3:], [True, True, True])

    def test_inspect_says_that_it_does_not_fit(self):
        result = with_address_space(90 * MIB, "inspect", MODEL, "--json", "--threads", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("not enough memory", json.loads(result.stdout)["does_not_fit"])

    def test_nothing_is_sized_by_a_configuration_that_the_tensors_deny(self):
        model = self.checkpoint(hidden_size=1 << 20, intermediate_size=1 << 20)
        result = with_address_space(400 * MIB, "run", model, "-p", "a", "-n", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("model.embed_tokens.weight", result.stderr)


if __name__ == "__main__":
    unittest.main()
