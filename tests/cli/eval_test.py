"""asynct eval from end to end: outputs, limits, interruption and resuming."""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from command import BINARY, MODEL, ROOT, CommandTest, asynct, require_binary

setUpModule = require_binary


def without_times(report: dict) -> dict:
    changing = {"date", "total_evaluation_time_seconds", "task_seconds", "task_tokens", "task_resumed"}
    return {key: value for key, value in report.items() if key not in changing}


class Eval(CommandTest):
    def evaluate(self, *options, model=MODEL, task="arc_easy"):
        return self.succeeds("eval", model, "--tasks", task, *options)

    def test_table_json_and_file_agree(self):
        output, samples = self.directory / "out.json", self.directory / "samples.jsonl"
        table = self.evaluate("--limit", "5", "--output", output, "--log-samples", samples)
        self.assertEqual(table.stderr, "")  # a pipe gets no progress bar
        self.assertIn("|arc_easy|", table.stdout)
        written = json.loads(output.read_text())
        printed = self.evaluate("--limit", "5", "--json", "--log-samples", samples)
        self.assertEqual(printed.stderr, "")
        self.assertEqual(without_times(json.loads(printed.stdout)), without_times(written))
        self.assertEqual(written["n-samples"]["arc_easy"], {"original": 2376, "effective": 5})
        lines = [json.loads(line) for line in samples.read_text().splitlines()]
        self.assertEqual([line["doc_id"] for line in lines], list(range(5)))
        accuracy = sum(line["acc"] for line in lines) / 5
        self.assertAlmostEqual(written["results"]["arc_easy"]["acc,none"], accuracy)
        self.assertEqual({file.name for file in self.directory.iterdir()}, {"out.json", "samples.jsonl"})

    def test_threads_and_batch_do_not_change_results(self):
        first, second = self.directory / "1.jsonl", self.directory / "2.jsonl"
        self.evaluate("--limit", "8", "--threads", "1", "--log-samples", first)
        self.evaluate("--limit", "8", "--threads", "2", "--batch-tokens", "37", "--log-samples", second)
        self.assertEqual(first.read_text(), second.read_text())

    def test_unknown_task(self):
        output = self.directory / "out.json"
        self.fails_silently_on_stdout("eval", MODEL, "--tasks", "arc_easy,arc_hard", "--output", output, naming=["arc_hard", "gsm8k"])
        self.fails_silently_on_stdout("eval", MODEL, "--tasks", ",", "--output", output, naming="task")
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_limits(self):
        for limit, documents in (("1", 1), ("2.9", 2), ("0.001", 3)):  # a share of 2,376 rounds up
            report = json.loads(self.evaluate("--limit", limit, "--json").stdout)
            self.assertEqual(report["n-samples"]["arc_easy"]["effective"], documents, limit)
        for limit in ("0", "-1", "many", "nan", "1e10", "1e99", "inf"):
            with self.subTest(limit):
                self.fails_silently_on_stdout(
                    "eval", MODEL, "--tasks", "arc_easy", "--limit", limit, naming=["--limit", "at most 1e9", f'"{limit}"']
                )

    def test_unreadable_data(self):
        missing = self.directory / "missing"
        self.fails_silently_on_stdout("eval", MODEL, "--tasks", "arc_easy", "--data", missing, naming=str(missing))
        data = self.directory / "data"
        (data / "arc").mkdir(parents=True)
        run = ["eval", MODEL, "--tasks", "arc_easy", "--limit", "1", "--data", data]
        self.fails_silently_on_stdout(*run, naming="arc_easy_test.jsonl")
        for content in (b"", b"{", b"[1]\n", b'{"id": 1}\n', b"\xff\xfe\n"):
            with self.subTest(content):
                (data / "arc" / "arc_easy_test.jsonl").write_bytes(content)
                self.fails_silently_on_stdout(*run, naming="arc_easy_test.jsonl")

    def test_what_is_wrong_is_told_before_the_model_is_loaded(self):
        broken = self.checkpoint()
        (broken / "model.safetensors").unlink()
        run = ["eval", broken, "--tasks", "gsm8k", "--limit", "1"]
        self.fails_silently_on_stdout(*run, naming="model.safetensors")
        self.fails_silently_on_stdout(*run, "--resume", naming="--resume needs")
        self.fails_silently_on_stdout(*run, "--data", self.directory / "missing", naming="missing")
        data = self.directory / "data"
        (data / "gsm8k").mkdir(parents=True)
        self.fails_silently_on_stdout(*run, "--data", data, naming="no documents: expected")
        (data / "gsm8k" / "gsm8k_test.jsonl").write_text('{"question": "1?", "answer": "#### 1"}\n')
        self.fails_silently_on_stdout(*run, "--data", data, naming="no documents to draw shots from: expected")
        self.fails_silently_on_stdout(*run, "--data", data, "--num-fewshot", "0", naming="model.safetensors")

    def test_an_empty_data_variable_is_none(self):
        self.succeeds("eval", MODEL, "--tasks", "arc_easy", "--limit", "1", env={**os.environ, "ASYNCT_DATA": ""})

    def test_prompt_longer_than_the_context(self):
        short = self.checkpoint(max_position_embeddings=64)
        run = ["eval", short, "--tasks", "boolq", "--limit", "3"]
        output = self.directory / "out.json"
        self.fails_silently_on_stdout(*run, "--output", output, naming=["boolq", "64 tokens", "--truncate"])
        self.assertFalse(output.exists())
        self.succeeds(*run, "--truncate", "--output", output)
        self.assertEqual(json.loads(output.read_text())["n-samples"]["boolq"]["effective"], 3)

    def test_unwritable_output(self):
        run = ["eval", MODEL, "--tasks", "arc_easy", "--limit", "1"]
        for option in ("--output", "--log-samples"):
            for path in (self.directory / "missing" / "out", self.directory):
                with self.subTest(f"{option} {path.name}"):
                    self.fails_silently_on_stdout(*run, option, path, naming=str(path))
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_unwritable_directory(self):
        # Nobody, root included, may create files in sysfs.
        run = ["eval", MODEL, "--tasks", "arc_easy", "--limit", "1"]
        for option in ("--output", "--log-samples"):
            self.fails_silently_on_stdout(*run, option, "/sys/out", naming="/sys/out: cannot write: Permission denied")

    def test_full_disk(self):
        # A file size limit fails a write in the middle of a file, as a full disk does: of the report, and, smaller, of the
        # progress that is kept too.
        import resource

        run = ["eval", MODEL, "--tasks", "arc_easy", "--limit", "3"]
        output, progress = self.directory / "out.json", self.directory / "out.json.progress"
        for limit, kept in ((1200, True), (100, False), (0, False)):
            with self.subTest(limit):
                result = asynct(
                    *run, "--output", output, restore_signals=False,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
                )  # fmt: skip
                self.assertEqual(result.returncode, 1)
                self.assertRegex(result.stderr, r"\Aasynct: error: .*/out.json: cannot write: .*\n\Z")
                self.assertEqual(result.stdout, "")
                self.assertEqual(list(self.directory.iterdir()), [progress])
                self.assertEqual(self.tokens_of_resumed_run(*run, "--output", output) == 0, kept)
                output.unlink()

    def tokens_of_resumed_run(self, *run):
        """How many tokens the model ran to complete a run; its progress file is gone then."""
        report = json.loads(self.succeeds(*run, "--resume", "--json").stdout)
        self.assertEqual(report["n-samples"]["arc_easy"]["effective"], 3)
        self.assertEqual(list(self.directory.glob("*.progress")), [])
        return report["task_tokens"]["arc_easy"]

    def test_full_device_keeps_the_answers(self):
        run = ["eval", MODEL, "--tasks", "arc_easy", "--limit", "3"]
        output, samples = self.directory / "out.json", self.directory / "samples.jsonl"
        full = "/dev/full: cannot write: No space left on device"
        # (options of the run that fails, options that complete it, its files)
        for broken, whole in (
            (["--output", output, "--log-samples", "/dev/full"], ["--output", output, "--log-samples", samples]),
            (["--output", "/dev/full", "--log-samples", samples], ["--log-samples", samples]),
        ):
            with self.subTest(broken):
                self.fails_silently_on_stdout(*run, *broken, naming=full)
                self.assertEqual(len(list(self.directory.glob("*.progress"))), 1)
                self.assertEqual(self.tokens_of_resumed_run(*run, *whole), 0)
                self.assertEqual(len(samples.read_text().splitlines()), 3)
                for file in self.directory.iterdir():
                    file.unlink()
        # Nothing lies beside a device.
        self.fails_silently_on_stdout(*run, "--output", "/dev/full", naming=full)
        self.assertFalse(pathlib.Path("/dev/full.progress").exists())

    def test_full_standard_output_keeps_the_answers(self):
        run = ["eval", MODEL, "--tasks", "arc_easy", "--limit", "3", "--log-samples", self.directory / "samples.jsonl"]
        with open("/dev/full", "w") as full:
            result = subprocess.run([BINARY, *map(str, run)], stdout=full, stderr=subprocess.PIPE, encoding="utf-8", cwd=ROOT)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "asynct: error: standard output: cannot write: No space left on device\n")
        self.assertEqual(self.tokens_of_resumed_run(*run), 0)

    def test_output_may_lie_beside_the_model(self):
        model = self.checkpoint()
        run = ["eval", model, "--tasks", "arc_easy", "--limit", "3", "--output", model / "scores.json"]
        with open("/dev/full", "w") as full:
            subprocess.run([BINARY, *map(str, run)], stdout=full, stderr=subprocess.DEVNULL, cwd=ROOT)
        self.assertTrue((model / "scores.json").exists())
        report = json.loads(self.succeeds(*run, "--resume", "--json").stdout)
        self.assertEqual(report["task_tokens"]["arc_easy"], 0)

    def test_files_of_one_path_are_refused(self):
        out, link = self.directory / "out", self.directory / "link"
        link.symlink_to(out)
        run = ["eval", MODEL, "--tasks", "arc_easy", "--limit", "1", "--output", out, "--log-samples"]
        for samples in (out, link, f"{self.directory}/./out", f"{out}.progress"):
            with self.subTest(samples):
                self.fails_silently_on_stdout(*run, samples, naming=["--log-samples", str(out)])
        self.assertEqual(list(self.directory.iterdir()), [link])
        self.succeeds("eval", MODEL, "--tasks", "arc_easy", "--limit", "1", "--output", "/dev/null", "--log-samples", "/dev/null")

    def test_one_run_a_file(self):
        import fcntl

        output, progress = self.directory / "out.json", self.directory / "out.json.progress"
        run = ["eval", MODEL, "--tasks", "arc_easy", "--limit", "1", "--output", output]
        with open(progress, "w") as other:
            other.write("of another run")
            other.flush()
            fcntl.flock(other, fcntl.LOCK_EX)
            self.fails_silently_on_stdout(*run, naming=[str(progress), "another run"])
            self.fails_silently_on_stdout(*run, "--resume", naming=[str(progress), "another run"])
            self.assertEqual(progress.read_text(), "of another run")
        self.succeeds(*run)
        self.assertEqual(list(self.directory.iterdir()), [output])

    def test_a_failing_task_keeps_those_before_it(self):
        data = self.directory / "data"
        for name in ("arc", "piqa"):
            (data / name).mkdir(parents=True)
        with open(ROOT / "data" / "arc" / "arc_easy_test.jsonl") as rows:
            (data / "arc" / "arc_easy_test.jsonl").write_text("".join(itertools.islice(rows, 3)))
        piqa = data / "piqa" / "piqa_validation.jsonl"
        piqa.write_text('{"goal": "g"}\n')  # that a field is missing is seen when the task comes
        output, samples = self.directory / "out.json", self.directory / "samples.jsonl"
        run = ["eval", MODEL, "--tasks", "arc_easy,piqa", "--data", data, "--output", output, "--log-samples", samples]
        result = asynct(*run)
        self.assertEqual(result.returncode, 1)
        stopped, hint, error = result.stderr.splitlines()
        self.assertEqual(stopped, "failed in piqa; 1 task finished")
        self.assertIn("--resume", hint)
        self.assertIn(f'{piqa}:1: field "sol1" is missing', error)
        self.assertIn("|arc_easy|", result.stdout)
        report = json.loads(output.read_text())
        self.assertEqual((list(report["results"]), report["failed_in"]), (["arc_easy"], "piqa"))
        self.assertEqual(len(samples.read_text().splitlines()), 3)

        piqa.write_text('{"goal": "g", "sol1": "a", "sol2": "b", "label": 1}\n')
        result = self.succeeds(*run, "--resume")
        self.assertIn("resumed: seconds are those of this run", result.stdout)
        report = json.loads(output.read_text())
        self.assertEqual(list(report["results"]), ["arc_easy", "piqa"])
        self.assertEqual((report["task_resumed"], report["task_tokens"]["arc_easy"]), ({"arc_easy": 12}, 0))
        self.assertEqual(len(samples.read_text().splitlines()), 4)

    def test_resume_needs_a_file(self):
        self.fails_silently_on_stdout("eval", MODEL, "--tasks", "piqa", "--limit", "1", "--resume", naming="--resume")


class Interruption(CommandTest):
    """Ctrl-C in the second of two tasks."""

    OPTIONS = ["--tasks", "piqa,arc_easy", "--limit", "250", "--threads", "1"]

    def paths(self, name):
        return self.directory / f"{name}.json", self.directory / f"{name}.jsonl"

    def command(self, name, *more):
        output, samples = self.paths(name)
        return ["eval", MODEL, *self.OPTIONS, "--output", output, "--log-samples", samples, *more]

    def interrupt_in_second_task(self, name):
        progress = self.directory / f"{name}.json.progress"
        command = [BINARY, *map(str, self.command(name))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", cwd=ROOT) as process:
            deadline = time.monotonic() + 60
            while not (progress.exists() and b'"task":"arc_easy"' in progress.read_bytes()):
                self.assertIsNone(process.poll(), "it ended before it could be interrupted")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        return process.returncode, out, err

    def test_interrupted_run_resumes_to_the_same_result(self):
        status, out, err = self.interrupt_in_second_task("broken")
        self.assertEqual(status, 130, err)
        self.assertIn("interrupted in arc_easy", err)
        self.assertIn("--resume", err)
        self.assertIn("|piqa", out)
        output, _ = self.paths("broken")
        self.assertEqual(list(json.loads(output.read_text())["results"]), ["piqa"])
        finished_before = (self.directory / "broken.json.progress").read_bytes().count(b'"request"')
        self.assertGreaterEqual(finished_before, 500)  # all of piqa

        # Other options than those of the interrupted run are refused, and nothing is lost.
        self.fails("eval", MODEL, "--tasks", "piqa,arc_easy", "--limit", "249", "--output", output, "--resume", naming="other requests")

        self.succeeds(*self.command("broken", "--resume"))
        self.succeeds(*self.command("whole"))
        for broken, whole in zip(self.paths("broken"), self.paths("whole")):
            if whole.suffix == ".json":
                self.assertEqual(without_times(json.loads(broken.read_text())), without_times(json.loads(whole.read_text())))
            else:
                self.assertEqual(broken.read_bytes(), whole.read_bytes())
        left = sorted(file.name for file in self.directory.iterdir())
        self.assertEqual(left, ["broken.json", "broken.jsonl", "whole.json", "whole.jsonl"])


if __name__ == "__main__":
    unittest.main()
