"""lm-evaluation-harness reading the files in data/ instead of the hub.

`install()` replaces datasets.load_dataset inside lm_eval.api.task, so that lm-eval's own YAML files, document
processing, samplers, filters and metrics run unchanged: only the place where rows come from differs.
"""

import json
import lzma
import pathlib

import datasets

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"


def rows(name):
    path = DATA / name
    if path.exists():
        text = path.read_text(encoding="utf-8")
    else:
        text = lzma.open(f"{path}.xz", "rt", encoding="utf-8", newline="").read()
    return [json.loads(line) for line in text.split("\n") if line]


def arc(kind):
    def hub_form(row):
        labels = [chr(ord("A") + i) for i in range(len(row["choices"]))]
        return {
            "id": row["id"],
            "question": row["question"],
            "choices": {"text": row["choices"], "label": labels},
            "answerKey": labels[row["answer"]],
        }

    return {split: [hub_form(r) for r in rows(f"arc/arc_{kind}_{split}.jsonl")] for split in ("train", "test")}


def boolq():
    keep = lambda r: {key: r[key] for key in ("question", "passage", "idx", "label")}
    return {"validation": [keep(r) for r in rows("boolq/boolq_validation.jsonl")]}


def mmlu(subject):
    pick = lambda split: [r for r in rows(f"mmlu/mmlu_{split}.jsonl") if r["subject"] == subject]
    return {"test": pick("test"), "dev": pick("dev")}


def wikitext_pages():
    """The page rule of the hub's wikitext_document_level: a page starts at a level-1 title."""
    path = DATA / "wikitext2/wiki.test.raw"
    if path.exists():
        text = path.read_bytes().decode("utf-8")
    else:
        text = lzma.open(f"{path}.xz", "rb").read().decode("utf-8")
    pages, page = [], []
    for line in text.split("\n"):
        title = line.strip()
        if title.startswith("= ") and title.endswith(" =") and not title.startswith("= ="):
            if "\n".join(page).strip():
                pages.append({"page": "\n".join(page)})
            page = []
        page.append(line)
    return pages + [{"page": "\n".join(page)}]


def splits(path, name):
    """Rows by split for one (dataset_path, dataset_name) of lm-eval's YAML files."""
    if path == "openai/gsm8k":
        return {s: rows(f"gsm8k/gsm8k_{s}.jsonl") for s in ("train", "test")}
    if path == "allenai/ai2_arc":
        return arc({"ARC-Easy": "easy", "ARC-Challenge": "challenge"}[name])
    if path == "Rowan/hellaswag":
        # The bundled sample is already processed; the label is what doc_to_target reads.
        sample = rows("hellaswag/hellaswag_validation_sample1000.jsonl")
        return {"validation": [{**r, "label": str(r["gold"])} for r in sample]}
    if path == "baber/piqa":
        return {"validation": rows("piqa/piqa_validation.jsonl")}
    if path == "allenai/winogrande":
        return {"validation": rows("winogrande/winogrande_xl_validation.jsonl")}
    if path == "aps/super_glue":
        return boolq()
    if path == "cais/mmlu":
        return mmlu(name)
    if path == "EleutherAI/lambada_openai":
        return {"test": rows("lambada/lambada_openai_test.jsonl")}
    if path == "EleutherAI/wikitext_document_level":
        return {"test": wikitext_pages()}
    raise KeyError(f"no local rows for {path} {name}")


class Splits(dict):
    """A dataset dictionary whose absent splits are the evaluation split: only k-shot runs would read them."""

    def __missing__(self, key):
        return next(iter(self.values()))


def load_dataset(path, name=None, **_):
    return Splits({split: datasets.Dataset.from_list(r) for split, r in splits(path, name).items()})


def install():
    """Points lm-eval at data/. The bundled hellaswag sample is processed already, so process_docs is skipped there."""
    import lm_eval.api.task as task

    task.datasets.load_dataset = load_dataset
    for method in ("training_docs", "validation_docs"):
        original = getattr(task.ConfigurableTask, method)
        split = method.removesuffix("_docs")
        setattr(task.ConfigurableTask, method, skipping_hellaswag(original, split))


def skipping_hellaswag(original, split):
    def docs(self):
        return self.dataset[split] if self.DATASET_PATH == "Rowan/hellaswag" else original(self)

    return docs
