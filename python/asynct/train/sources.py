"""Training sources: files to documents, the held-out split, and how often each source is seen.

A text file's documents end with a line `<|endoftext|>`; a .jsonl file has one object a line. Every 100th document
of a file is held out. Files of a test split are refused by name.
"""

import json
import lzma
import random
from dataclasses import dataclass, field
from pathlib import Path

from . import arithmetic, cloze

SEPARATOR = "<|endoftext|>"
HOLD_OUT = 100


@dataclass(frozen=True)
class Source:
    name: str
    files: tuple
    weight: float  # how many times a pass over the mix sees it
    kind: str = "text"  # "text", "questions", "cloze" (questions made from a text file) or "arithmetic"
    first: int | None = None  # only the first documents of each file (files sorted best first)
    options: dict = field(default_factory=dict)


# The bundled checkpoint's mix. Weights are epochs a pass, relative to each other.
DEFAULT_MIX = (
    Source("stories", ("stories_simple.txt.xz",), 4),
    Source("books_children", ("books_children.txt.xz",), 2.5),
    Source("books_classics", ("books_classics.txt.xz",), 0.6),
    Source("science", ("wiki_science.txt.xz",), 1.5),
    Source("science_best", ("wiki_science.txt.xz",), 1.5, first=2500),
    Source("science_questions", ("wiki_science.txt.xz",), 1.5, "cloze"),
    Source("arc", ("arc_easy_train.jsonl", "arc_challenge_train.jsonl", "arc_easy_validation.jsonl"), 6, "questions"),
    Source("gsm8k", ("gsm8k_train.jsonl",), 3, "questions", options={"shots": True}),
    Source("word_problems", ("math_svamp.jsonl", "math_mawps.jsonl"), 4, "questions"),
    Source("arithmetic", (), 0.5, "arithmetic", options={"count": 120000, "seed": 7}),
)


def read_text(path: Path) -> str:
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as f:
        return f.read()


def find_file(directories, name: str) -> Path:
    if "test" in Path(name).stem.split("_"):
        raise ValueError(f"{name}: a test split is never trained on")
    for directory in directories:
        for path in (Path(directory) / name, Path(directory) / f"{name}.xz"):
            if path.is_file():
                return path
    raise FileNotFoundError(f"training file {name} not found in {', '.join(map(str, directories))}")


def question_document(item: dict) -> str:
    answer = item["answer"]
    if "choices" in item:
        answer = item["choices"][answer]
    if "equation" in item:  # a bare number: end it the way GSM8K does
        answer = f"{answer}\n#### {answer}"
    return f"Question: {item['question']}\nAnswer: {answer}"


def join_shots(documents: list, seed: int) -> list:
    """Alone, or in groups of up to 12, which is how a few-shot prompt looks."""
    rng = random.Random(seed)
    documents = documents[:]
    rng.shuffle(documents)
    out, i = [], 0
    while i < len(documents):
        size = rng.choice((1, 1, 1, 2, 4, 6, 8, 12))
        out.append("\n\n".join(documents[i : i + size]))
        i += size
    return out


def split_documents(path: Path) -> list:
    text = read_text(path)
    if ".jsonl" in path.name:
        return [question_document(json.loads(line)) for line in text.splitlines() if line.strip()]
    return [d.strip("\n") for d in text.split(f"{SEPARATOR}\n") if d.strip()]


def load(source: Source, directories) -> tuple:
    """(training documents, held-out documents) of one source."""
    if source.kind == "arithmetic":
        documents = arithmetic.documents(source.options["count"], source.options["seed"])
        return documents[:-50], documents[-50:]
    train, held = [], []
    for name in source.files:
        documents = split_documents(find_file(directories, name))[: source.first]
        held += documents[HOLD_OUT - 1 :: HOLD_OUT]
        train += [d for i, d in enumerate(documents) if i % HOLD_OUT != HOLD_OUT - 1]
    if source.kind == "cloze":
        train = [q for i, page in enumerate(train) for q in cloze.questions(page, i)]
        held = [q for i, page in enumerate(held) for q in cloze.questions(page, i)]
    if source.options.get("shots"):
        train = join_shots(train, seed=1)
    return train, held
