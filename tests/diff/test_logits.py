"""Logits of the bundled checkpoint against its Hugging Face model in fp32: relative L2 of 1e-5 in fp32, 1e-2 in bf16."""

import json
import random

import pytest
import torch
import transformers
from model_comparison import ROOT, reference_logits, relative_errors
from tokenizers import Tokenizer

MODEL = ROOT / "models/asynct-tiny"
TOLERANCES = {"fp32": 1e-5, "bf16": 1e-2}


@pytest.fixture(scope="module")
def prompts():
    """Texts of its domain, one longer than a step of asynct_logits, then noise, then a single token."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    lines = (ROOT / "data/gsm8k/gsm8k_test.jsonl").read_text(encoding="utf-8").splitlines()[:20]
    texts = [f"Question: {row['question']}\nAnswer: {row['answer']}\n\n" for row in map(json.loads, lines)]
    long = tokenizer.encode("".join(texts)).ids[:1500]
    assert len(long) == 1500
    rng = random.Random(1)
    noise = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(300)]
    return [tokenizer.encode(text).ids for text in texts[:8]] + [long, noise, noise[:1]]


@pytest.fixture(scope="module")
def expected(prompts):
    torch.set_num_threads(2)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, trust_remote_code=True, dtype=torch.float32)
    return reference_logits(model.eval(), prompts)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_logits(dtype, prompts, expected):
    errors = relative_errors(MODEL, dtype, prompts, expected)
    assert max(errors) <= TOLERANCES[dtype], errors
    assert dtype == "fp32" or max(errors) > 1e-4  # it did round
