#!/usr/bin/env python3
"""Trains the small tokenizers of tests/golden/tokenizer/ and writes what the `tokenizers` package makes of a few
hundred strings. One tokenizer a family: each goes through parts of the loader that the others do not.

    pip install tokenizers==0.23.3
    python tests/golden/make_tokenizer_goldens.py TEXT...      # UTF-8 training text, 1 MB is plenty
"""

import argparse
import json
import unicodedata
from pathlib import Path

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

from tokenizer_strings import random_strings

OUTPUT = Path(__file__).resolve().parent / "tokenizer"
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"\p{N}| ", r"\p{N}{1,3}| ")
ODD = r"\p{Lu}?[\p{Ll}\p{M}]+|\p{Lu}+(?!\p{Ll})|\p{Nd}{2}(?!\p{Nd}{3})|[^\w\s]{1,3}|\s(?=\s)|[\r\n]+"
VOCABULARY = 700


def byte_level(text, pre_tokenizer, normalizer=None, **model_options):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False, limit_alphabet=256,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    for name, value in model_options.items():
        setattr(tokenizer.model, name, value)
    return tokenizer


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2(text):
    tokenizer = byte_level(text, pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def qwen(text):
    tokenizer = byte_level(text, split_then_bytes(QWEN), normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False),
                          AddedToken("caf\u00e9", normalized=True), AddedToken("<tool", normalized=True)])
    return tokenizer


def llama3(text):
    tokenizer = byte_level(text, split_then_bytes(LLAMA3), ignore_merges=True)
    tokenizer.add_special_tokens([
        "<|begin_of_text|>", "<|eot|>", AddedToken("<mask>", lstrip=True, special=True, normalized=False),
        AddedToken("<sep>", rstrip=True, special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=False),
                          AddedToken("\n\n\n\n", normalized=False), AddedToken("    ", normalized=False),
                          AddedToken("[both]", lstrip=True, rstrip=True, single_word=True)])
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                                      special_tokens=[("<|begin_of_text|>", bos)])])
    return tokenizer


def smollm2(text):
    tokenizer = byte_level(text, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                          pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    tokenizer.add_special_tokens(["<|endoftext|>", "<repo_name>"])
    return tokenizer


def odd(text):
    """A pattern that no scanner knows, a literal Split, a prefix space, NFKC and a regular-expression Replace."""
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"[\u2018\u2019]"), "'")])
    pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(ODD), "isolated"), pre_tokenizers.Split("e", "merged_with_previous"),
        pre_tokenizers.Split(Regex("[aou]+"), "contiguous"), pre_tokenizers.Split("s", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\|+"), "removed"),
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
    tokenizer = byte_level(text, pre_tokenizer, normalizer)
    tokenizer.add_tokens([AddedToken("\ufb01ne", normalized=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("b", tokenizer.token_to_id("b")),
                                                            ("a", tokenizer.token_to_id("a")))
    return tokenizer


BYTES = [f"<0x{b:02X}>" for b in range(256)]


def with_byte_tokens(text, pre_tokenizer):
    """A vocabulary of unk, BOS, EOS, the 256 byte tokens, and merges over metaspace words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False, limit_alphabet=80,
                                  special_tokens=["<unk>", "<s>", "</s>", *BYTES])
    tokenizer.train_from_iterator(text, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    model = models.BPE(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]], unk_token="<unk>",
                       fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B",
                                                             special_tokens=[("<s>", 1)])
    return tokenizer


def llama2(text):
    tokenizer = with_byte_tokens(text, None)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def metaspace(text):
    tokenizer = with_byte_tokens(text, pre_tokenizers.Metaspace(prepend_scheme="first", split=True))
    tokenizer.add_tokens([AddedToken("<user>", normalized=False)])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return tokenizer


FAMILIES = {f.__name__: f for f in (gpt2, qwen, llama3, smollm2, odd, llama2, metaspace)}


def as_text(data):
    """{"text": ...} or, when it is not UTF-8, {"hex": ...}."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def write_tokenizer(tokenizer, name):
    data = json.loads(tokenizer.to_str())
    if name in ("gpt2", "smollm2", "llama2"):  # the older written form of merges
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    path = OUTPUT / f"{name}.json"
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    return Tokenizer.from_file(str(path))


def write_cases(tokenizer, name, seed, count=250, longest=100):
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    strings = [s for s in random_strings(seed, 4 * count, added) if len(s) <= longest]
    if name == "odd":  # PCRE2 knows an older Unicode
        strings = [s for s in strings if "Cn" not in map(unicodedata.category, s.decode(errors="replace"))]
    with open(OUTPUT / f"{name}_cases.jsonl", "w") as out:
        for data in [b"", b" ", b"Hello world", *strings[:count]]:
            text = data.decode(errors="replace")
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            case = {**as_text(data), "ids": ids,
                    "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
            out.write(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+", type=Path)
    text = []
    for path in parser.parse_args().text:
        text += path.read_text(errors="replace")[:400_000].splitlines(keepends=True)
    OUTPUT.mkdir(exist_ok=True)
    for seed, (name, family) in enumerate(FAMILIES.items()):
        write_cases(write_tokenizer(family(text), name), name, seed)


if __name__ == "__main__":
    main()
