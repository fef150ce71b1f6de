"""What the tests of the command line share: running it, and checkpoints to run it on. Standard library only."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ASYNCT_BIN", str(ROOT / "build" / "asynct"))
MODEL = ROOT / "models" / "asynct-tiny"


def asynct(*args, stdin="", timeout=60, **options):
    """Runs the command; stdout and stderr are pipes, so it must be quiet."""
    command = [BINARY, *map(str, args)]
    return subprocess.run(
        command, input=stdin, capture_output=True, encoding="utf-8", cwd=ROOT, timeout=timeout, **options
    )


class CommandTest(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)

    def succeeds(self, *args, **options):
        result = asynct(*args, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def fails(self, *args, naming=(), **options):
        """Exit status 1 and one line on stderr that contains each of `naming`; nothing else comes out."""
        result = asynct(*args, **options)
        self.assertEqual(result.returncode, 1, result)
        self.assertRegex(result.stderr, r"\Aasynct: error: [^\n]+\n\Z")
        for text in (naming,) if isinstance(naming, str) else naming:
            self.assertIn(text, result.stderr)
        return result

    def fails_silently_on_stdout(self, *args, **options):
        self.assertEqual(self.fails(*args, **options).stdout, "")

    def checkpoint(self, **config):
        """A copy of the bundled checkpoint with other values in its config.json (None removes a key). Files are
        links: replace them, do not write into them."""
        directory = self.directory / "model"
        directory.mkdir()
        for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            (directory / name).symlink_to(MODEL / name)
        values = json.loads((MODEL / "config.json").read_text())
        values.update(config)
        values = {key: value for key, value in values.items() if value is not None}
        (directory / "config.json").write_text(json.dumps(values))
        return directory


def replace(path: pathlib.Path, content: bytes):
    path.unlink()
    path.write_bytes(content)


def poison(directory: pathlib.Path, tensor: str, values: dict):
    """Copies model.safetensors and overwrites elements of a bf16 tensor: {index: bits}."""
    path = directory / "model.safetensors"
    content = bytearray(path.read_bytes())
    (header_size,) = struct.unpack_from("<Q", content)
    entry = json.loads(content[8 : 8 + header_size])[tensor]
    assert entry["dtype"] == "BF16"
    for index, bits in values.items():
        struct.pack_into("<H", content, 8 + header_size + entry["data_offsets"][0] + 2 * index, bits)
    replace(path, bytes(content))


def synthesize(directory: pathlib.Path, *options):
    """A small random checkpoint, without a tokenizer."""
    out = directory / "synth"
    result = asynct("synth", "--shape", "tiny,layers=2,vocab=300", "--out", out, *options)
    assert result.returncode == 0, result.stderr
    return out


def require_binary():
    if shutil.which(BINARY) is None:
        raise FileNotFoundError(f"{BINARY}: build it, or set ASYNCT_BIN")
