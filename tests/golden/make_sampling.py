#!/usr/bin/env python3
"""Writes sampling.json: what transformers' processors make of logits, and the distributions its warpers leave.

    python tests/golden/make_sampling.py        # in the environment of `make test-diff`

processed: logits before and after (null is -infinity), in the order of vLLM's sampler: allowed tokens, bad words, end
tokens before min_tokens, logit bias, repetition, frequency and presence penalty. transformers has a class for each but
allowed tokens and the last two; those are written out here by vLLM's formulas.
distributions: the probabilities that temperature, top-k, top-p and min-p leave, in transformers' order.
"""

import json
import pathlib
import random

import torch
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCABULARY = 24
OUTPUT = pathlib.Path(__file__).resolve().parent / "sampling.json"


def allowed_only(scores, allowed):
    banned = torch.ones(VOCABULARY, dtype=torch.bool)
    banned[allowed] = False
    return scores.masked_fill(banned, -torch.inf)


def subtract_penalties(scores, generated, frequency, presence):
    counts = torch.bincount(torch.tensor(generated, dtype=torch.long), minlength=VOCABULARY)
    scores = scores - frequency * counts
    return scores - presence * (counts > 0)


def process(params, prompt, generated, end_tokens, logits):
    ids = torch.tensor([prompt + generated])
    scores = torch.tensor([logits])
    if params.get("allowed_tokens"):
        scores = allowed_only(scores, params["allowed_tokens"])
    if params.get("bad_words"):
        scores = NoBadWordsLogitsProcessor(params["bad_words"])(ids, scores)
    if params.get("min_tokens"):
        scores = MinNewTokensLengthLogitsProcessor(len(prompt), params["min_tokens"], end_tokens)(ids, scores)
    if params.get("logit_bias"):
        scores = SequenceBiasLogitsProcessor({(token,): bias for token, bias in params["logit_bias"]})(ids, scores)
    if params.get("repetition_penalty", 1) != 1:
        scores = RepetitionPenaltyLogitsProcessor(params["repetition_penalty"])(ids, scores)
    frequency, presence = params.get("frequency_penalty", 0), params.get("presence_penalty", 0)
    return subtract_penalties(scores[0], generated, frequency, presence)


def processed_cases(draw):
    def tokens(count):
        return [draw.randrange(VOCABULARY) for _ in range(count)]

    def bad_words(text):
        """One banned always, one whose beginning ends the text, one where it does not."""
        return [tokens(1), text[-2:] + tokens(1), text[-3:-1] + tokens(1), [text[-1], *tokens(1)]]

    for index in range(21):
        prompt, generated = tokens(6), (tokens(4) * 2)[: index % 7]
        choices = {
            "allowed_tokens": tokens(9),
            "bad_words": bad_words(prompt + generated),
            "min_tokens": 1 + index % 5,
            "logit_bias": [[token, draw.randrange(-12800, 12801) / 128] for token in sorted(set(tokens(4)))],
            "repetition_penalty": draw.choice([0.75, 1.1, 1.3]),
            "frequency_penalty": draw.choice([-0.5, 0.3, 1.7]),
            "presence_penalty": draw.choice([-1.25, 0.1, 2.0]),
        }
        names = list(choices)
        params = choices if index >= 14 else {names[index % 7]: choices[names[index % 7]]}
        logits = [draw.randrange(-512, 513) / 64 for _ in range(VOCABULARY)]
        end_tokens = sorted(set(tokens(2)))
        expected = process(params, prompt, generated, end_tokens, logits)
        assert not torch.equal(expected, torch.tensor(logits)), "a case that changes nothing"
        yield {
            **{"params": params, "prompt": prompt, "generated": generated, "end_tokens": end_tokens},
            **{"logits": logits, "expected": [shortest(value) for value in expected]},
        }


def shortest(value):
    """The shortest decimal number that is this float32."""
    return None if value == -torch.inf else json.loads(str(value.numpy()))


def distributions(draw):
    for params in [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 1.7},
        {"temperature": 1.0, "top_k": 5},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 1.5, "top_p": 0.5},
        {"temperature": 1.0, "min_p": 0.1},
        {"temperature": 2.0, "top_k": 10, "top_p": 0.8},
        {"temperature": 0.8, "top_k": 20, "top_p": 0.95},
        {"temperature": 1.3, "top_k": 15, "top_p": 0.9, "min_p": 0.15},
        {"temperature": 0.7, "top_p": 0.97, "min_p": 0.02},
        {"temperature": 3.0, "top_k": 3, "min_p": 0.7},
    ]:
        logits = [draw.randrange(-256, 257) / 64 for _ in range(VOCABULARY)]
        scores = TemperatureLogitsWarper(params["temperature"])(None, torch.tensor([logits]))
        if "top_k" in params:
            scores = TopKLogitsWarper(params["top_k"])(None, scores)
        if "top_p" in params:
            scores = TopPLogitsWarper(params["top_p"])(None, scores)
        if "min_p" in params:
            scores = MinPLogitsWarper(params["min_p"])(None, scores)
        probabilities = scores[0].double().softmax(-1).tolist()
        yield {"params": params, "logits": logits, "probabilities": [round(p, 9) for p in probabilities]}


def main():
    draw = random.Random(5)
    golden = {"vocabulary": VOCABULARY}
    for name, cases in [("processed", processed_cases), ("distributions", distributions)]:
        golden[name] = list(cases(draw))
    lines = [
        f' "{name}": [\n  ' + ",\n  ".join(json.dumps(case) for case in cases) + "\n ]"
        for name, cases in golden.items()
        if name != "vocabulary"
    ]
    OUTPUT.write_text("{\n" + f' "vocabulary": {VOCABULARY},\n' + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
