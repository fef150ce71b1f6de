#!/usr/bin/env python3
"""Writes src/asynct/text/unicode_tables.cc: one byte of properties for every code point.

The properties are not taken from a Unicode version of our choice: they are asked of the `tokenizers` package
(Oniguruma for the patterns, Rust's char and regex crate for the rest), because a tokenizer must split text
where that library splits it.

    pip install tokenizers==0.23.3
    python tools/make_unicode_tables.py
"""

import sys
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

LETTER, NUMBER, SPACE, NUMERIC, WORD, WHITE, INERT, BARRIER = (1 << i for i in range(8))
BLOCK = 128  # code points a block
OUTPUT = Path(__file__).resolve().parent.parent / "src/asynct/text/unicode_tables.cc"


def code_points():
    return [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def found_by(pre_tokenizer, chunk=4096):
    """The code points that `pre_tokenizer` keeps when it is given them one after another."""
    points = code_points()
    found = set()
    for begin in range(0, len(points), chunk):
        text = "".join(map(chr, points[begin : begin + chunk]))
        found.update(ord(c) for piece, _ in pre_tokenizer.pre_tokenize_str(text) for c in piece)
    return found


def matches(pattern):
    return found_by(pre_tokenizers.Split(Regex(pattern), "removed", invert=True))


def numeric():
    """Rust's char::is_numeric, as the Digits pre-tokenizer asks it: a digit stands alone between two letters."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    found = set()
    points = [c for c in code_points() if c != ord("a")]
    for begin in range(0, len(points), 4096):
        text = "a" + "a".join(map(chr, points[begin : begin + 4096])) + "a"
        found.update(ord(p) for p, _ in digits.pre_tokenize_str(text) if len(p) == 1 and p != "a")
    return found


def word_and_white():
    """The regex crate's \\w and \\s, as single_word and rstrip of an added token ask them."""
    word, white = set(), set()
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("XY", single_word=True, normalized=False),
                          AddedToken("ZW", rstrip=True, normalized=False)])
    one, strip = tokenizer.token_to_id("XY"), tokenizer.token_to_id("ZW")
    for c in code_points():
        if one not in tokenizer.encode(f"XY{chr(c)}").ids:
            word.add(c)
        encoding = tokenizer.encode(f"ZW{chr(c)}")
        if encoding.ids[:1] == [strip] and encoding.offsets[0][1] == 3:
            white.add(c)
    return word, white


def canonical_pairs():
    for c in code_points():
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            yield c, int(parts[0], 16), int(parts[1], 16)


def normalization_barriers():
    """Code points with decompositions or combining classes that the library's Unicode (9) does not know yet. There
    they are inert starters: nothing moves or composes across them. Found against Python's newer Unicode; what that
    does not assign either is a barrier too, since utf8proc may know it."""
    forms = {form: getattr(normalizers, form)() for form in ("NFC", "NFD", "NFKC", "NFKD")}

    def differs(form, text):
        return forms[form].normalize_str(text) != unicodedata.normalize(form, text)

    found = {c for c in code_points() if unicodedata.category(chr(c)) == "Cn"}
    for c in code_points():
        contexts = [f"a{chr(c)}\u0323", f"a\u0301{chr(c)}", f"a{chr(c)}\u0334"]
        if any(differs(form, chr(c)) for form in forms) or any(differs("NFC", text) for text in contexts):
            found.add(c)
    for c, first, second in canonical_pairs():
        if differs("NFC", chr(first) + chr(second)):
            found |= {c, first, second}
    return found


def inert(barriers):
    """Code points that NFC leaves alone whatever stands around them (starters that never compose backwards)."""
    second = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels and finals
    second |= {pair[2] for pair in canonical_pairs()}
    return barriers | {c for c in code_points()
                       if c not in second and unicodedata.combining(chr(c)) == 0
                       and unicodedata.normalize("NFC", chr(c)) == chr(c)}


def rows(values, per_line=32):
    for begin in range(0, len(values), per_line):
        yield "    " + ",".join(str(v) for v in values[begin : begin + per_line]) + ","


def main():
    word, white = word_and_white()
    barriers = normalization_barriers()
    properties = bytearray(0x110000)
    for bit, members in ((LETTER, matches(r"\p{L}")), (NUMBER, matches(r"\p{N}")), (SPACE, matches(r"\s")),
                         (NUMERIC, numeric()), (WORD, word), (WHITE, white), (INERT, inert(barriers)), (BARRIER, barriers)):
        for c in members:
            properties[c] |= bit
        print(f"bit {bit:3}: {len(members)} code points", file=sys.stderr)
    blocks, index = {}, []
    for begin in range(0, 0x110000, BLOCK):
        block = bytes(properties[begin : begin + BLOCK])
        index.append(blocks.setdefault(block, len(blocks)))
    lines = ["// Generated by tools/make_unicode_tables.py; do not edit.", "// clang-format off",
             '#include "asynct/text/unicode.h"', "", "namespace asynct::unicode {", "",
             f"const std::uint16_t kBlockIndex[{len(index)}] = {{", *rows(index), "};", "",
             f"const std::uint8_t kBlocks[{len(blocks) * BLOCK}] = {{",
             *rows([v for block in blocks for v in block]), "};", "", "}  // namespace asynct::unicode", ""]
    OUTPUT.write_text("\n".join(lines))
    print(f"{len(blocks)} blocks, {OUTPUT.stat().st_size} bytes of source", file=sys.stderr)


if __name__ == "__main__":
    main()
