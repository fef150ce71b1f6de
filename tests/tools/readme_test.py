"""Every command that README.md shows runs as it stands there, and again. make targets are left to make itself."""

import os
import pathlib
import socket
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


SUBCOMMANDS = {"eval", "run", "inspect", "bench", "serve", "synth"}


def commands():
    """Indented lines; what makes the machine ready is left out."""
    for line in (ROOT / "README.md").read_text().splitlines():
        if line.startswith("    ") and not line.startswith(("    make ", "    apt-get ")):
            yield line.strip()


def session():
    """From the start of the server to its end: one shell."""
    shown = list(commands())
    first = next(i for i, command in enumerate(shown) if command.endswith("&"))
    return shown[first : shown.index("kill %1") + 1]


class Readme(unittest.TestCase):
    def test_commands_run(self):
        server = session()
        shown = [command for command in commands() if command not in server]
        clean = [command for command in shown if command.startswith("rm -rf /tmp/asynct-")]
        asynct = [command for command in shown if command not in clean]
        self.assertEqual({command.split()[0] for command in asynct}, {"build/asynct"})
        self.assertEqual({command.split()[1] for command in asynct} | {"serve"}, SUBCOMMANDS)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("build", "data", "models"):
                os.symlink(ROOT / name, pathlib.Path(folder) / name)
            again = [command for command in shown if "/tmp/" in command]  # others leave nothing behind
            for command in shown + again:
                with self.subTest(command):
                    local = command.replace("/tmp/asynct-", f"{folder}/asynct-")
                    done = subprocess.run(local, shell=True, cwd=folder, capture_output=True, text=True, timeout=300)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertNotIn("warning", done.stderr)
                    self.assertEqual(bool(done.stdout.strip()), command not in clean)
            left = {entry.name for entry in pathlib.Path(folder).iterdir()}
            self.assertEqual({name for name in left if not name.startswith("asynct-")}, {"build", "data", "models"})

    def test_server_answers(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        script = "\n".join(["set -em", *session(), "wait"]).replace("8000", port)
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in ("ready: http", '"status":"ok"', '"text":" there was', "data: [DONE]", '"logprob":'):
            self.assertIn(part, done.stdout)

    def test_data_is_found_as_described(self):
        command = [ROOT / "build/asynct", "eval", ROOT / "models/asynct-tiny", "--tasks", "arc_easy", "--limit", "1"]
        with tempfile.TemporaryDirectory() as folder:

            def status(*options, **environment):
                environment = {**{k: v for k, v in os.environ.items() if k != "ASYNCT_DATA"}, **environment}
                return subprocess.run([*command, *options], cwd=folder, env=environment, capture_output=True).returncode

            self.assertEqual(status(), 0)  # above the program
            self.assertEqual(status(ASYNCT_DATA=str(ROOT / "data")), 0)
            self.assertEqual(status(ASYNCT_DATA=folder), 1)
            self.assertEqual(status("--data", str(ROOT / "data"), ASYNCT_DATA=folder), 0)

    def test_make_targets_exist(self):
        text = (ROOT / "README.md").read_text()
        makefile = (ROOT / "Makefile").read_text()
        for target in ("run", "test", "test-diff", "test-page", "test-gpu", "asan", "tsan", "fuzz-smoke", "fuzz-requests",
                       "format", "format-check", "tidy"):
            self.assertIn(target, text)
            self.assertRegex(makefile, rf"(?m)^[a-z -]*\b{target}\b[a-z -]*:")

    def test_files_exist(self):
        for word in (ROOT / "README.md").read_text().replace("`", " ").split():
            word = word.strip(".,:;()")
            if word.startswith(("docs/", "models/", "python/", "bench/")) and "," not in word:
                self.assertTrue((ROOT / word).exists(), word)


if __name__ == "__main__":
    unittest.main()
