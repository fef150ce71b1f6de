"""run, inspect, bench and synth from end to end."""

import json
import os
import shutil
import signal
import subprocess
import unittest

from command import BINARY, MODEL, ROOT, CommandTest, asynct, require_binary, synthesize

setUpModule = require_binary

SAMPLING = ["-n", "24", "--temperature", "0.9", "--top-k", "50", "--top-p", "0.95"]


class Run(CommandTest):
    def text(self, *options):
        result = self.succeeds("run", MODEL, "-p", "Once upon a time", *options)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def test_same_seed_same_text(self):
        first = self.text(*SAMPLING, "--seed", "7")
        self.assertGreater(len(first), 20)
        self.assertEqual(self.text(*SAMPLING, "--seed", "7", "--threads", "1"), first)
        self.assertNotEqual(self.text(*SAMPLING, "--seed", "8"), first)

    def test_greedy_ignores_the_seed(self):
        self.assertEqual(self.text("-n", "16", "--seed", "1"), self.text("-n", "16", "--seed", "2"))

    def test_bf16(self):
        self.assertGreater(len(self.text("-n", "16", "--dtype", "bf16")), 10)

    def test_stop_string_is_not_printed(self):
        whole = self.text("-n", "40")
        stop = whole[10:14]
        self.assertEqual(self.text("-n", "40", "--stop", stop), whole[: whole.index(stop)] + "\n")

    def test_prompts_from_standard_input(self):
        result = self.succeeds("run", MODEL, "-n", "8", stdin="Once upon a time\n\nThe sun\n")
        self.assertEqual(result.stderr, "")
        expected = [self.text("-n", "8"), "\n", self.succeeds("run", MODEL, "-n", "8", "-p", "The sun").stdout]
        self.assertEqual(result.stdout, "".join(expected))

    def test_a_bad_prompt_of_many_costs_only_itself(self):
        directory = self.checkpoint(max_position_embeddings=64)
        prompts = ["The sun", "word " * 100, "Once upon a time"]
        result = asynct("run", directory, "-n", "8", stdin="\n".join(prompts) + "\n")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Aasynct: error: line 2: the prompt has \d+ tokens; [^\n]* 64\n\Z")
        texts = [self.succeeds("run", directory, "-n", "8", "-p", prompts[i]).stdout for i in (0, 2)]
        self.assertEqual(result.stdout, "\n".join(texts))

    def test_no_input_is_no_error(self):
        self.assertEqual(self.succeeds("run", MODEL).stdout, "")

    def test_empty_prompt(self):
        self.fails_silently_on_stdout("run", MODEL, "-p", "", naming="prompt is empty")

    def test_prompt_longer_than_the_context(self):
        directory = self.checkpoint(max_position_embeddings=32)
        self.fails_silently_on_stdout("run", directory, "-p", "word " * 100, naming=["prompt has", "32"])
        # A prompt that fits is continued up to the end of the context.
        self.succeeds("run", directory, "-p", "word " * 10, "-n", "1000")

    def test_threads_that_cannot_start(self):
        import resource

        limit = 1500 << 20  # of address space: the stacks of 500 threads need more
        result = asynct(
            "run", MODEL, "-p", "a", "-n", "1", "--threads", "500",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        )  # fmt: skip
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Aasynct: error: cannot start 500 threads: .*\n\Z")

    def signalled(self, number, *options, prompt=b""):
        """Sends a signal once text comes. Returns the exit status."""
        command = [BINARY, "run", MODEL, "-n", "2000", *options]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
            process.stdin.write(prompt)
            process.stdin.flush()
            self.assertTrue(os.read(process.stdout.fileno(), 1))
            process.send_signal(number)
            out, err = process.communicate(b"The sun\n" if prompt else b"", timeout=30)
        self.assertEqual(err, b"")
        self.assertTrue(out.endswith(b"\n"))
        self.assertEqual(out.count(b"The sun"), 0)
        return process.returncode

    def test_signals_end_a_prompt(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.assertEqual(self.signalled(number, "-p", "Once upon a time"), 128 + number)

    def test_signals_end_prompts_from_a_pipe(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.assertEqual(self.signalled(number, prompt=b"Once upon a time\n"), 128 + number)

    def test_at_a_terminal_an_interrupt_stops_the_text_not_the_program(self):
        terminal, stdin = os.openpty()
        self.addCleanup(os.close, terminal)
        pipes = dict(stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with subprocess.Popen([BINARY, "run", MODEL, "-n", "2000"], cwd=ROOT, **pipes) as process:
            os.close(stdin)
            for number in (signal.SIGINT, signal.SIGTERM):
                os.write(terminal, b"Once upon a time\n")
                self.assertTrue(os.read(process.stdout.fileno(), 1))  # text comes
                self.assertIsNone(process.poll())
                process.send_signal(number)
                if number == signal.SIGINT:
                    while not os.read(process.stdout.fileno(), 1 << 16).endswith(b"\n"):
                        pass
            process.communicate(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)


class Inspect(CommandTest):
    def test_json(self):
        report = json.loads(self.succeeds("inspect", MODEL, "--json").stdout)
        self.assertEqual(report["config"]["hidden_size"], 256)
        self.assertEqual(report["parameters"], 7347529)
        # The embedding is the output matrix too: mapped as the one, packed as the other.
        total = sum(part["parameters"] for part in report["memory"])
        self.assertEqual(total, report["parameters"] + 4096 * 256)
        heads = report["config"]["layers"] * report["config"]["heads"]
        self.assertEqual(sum(report["head_classes"].values()), heads)
        # keys and values of 8 layers, 2 heads of 64
        self.assertEqual(report["kv_bytes_per_token"], {"fp32": 2 * 8 * 2 * 64 * 4, "bf16": 2 * 8 * 2 * 64 * 2})

    def test_table(self):
        result = self.succeeds("inspect", MODEL)
        for word in ("7.35 M parameters", "asynci", "sigma", "skip-safe"):
            self.assertIn(word, result.stdout)
        self.assertEqual(result.stderr, "")


@unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
class FullStandardOutput(CommandTest):
    def test_is_an_error(self):
        for command in (["inspect", MODEL], ["run", MODEL, "-p", "a", "-n", "4"], ["eval", MODEL, "--tasks", "piqa", "--limit", "1"]):
            with self.subTest(command[0]), open("/dev/full", "wb") as full:
                result = subprocess.run([BINARY, *command], stdout=full, stderr=subprocess.PIPE, cwd=ROOT, encoding="utf-8")
                self.assertEqual(result.returncode, 1)
                self.assertIn("standard output", result.stderr)


class Synth(CommandTest):
    def test_synth_inspect_bench(self):
        out = synthesize(self.directory, "--seed", "3", "--gate-zeros", "0.8")
        report = json.loads(self.succeeds("inspect", out, "--check", "--json").stdout)
        self.assertEqual((report["config"]["layers"], report["config"]["vocab_size"]), (2, 300))
        self.assertIsNone(report["tokenizer_ids"])
        bench = self.succeeds(
            "bench", out, "--json", "--prefill", "32", "--batch", "1,2", "--context", "16", "--steps", "4", "--repeats", "1"
        )
        self.assertEqual(bench.stderr, "")
        results = json.loads(bench.stdout)["results"]
        self.assertEqual(len(results), 3)
        for result in results:
            self.assertGreater(result["tokens_per_second"], 0)
            self.assertGreater(result["read_bytes_a_step"], 0)
            self.assertAlmostEqual(result["active_neurons"], 0.2, delta=0.1)
            self.assertTrue(result["in_cache"])  # half a megabyte
            self.assertIsNone(result["read_bandwidth_share"])

    def test_same_seed_same_file(self):
        files = []
        for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
            parent = self.directory / name
            parent.mkdir()
            files.append((synthesize(parent, "--seed", seed) / "model.safetensors").read_bytes())
        self.assertEqual(files[0], files[1])
        self.assertNotEqual(files[0], files[2])

    def test_never_overwrites(self):
        out = synthesize(self.directory)
        before = (out / "config.json").read_bytes()
        self.fails_silently_on_stdout("synth", "--out", out, naming=[str(out), "exists"])
        self.assertEqual((out / "config.json").read_bytes(), before)

    def test_bad_shapes(self):
        for shape, wanted in (
            ("huge", "huge"),
            ("tiny,layers=0", "layers"),
            ("tiny,depth=2", "depth"),
            ("tiny,heads=3", "heads"),
            ("tiny,rope_theta=nan", 'rope_theta is "nan"'),
            ("tiny,rope_theta=inf", 'rope_theta is "inf"'),
        ):
            with self.subTest(shape):
                self.fails_silently_on_stdout("synth", "--shape", shape, "--out", self.directory / "new", naming=wanted)
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_disk_too_small(self):
        # A file size limit fails a write in the middle of a file, as a full disk does.
        import resource

        result = asynct(
            "synth", "--shape", "tiny", "--out", self.directory / "new", restore_signals=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)),
        )  # fmt: skip
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Aasynct: error: .*model.safetensors.*\n\Z")
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_without_a_tokenizer_there_is_no_text(self):
        out = synthesize(self.directory)
        for command in (["run", "-p", "a"], ["eval", "--tasks", "piqa", "--limit", "1"]):
            self.fails_silently_on_stdout(*command, out, naming="tokenizer.json")


class Bench(CommandTest):
    def test_text_must_be_of_the_models_tokens(self):
        out = synthesize(self.directory)  # 300 tokens, the tokenizer has 4,096
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(MODEL / name, out)
        text = self.directory / "text"
        sizes = ["--prefill", "8", "--batch", "1", "--context", "8", "--steps", "2", "--repeats", "1"]
        text.write_text("The sun was shining.")
        self.fails_silently_on_stdout("bench", out, *sizes, "--text", text, naming=["--text", "the model has 300 tokens"])
        self.succeeds("bench", MODEL, *sizes, "--text", text)
        text.write_text("")
        self.fails_silently_on_stdout("bench", MODEL, *sizes, "--text", text, naming=["--text", "no tokens"])

    def test_one_decode_step_is_a_decode(self):
        out = self.directory / "synth"
        self.succeeds("synth", "--shape", "tiny,layers=2,vocab=300,positions=2048", "--out", out)

        def flops(steps):
            sizes = ["--batch", "1", "--context", "1500", "--repeats", "1", "--prefill", "8", "--steps", steps]
            return json.loads(self.succeeds("bench", out, "--json", *sizes).stdout)["results"][1]["flops"]

        self.assertAlmostEqual(2 * flops(1) / flops(2), 1, delta=0.02)

    def test_bad_arguments(self):
        for options, wanted in (
            (["--prefill", "0"], "a prompt of 0"),
            (["--prefill", "100000"], "2048"),
            (["--batch", "-1"], "a batch of -1"),
            (["--batch", str(2**63 - 1)], "1 to 1024"),
            (["--context", str(2**63 - 1)], "1 to 2048"),
            (["--context", "2000", "--steps", "100"], "2000 tokens and 100 decode steps"),
            (["--prefill", "many"], "many"),
            (["--text", self.directory / "missing"], "missing"),
        ):
            with self.subTest(options):
                self.fails_silently_on_stdout("bench", MODEL, *options, naming=wanted)


if __name__ == "__main__":
    unittest.main()
