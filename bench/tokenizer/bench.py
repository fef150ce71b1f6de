#!/usr/bin/env python3
"""Encoding speed beside the Rust `tokenizers` library: one thread each, the same documents, in one run.

    python bench/tokenizer/bench.py --tokenizer models/asynct-tiny/tokenizer.json TEXT...

The library runs encode_batch_fast (no offsets), its fastest. Both sides take the best of --repeats, alternating, and
must give the same ids. Prints a line a text; --json writes the numbers.
"""

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = 2000  # bytes, as in tokenizer_bench.cc


def documents(text):
    out, at = [], 0
    while at < len(text):
        end = text.find(b"\n\n", min(at + DOCUMENT, len(text)))
        end = len(text) if end < 0 else end
        out.append(text[at:end].decode(errors="replace"))
        at = end
    return out


def run_library(path, texts):
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    start = time.perf_counter()
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    seconds = time.perf_counter() - start
    ids = [e.ids for e in encodings]
    total = sum(id_ * (t + 1) for document in ids for t, id_ in enumerate(document)) % 2**64
    return seconds, sum(map(len, ids)), total


def run_ours(binary, path, text):
    output = subprocess.run([binary, str(path), str(text), "1"], check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def compare(args, text):
    data = text.read_bytes()
    texts = documents(data)
    best = {"ours": 0.0, "library": 0.0}
    for _ in range(args.repeats):
        ours = run_ours(args.binary, args.tokenizer, text)
        seconds, tokens, total = run_library(args.tokenizer, texts)
        assert (tokens, total) == (ours["tokens"], ours["sum"]), f"{text}: other ids: {tokens} {ours['tokens']}"
        best["ours"] = max(best["ours"], ours["encode_mb_s"])
        best["library"] = max(best["library"], len(data) / 1e6 / seconds)
    result = {"text": text.name, "tokenizer": str(args.tokenizer), "bytes": len(data), "tokens": tokens,
              "ours_mb_s": round(best["ours"], 2), "tokenizers_mb_s": round(best["library"], 2),
              "ratio": round(best["ours"] / best["library"], 2), "load_ms": ours["load_ms"],
              "tokenizers_version": tokenizers.__version__}
    print(f"{text.name:24} {len(data) / 1e6:6.1f} MB  ours {result['ours_mb_s']:7.2f} MB/s  "
          f"tokenizers {result['tokenizers_mb_s']:6.2f} MB/s  ratio {result['ratio']:.2f}", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+", type=Path)
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "models/asynct-tiny/tokenizer.json")
    parser.add_argument("--binary", default=str(ROOT / "build/asynct_tokenizer_bench"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for the numbers")
    args = parser.parse_args()
    results = [compare(args, text) for text in args.text]
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
