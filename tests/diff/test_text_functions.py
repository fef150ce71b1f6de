"""The evaluator's filters and text functions against Python's own, over generated strings."""

import json
import os
import pathlib
import random
import re
import subprocess

import numpy as np
import pytest

import local_datasets  # noqa: F401  (its path setup is shared)
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter
from lm_eval.tasks.hellaswag.utils import preprocess
from lm_eval.tasks.wikitext.preprocess_wikitext import wikitext_detokenizer

BUILD = pathlib.Path(os.environ.get("ASYNCT_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
CASES = 20000

IGNORED = [",", "\\$", "(?s).*#### ", "\\.$"]


def regex_filter(pattern, group=0):
    chosen = RegexFilter(pattern, group)
    return lambda text: chosen.apply([[text]], [{}])[0][0]


def normalize_answer(text):
    for pattern in IGNORED:
        text = re.sub(pattern, "", text)
    return text.lower()


# name: (Python's function, the pieces that strings are made of)
NUMBERS = ["#### ", "####", "The answer is ", "-", "$", ".", ",", "1", "23", "0", " ", "\n", "x", "é", "so ", "%"]
MARKUP = [" [title]", "[step]", "[", "]", " ", "  ", "\n", "a", "B.", "é", "\t", " "]
PAGE = [
    "(", ")", "[", "]", "{", "}", '"', "'", " ", "\n", " \n", "\n ", " @-@ ", " @,@ ", " @.@ ", " : ", " ; ", " . ",
    " , ", " ! ", " ? ", "= =", " = ", "s '", "/' 5/", " 's", " N ", " ° ", "a", "Word", "é", "\xa0",
]
SPACES = [" ", "\t", "\n", "\x0b", "\x0c", "\r", "\x1c", "\x1f", "\x85", "\xa0", " ", " ", "　", "​", "a", "É"]
FUNCTIONS = {
    "hash_answer": (regex_filter(r"#### (\-?[0-9\.\,]+)"), NUMBERS),
    "the_answer_is": (regex_filter(r"The answer is (\-?[0-9\.\,]+)."), NUMBERS),
    "last_number": (regex_filter(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1), NUMBERS),
    "normalize_answer": (normalize_answer, NUMBERS),
    "hellaswag_clean": (preprocess, MARKUP),
    "wikitext_detokenize": (lambda text: wikitext_detokenizer({"page": text}), PAGE),
    "strip": (str.strip, SPACES),
    "length": (lambda text: str(len(text)), SPACES),
    "split_count": (lambda text: str(len(re.split(r"\s+", text))), SPACES),
}


def run_tool(function, texts):
    requests = "".join(json.dumps({"function": function, "text": text}) + "\n" for text in texts)
    result = subprocess.run([BUILD / "asynct_eval_text"], input=requests, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.split("\n") if line]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_equals_python(function):
    expected, pieces = FUNCTIONS[function]
    rng = random.Random(function)
    texts = ["".join(rng.choices(pieces, k=rng.randrange(0, 24))) for _ in range(CASES)]
    for text, found in zip(texts, run_tool(function, texts), strict=True):
        assert found == expected(text), repr(text)


def test_repr_equals_python():
    rng = random.Random(1)
    values = [rng.uniform(-1, 1) * 10 ** rng.randrange(-30, 30) for _ in range(CASES)]
    values += [float(np.float32(v)) for v in values] + [0.0, -0.0, 1e15, 1e16, 123456789012345680.0, 1e-4, 9.9e-5, 5e-324]
    texts = [repr(v) for v in values]
    assert run_tool("repr", texts) == texts


def test_exact_match_is_the_metric_of_lm_eval():
    """normalize_answer on both sides, compared, is exact_match as gsm8k sets it."""
    rng = random.Random(2)
    pairs = [["".join(rng.choices(NUMBERS, k=rng.randrange(0, 5))) for _ in range(2)] for _ in range(3000)]
    cleaned = run_tool("normalize_answer", [text for pair in pairs for text in pair])
    for (prediction, target), left, right in zip(pairs, cleaned[::2], cleaned[1::2], strict=True):
        expected = exact_match_hf_evaluate([prediction], [target], regexes_to_ignore=IGNORED, ignore_case=True)
        assert (left == right) == bool(expected["exact_match"]), (prediction, target)


def test_capitalize_equals_python():
    letters = [c for c in map(chr, range(0x20, 0x3000)) if c.isprintable()]
    rng = random.Random(3)
    texts = ["".join(rng.choices(letters, k=8)) for _ in range(2000)]
    differing = [t for t, found in zip(texts, run_tool("capitalize", texts), strict=True) if found != t.capitalize()]
    assert not differing, differing[:3]
