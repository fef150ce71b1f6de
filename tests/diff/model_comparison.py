"""Logits and greedy texts of asynct_logits beside those of a transformers model."""

import os
import pathlib

import numpy as np
import torch

from binary_records import exchange, pack, unpack

ROOT = pathlib.Path(__file__).resolve().parents[2]
if not torch.cuda.is_available():  # transformers' masks ask the CUDA driver, which crashes where there is only a stub
    torch.cuda.is_current_stream_capturing = lambda: False

TOOL = os.environ.get("ASYNCT_LOGITS", str(ROOT / "build/asynct_logits"))


def reference_logits(model, prompts):
    with torch.inference_mode():
        return [model(torch.tensor([prompt])).logits[0].numpy() for prompt in prompts]


def relative_errors(directory, dtype, prompts, expected):
    """||ours - expected|| / ||expected|| over all rows of each prompt."""
    records = exchange([TOOL, directory, dtype, "logits"], [pack(p) for p in prompts])
    errors = []
    for record, logits in zip(records, expected, strict=True):
        wanted = logits.astype(np.float64)
        found = np.frombuffer(record, np.float32).reshape(wanted.shape)
        errors.append(float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted)))
    return errors


def greedy(directory, prompts, count):
    return [unpack(r) for r in exchange([TOOL, directory, "fp32", "greedy", count], [pack(p) for p in prompts])]


def assert_greedy(model, prompt, tokens):
    """Each token is the best after all before it, so the whole is the greedy text. One forward pass, no ties."""
    logits = reference_logits(model, [prompt + tokens[:-1]])[0][len(prompt) - 1 :]
    second, best = np.sort(logits, axis=1)[:, -2:].T
    assert (best - second).min() > 1e-3, "two tokens nearly tie: choose another prompt"
    assert tokens == logits.argmax(axis=1).tolist()
