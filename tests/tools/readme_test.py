"""Every command that README.md shows runs as it stands there. make targets are left to make itself."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands():
    for line in (ROOT / "README.md").read_text().splitlines():
        if line.startswith("    build/asynct "):
            yield line.strip()


class Readme(unittest.TestCase):
    def test_commands_run(self):
        shown = list(commands())
        self.assertGreaterEqual(len(shown), 8)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("build", "data", "models"):
                os.symlink(ROOT / name, pathlib.Path(folder) / name)
            for command in shown:
                with self.subTest(command):
                    command = command.replace("/tmp/asynct-random", f"{folder}/asynct-random")
                    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=300)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertTrue(done.stdout.strip(), "printed nothing")

    def test_make_targets_exist(self):
        text = (ROOT / "README.md").read_text()
        makefile = (ROOT / "Makefile").read_text()
        for target in ("run", "test", "test-diff", "asan", "tsan", "fuzz-smoke", "format", "tidy"):
            self.assertIn(target, text)
            self.assertRegex(makefile, rf"(?m)^[a-z -]*\b{target}\b[a-z -]*:")

    def test_files_exist(self):
        for word in (ROOT / "README.md").read_text().replace("`", " ").split():
            word = word.strip(".,:;()")
            if word.startswith(("docs/", "models/", "python/", "bench/")) and "," not in word:
                self.assertTrue((ROOT / word).exists(), word)


if __name__ == "__main__":
    unittest.main()
