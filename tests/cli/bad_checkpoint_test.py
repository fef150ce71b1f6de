"""Checkpoints that are broken: the command names what is wrong and exits 1, whichever command opens them."""

import json
import struct
import unittest

from command import MODEL, CommandTest, poison, replace, require_binary

setUpModule = require_binary

BF16_NAN, BF16_INFINITY = 0x7FC0, 0x7F80
SHORT_BENCH = ["--prefill", "8", "--batch", "1", "--context", "8", "--steps", "1", "--repeats", "1"]


class BadCheckpoint(CommandTest):
    def every_command_fails(self, directory, naming, but=()):
        commands = (["eval", "--tasks", "arc_easy", "--limit", "1"], ["run", "-p", "Hello"], ["inspect"], ["bench", *SHORT_BENCH])
        for command in commands:
            if command[0] not in but:
                with self.subTest(command[0]):
                    self.fails_silently_on_stdout(*command, directory, naming=naming)

    def with_safetensors(self, content: bytes):
        directory = self.checkpoint()
        replace(directory / "model.safetensors", content)
        return directory

    def test_empty_directory(self):
        self.every_command_fails(self.directory, naming=[str(self.directory), ".json"])

    def test_truncated_weights(self):
        content = (MODEL / "model.safetensors").read_bytes()
        directory = self.with_safetensors(content[: len(content) // 2])
        self.every_command_fails(directory, naming=["model.safetensors", "truncated"])

    def test_hostile_headers(self):
        def file(header) -> bytes:
            text = header if isinstance(header, bytes) else json.dumps(header).encode()
            return struct.pack("<Q", len(text)) + text + bytes(64)

        whole = {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}
        for what, content in {
            "empty": b"",
            "seven bytes": bytes(7),
            "a header of 2^63 bytes": struct.pack("<Q", 1 << 63) + bytes(64),
            "no JSON": file(b"\xff\xfe{{{"),
            "a list": file([]),
            "overlap": file({"a": whole, "b": whole}),
            "beyond the end": file({"a": {**whole, "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}),
            "backwards": file({"a": {**whole, "data_offsets": [64, 0]}}),
            "an overflowing shape": file({"a": {**whole, "shape": [1 << 62, 1 << 62]}}),
            "a negative size": file({"a": {**whole, "shape": [-16]}}),
            "an unknown dtype": file({"a": {**whole, "dtype": "Q4"}}),
            "deep nesting": file(b"[" * 100000),
        }.items():
            with self.subTest(what):
                directory = self.directory / what.replace(" ", "_")
                directory.mkdir()
                (directory / "config.json").symlink_to(MODEL / "config.json")
                (directory / "model.safetensors").write_bytes(content)
                self.fails_silently_on_stdout("inspect", directory, naming="model.safetensors")

    def test_check_names_tensors_with_nan(self):
        directory = self.checkpoint()
        poison(directory, "model.layers.3.mlp.up_proj.weight", {0: BF16_NAN, 7: BF16_NAN, 9: BF16_INFINITY})
        poison(directory, "model.norm.gamma", {0: BF16_NAN})
        result = self.fails("inspect", directory, "--check", naming=["2 tensors", "NaN"])
        self.assertIn("model.layers.3.mlp.up_proj.weight: 2 NaN, 1 infinite\n", result.stdout)
        self.assertIn("model.norm.gamma: 1 NaN, 0 infinite\n", result.stdout)
        listed = json.loads(self.fails("inspect", directory, "--check", "--json").stdout)["bad_tensors"]
        self.assertEqual(listed[0], {"tensor": "model.layers.3.mlp.up_proj.weight", "nan": 2, "infinite": 1})

    def test_check_passes_a_sound_checkpoint(self):
        self.assertIn("no NaN", self.succeeds("inspect", MODEL, "--check").stdout)
        self.assertEqual(json.loads(self.succeeds("inspect", MODEL, "--check", "--json").stdout)["bad_tensors"], [])

    def test_nan_weights_never_give_numbers(self):
        row = {i: BF16_NAN for i in range(256)}
        for tensor in ("self_attn.q_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.down_proj"):
            with self.subTest(tensor):
                directory = self.checkpoint()
                poison(directory, f"model.layers.0.{tensor}.weight", row)
                self.fails("run", directory, "-p", "Hello", naming="NaN")
                self.fails_silently_on_stdout("eval", directory, "--tasks", "arc_easy", "--limit", "2", naming="NaN")
                self.cleanup(directory)

    def test_broken_tokenizer(self):
        text = (MODEL / "tokenizer.json").read_text()
        values = json.loads(text)
        for what, content in {
            "truncated": text[: len(text) // 2],
            "empty": "",
            "no model": json.dumps({**values, "model": None}),
            "unknown model": json.dumps({**values, "model": {**values["model"], "type": "Guess"}}),
            "ids that are text": json.dumps({**values, "model": {**values["model"], "vocab": {"a": "b"}}}),
            "merges of unknown tokens": json.dumps({**values, "model": {**values["model"], "merges": ["zzzz yyyy"]}}),
        }.items():
            with self.subTest(what):
                directory = self.checkpoint()
                replace(directory / "tokenizer.json", content.encode())
                self.every_command_fails(directory, naming="tokenizer.json", but=("bench",))  # it takes random tokens
                self.cleanup(directory)

    def test_wrong_config_values(self):
        for key, value, wanted in (
            ("hidden_size", "256", "integer"),
            ("hidden_size", None, "missing"),
            ("num_hidden_layers", 2.5, "integer"),
            ("num_hidden_layers", -1, "integer"),
            ("num_hidden_layers", 9, "model.layers.8"),
            ("num_hidden_layers", 7, "model.layers.7"),
            ("intermediate_size", 1024, "[1024, 256]"),
            ("head_dim", 63, "even"),
            ("pool_size", 4, "1, 2, 3 or 5"),
            ("pool_relu", "yes", "pool_relu"),
            ("norm_clip", [1], "norm_clip"),
            ("hidden_act", "gelu", "gelu"),
            ("attention_kind", "linear", "linear"),
            ("model_type", "gpt2", "gpt2"),
            ("rope_scaling", {"rope_type": "yarn"}, "yarn"),
            ("attention_temperature", 2.0, "unknown key attention_temperature"),
        ):
            with self.subTest(f"{key} = {value}"):
                directory = self.checkpoint(**{key: value})
                naming = wanted if wanted.startswith(("model.layers", "[")) else [key, wanted]
                self.every_command_fails(directory, naming=naming, but=("eval", "bench"))
                self.cleanup(directory)

    def test_config_that_is_no_object(self):
        for content in (b"", b"{", b"[]", b"\xff\xfe", b'{"\x1b[31m\n": 1}'):
            with self.subTest(content):
                directory = self.checkpoint()
                replace(directory / "config.json", content)
                self.every_command_fails(directory, naming="config.json")
                self.cleanup(directory)

    def cleanup(self, directory):
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()


if __name__ == "__main__":
    unittest.main()
