"""Encoding and decoding of random strings, equal to the `tokenizers` package, by the asynct_tokenize tool.

    pytest tests/diff/test_tokenizer.py            # 10^5 strings over all tokenizers
    ASYNCT_TOKENIZE=path/to/asynct_tokenize ASYNCT_STRINGS=1000 pytest ...
"""

import os
import random
import sys
import unicodedata
from pathlib import Path

import pytest
from binary_records import exchange, pack, unpack
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/golden"))
from tokenizer_strings import random_strings  # noqa: E402

TOOL = os.environ.get("ASYNCT_TOKENIZE", str(ROOT / "build/asynct_tokenize"))
FILES = sorted((ROOT / "tests/golden/tokenizer").glob("*.json")) + sorted(ROOT.glob("models/*/tokenizer.json"))
STRINGS = int(os.environ.get("ASYNCT_STRINGS", "100000")) // max(len(FILES), 1)
EXTRA = [Path(p) for p in os.environ.get("ASYNCT_TOKENIZERS", "").split(":") if p]


# Patterns without a scanner of their own know the characters of PCRE2's Unicode version only, 14 as Python 3.11's.
PCRE2_FILES = {"odd"}


def known_to_pcre2(data):
    return all(unicodedata.category(c) != "Cn" for c in data.decode(errors="replace"))


def run_tool(path, mode, records):
    return exchange([TOOL, path, mode], records)


@pytest.fixture(scope="module", params=FILES + EXTRA, ids=lambda p: p.stem if p.stem != "tokenizer" else p.parent.name)
def tokenizer(request):
    path = request.param
    library = Tokenizer.from_file(str(path))
    library.no_truncation()
    library.no_padding()
    added = [t.content for t in library.get_added_tokens_decoder().values()]
    strings = random_strings(path.stem, STRINGS, added)
    if path.stem in PCRE2_FILES:
        strings = [s for s in strings if known_to_pcre2(s)]
    return path, library, strings


def assert_same_ids(got, expected, texts):
    wrong = [i for i in range(len(texts)) if got[i] != expected[i]]
    assert not wrong, f"{len(wrong)} of {len(texts)} differ, the first {texts[wrong[0]]!r}: " \
                      f"{got[wrong[0]]} != {expected[wrong[0]]}"


@pytest.mark.parametrize("mode", ["encode", "encode-special", "encode-plain"])
def test_encode(tokenizer, mode):
    path, library, strings = tokenizer
    if mode != "encode":
        strings = strings[: len(strings) // 5]
    library.encode_special_tokens = mode == "encode-plain"
    texts = [s.decode(errors="replace") for s in strings]
    expected = [e.ids for e in library.encode_batch(texts, add_special_tokens=mode == "encode-special")]
    library.encode_special_tokens = False
    assert_same_ids([unpack(r) for r in run_tool(path, mode, strings)], expected, texts)


def test_every_code_point(tokenizer):
    """Between letters, digits, spaces and combining marks, by sixteen."""
    path, library, _ = tokenizer
    if path.stem in ("llama2", "metaspace"):
        pytest.skip("asks no character's properties")
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    if path.stem in PCRE2_FILES:
        points = [c for c in points if known_to_pcre2(c.encode())]
    texts = ["".join(f"a{c}b{c}1 {c}\u0301{c}\u0323" for c in points[i : i + 16])
             for i in range(0, len(points), 16)]
    expected = [e.ids for e in library.encode_batch(texts, add_special_tokens=False)]
    assert_same_ids([unpack(r) for r in run_tool(path, "encode", [t.encode() for t in texts])], expected, texts)


@pytest.mark.parametrize("mode", ["decode", "decode-skip", "stream"])
def test_decode(tokenizer, mode):
    """Of real encodings, and of ids at random (half characters, unknown ids)."""
    path, library, strings = tokenizer
    rng = random.Random(mode)
    size = library.get_vocab_size()
    lists = [library.encode(s.decode(errors="replace")).ids for s in strings[: len(strings) // 2]]
    lists += [[rng.randrange(size + 2) for _ in range(rng.randint(0, 20))] for _ in range(len(strings) // 2)]
    if mode == "stream" and path.stem in ("llama2", "metaspace"):
        lists = lists[: len(strings) // 2]  # a spoilt run of byte tokens is where streaming cannot follow
    expected = [library.decode(ids, skip_special_tokens=mode == "decode-skip") for ids in lists]
    got = [r.decode() for r in run_tool(path, mode, [pack(ids) for ids in lists])]
    wrong = [i for i in range(len(lists)) if got[i] != expected[i]]
    assert not wrong, f"{len(wrong)} of {len(lists)} differ, the first {lists[wrong[0]]}: " \
                      f"{got[wrong[0]]!r} != {expected[wrong[0]]!r}"
