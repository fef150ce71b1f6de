"""The tokenizer encodes at least as fast as the Rust `tokenizers` on one thread, in one run, with equal ids.

bench/tokenizer/bench.py measures both, in a process of its own (the library fixes its threads when it starts). Over the
gsm8k training split, text the bundled tokenizer knows, and over wikitext, text it does not.
"""

import json
import lzma
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ASYNCT_TOKENIZER_BENCH", str(ROOT / "build/asynct_tokenizer_bench"))


def write_texts(folder):
    rows = map(json.loads, (ROOT / "data/gsm8k/gsm8k_train.jsonl").read_text(encoding="utf-8").splitlines())
    (folder / "gsm8k.txt").write_text("".join(f"{r['question']}\n{r['answer']}\n\n" for r in rows), encoding="utf-8")
    (folder / "wikitext.txt").write_bytes(lzma.open(ROOT / "data/wikitext2/wiki.test.raw.xz").read())
    return [folder / "gsm8k.txt", folder / "wikitext.txt"]


def test_at_least_as_fast_as_tokenizers(tmp_path):
    texts, out = write_texts(tmp_path), tmp_path / "rates.json"
    command = [sys.executable, ROOT / "bench/tokenizer/bench.py", "--binary", BINARY, "--json", out, *texts]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    print(run.stdout)
    results = json.loads(out.read_text())
    assert len(results) == len(texts)
    assert all(result["ratio"] >= 1 for result in results), run.stdout
