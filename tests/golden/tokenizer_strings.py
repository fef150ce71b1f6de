"""Random text that tokenizers disagree about: code, emoji, combining marks, white-space runs, invalid UTF-8."""

import random

WORDS = """the and of to a in is was that it he she said Once upon time there little girl boy Lily don't I'll we've
they're it's IT'S you'd I'M CAN'T isn’t Don'T café naïve Straße ŒUVRE über señor Ångström ﬁne ǅungla Ελλάδα
Привет мир 你好 世界 こんにちは ガ カﾞ 안녕하세요 ᄒ ᅡ ᆫ สวัสดี नमस्ते مرحبا שלום ไทย K ſ ŉ ß İ ı ª º x² ½ ⅷ ٣ ५ 一二三
return def __init__ self.foo() std::vector<int> #include <string> if(x==0){ } else { i++; } => != && || // /* */ \\n
12 1234567 3.14159 1,000,000 0xFF $18.00 50% #### 42 <<5+3=8>> http://example.com/a?b=c user@example.org""".split()

CHARACTERS = [
    " ", "  ", "   ", "    ", "\n", "\n\n", "\n\n\n", "\r\n", "\r", "\t", "\t\t", "\u00a0", "\u2003", "\u3000",
    "\u200b", "\u200d", "\ufeff", "\u2028", "\u0085", "\x0b", "\x0c", "\x00", "\x1f", "\x7f",
    "'", "''", "\"", ".", ",", "!", "?", "...", "-", "--", "_", "/", "\\", "<", ">", "|", "[", "]", "@", "#", "$",
    "😀", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "❤️", "☃", "∑", "→", "€", "£", "¥", "™", "©", "�", "▁", "Ġ", "▁▁", "Ċ",
    "\u0301", "e\u0301", "a\u0308\u0323", "o\u0323\u0308", "\u0344", "\u1e9b\u0323", "\u212b", "\u2126", "\u0958",
    "\uac00\u11a8", "\u1100\u1161\u11a8", "\ufb01", "\u2f800", "\U0001d15e", "\U00010400", "\U000e0041", "\ue000",
    "\U0010ffff", "'s", "'S", "'ſ", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'lL", "'d", "'x", "s'", "’s",
    "0", "1", "9", "00", "007", "2024", "a", "b", "Z", "aa", "ab", "x1y2",
]

INVALID = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80",
           b"\xe0\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xbf\xbf", b"\xe2\x28\xa1"]

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def random_code_point(rng):
    while True:
        limit = rng.choice([0x80, 0x250, 0x3000, 0x10000, 0x20000, 0x110000])
        c = rng.randrange(limit)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def random_string(rng, added_tokens=()):
    """Bytes, now and then not UTF-8."""
    pieces = []
    for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 30])):
        kind = rng.random()
        if kind < 0.40:
            pieces.append((rng.choice(["", " ", " ", " "]) + rng.choice(WORDS)).encode())
        elif kind < 0.70:
            pieces.append(rng.choice(CHARACTERS).encode())
        elif kind < 0.78:
            pieces.append((rng.choice(CHARACTERS) * rng.randint(1, 20)).encode())
        elif kind < 0.86:
            pieces.append("".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 90))).encode())
        elif kind < 0.91:
            pieces.append("".join(random_code_point(rng) for _ in range(rng.randint(1, 4))).encode())
        elif kind < 0.97 and added_tokens:
            token = rng.choice(added_tokens)
            pieces.append((token if rng.random() < 0.8 else token[: rng.randint(1, len(token))]).encode())
        elif kind >= 0.97:
            pieces.append(rng.choice(INVALID))
    return b"".join(pieces)


def random_strings(seed, count, added_tokens=()):
    rng = random.Random(seed)
    return [random_string(rng, added_tokens) for _ in range(count)]
