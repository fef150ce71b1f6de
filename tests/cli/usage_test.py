"""Help and arguments: what a user sees before a model is even opened."""

import os
import re
import unittest

from command import MODEL, CommandTest, require_binary

COMMANDS = ("eval", "run", "inspect", "bench", "synth")
SCREEN_LINES, SCREEN_COLUMNS = 40, 100

setUpModule = require_binary


class Help(CommandTest):
    def check_screen(self, text):
        lines = text.splitlines()
        self.assertLessEqual(len(lines), SCREEN_LINES)
        self.assertLessEqual(max(map(len, lines)), SCREEN_COLUMNS)

    def test_names_every_command(self):
        text = self.succeeds("--help").stdout
        self.check_screen(text)
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} ")

    def test_of_each_command_fits_a_screen(self):
        for command in COMMANDS:
            with self.subTest(command):
                result = self.succeeds(command, "--help")
                self.assertEqual(result.stderr, "")
                self.assertIn(f"Usage: asynct {command}", result.stdout)
                self.check_screen(result.stdout)

    def test_every_option_with_a_value_states_its_default(self):
        no_default = {"--limit", "--num-fewshot", "--output", "--log-samples", "--stop"}  # without it: nothing
        checked = 0
        for command in COMMANDS:
            text = re.sub(r"\n {20,}", " ", self.succeeds(command, "--help").stdout)
            for name, rest in re.findall(r"(?m)^  (?:-\w,)?(--[a-z-]+) (.*)$", text):
                if re.match("TEXT|INT|UINT|FLOAT", rest) and name not in no_default:
                    with self.subTest(f"{command} {name}"):
                        self.assertRegex(rest, "=|default|REQUIRED|without it")
                        checked += 1
        self.assertGreater(checked, 25)

    def test_version(self):
        self.assertRegex(self.succeeds("--version").stdout, r"\A\d+\.\d+\.\d+\n\Z")


class Arguments(CommandTest):
    def test_no_command(self):
        self.fails_silently_on_stdout(naming="subcommand is required")

    def test_unknown_command(self):
        self.fails_silently_on_stdout("evaluate", MODEL, naming='"evaluate"')

    def test_unknown_option(self):
        for command in COMMANDS:
            arguments = ["--out", self.directory / "new"] if command == "synth" else [MODEL]
            if command == "eval":
                arguments += ["--tasks", "piqa"]
            with self.subTest(command):
                self.fails_silently_on_stdout(command, *arguments, "--frob", "3", naming=["--frob", f"asynct {command} --help"])
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_missing_arguments(self):
        for command in ("eval", "run", "inspect", "bench"):
            self.fails_silently_on_stdout(command, naming="MODEL is required")
        self.fails_silently_on_stdout("eval", MODEL, naming="--tasks is required")
        self.fails_silently_on_stdout("synth", naming="--out is required")

    def test_unknown_dtype_and_device(self):
        for command in (["run", MODEL, "-p", "a"], ["eval", MODEL, "--tasks", "piqa"], ["bench", MODEL]):
            self.fails_silently_on_stdout(*command, "--dtype", "fp8", naming=["--dtype", "fp8", "fp32", "bf16"])
        for command in (["run", MODEL, "-p", "a"], ["eval", MODEL, "--tasks", "piqa"]):
            self.fails_silently_on_stdout(*command, "--device", "abacus", naming=["abacus", "cpu"])

    def test_numbers_out_of_range(self):
        for option, value, wanted in (
            ("--threads", "-1", "1 to 1024"),
            ("--threads", "many", "many"),
            ("--max-tokens", "0", "--max-tokens"),
            ("--temperature", "-1", "temperature is -1"),
            ("--top-p", "1.5", "top_p is 1.5"),
            ("--min-p", "-0.1", "min_p is -0.1"),
            ("--top-k", "-2", "top_k is -2"),
            ("--kv-memory", "-5", 'found "-5"'),
        ):
            with self.subTest(f"{option} {value}"):
                result = self.fails("run", MODEL, "-p", "a", option, value, naming=wanted)
                self.assertLess(len(result.stderr), 200)

    def test_empty_values(self):
        for option in ("--limit", "--output", "--log-samples", "--data", "--kv-memory"):
            with self.subTest(option):
                self.fails_silently_on_stdout("eval", MODEL, "--tasks", "piqa", option, "", naming=option)

    def test_unknown_log_level(self):
        environment = {**os.environ, "ASYNCT_LOG": "loud"}
        result = self.succeeds("run", MODEL, "-p", "a", "-n", "1", env=environment)
        self.assertRegex(result.stderr, r"\Aasynct: warning: ASYNCT_LOG is \"loud\", expected [^\n]*\n\Z")
        self.assertEqual(self.succeeds("run", MODEL, "-p", "a", "-n", "1", env={**environment, "ASYNCT_LOG": ""}).stderr, "")

    def test_missing_directory(self):
        for command in (["eval", "--tasks", "piqa"], ["run", "-p", "a"], ["inspect"], ["bench"]):
            with self.subTest(command[0]):
                missing = self.directory / "missing"
                self.fails_silently_on_stdout(*command, missing, naming=[str(missing), "not exist"])

    def test_a_file_is_not_a_directory(self):
        self.fails_silently_on_stdout("inspect", MODEL / "config.json", naming="config.json")


if __name__ == "__main__":
    unittest.main()
