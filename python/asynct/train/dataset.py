"""Tokens of the mix and the windows drawn from them.

All sources lie in one array of token ids, each document followed by `<|endoftext|>`. A window is T + 1 tokens at a
random place of a random source. Which windows step n sees depends on (seed, n) only, so resuming needs no state.
"""

import os
from dataclasses import dataclass

import numpy as np
import torch

from . import sources


@dataclass
class Corpus:
    names: list
    ids: np.ndarray  # uint16, all sources one after another
    start: np.ndarray  # int64 [sources]
    length: np.ndarray  # int64 [sources]
    share: np.ndarray  # float64 [sources], probability that a window comes from it

    def summary(self) -> str:
        return ", ".join(f"{n} {l / 1e6:.2f}M x{s:.3f}" for n, l, s in zip(self.names, self.length, self.share))


def encode(tokenizer, documents, end_id: int) -> np.ndarray:
    parts = []
    for i in range(0, len(documents), 2048):
        for encoding in tokenizer.encode_batch_fast(documents[i : i + 2048], add_special_tokens=False):
            parts.append(np.array([*encoding.ids, end_id], dtype=np.uint16))
    return np.concatenate(parts) if parts else np.zeros(0, np.uint16)


def build(mix, directories, tokenizer, end_id: int) -> tuple:
    """(training Corpus, {source: held-out ids})."""
    arrays, held_out = [], {}
    for source in mix:
        train, held = sources.load(source, directories)
        arrays.append(encode(tokenizer, train, end_id))
        held_out[source.name] = encode(tokenizer, held, end_id)
    length = np.array([len(a) for a in arrays], dtype=np.int64)
    weight = length * np.array([s.weight for s in mix])
    start = np.concatenate(([0], np.cumsum(length)[:-1]))
    return Corpus([s.name for s in mix], np.concatenate(arrays), start, length, weight / weight.sum()), held_out


def build_cached(cache, mix, directories, tokenizer, end_id: int) -> tuple:
    """build(), kept in the .npz file `cache`; a file made from another mix or tokenizer is an error."""
    key = repr((mix, end_id, tokenizer.get_vocab_size()))
    if cache and os.path.exists(cache):
        data = np.load(cache)
        if str(data["key"]) != key:
            raise ValueError(f"{cache} holds the tokens of another mix; remove it")
        corpus = Corpus([s.name for s in mix], data["ids"], data["start"], data["length"], data["share"])
        return corpus, {s.name: data[f"held_{s.name}"] for s in mix}
    corpus, held_out = build(mix, directories, tokenizer, end_id)
    if cache:
        held = {f"held_{name}": ids for name, ids in held_out.items()}
        np.savez(cache, key=key, ids=corpus.ids, start=corpus.start, length=corpus.length, share=corpus.share, **held)
    return corpus, held_out


class WindowSampler:
    """Batches on `device`: ids int64 [B, T + 1] and documents int32 [B, T] (equal numbers see each other)."""

    def __init__(self, corpus: Corpus, end_id: int, seed: int, device):
        self.end_id, self.seed, self.device = end_id, seed, device
        self.corpus = corpus
        self.ids = torch.from_numpy(corpus.ids.astype(np.int32)).to(device)

    def batch(self, step: int, size: int, length: int) -> tuple:
        rng = np.random.default_rng((self.seed, step))
        which = rng.choice(len(self.corpus.start), size=size, p=self.corpus.share)
        offset = (rng.random(size) * self.corpus.length[which]).astype(np.int64)
        start = torch.from_numpy(self.corpus.start[which]).to(self.device, non_blocking=True)[:, None]
        span = torch.from_numpy(self.corpus.length[which]).to(self.device, non_blocking=True)[:, None]
        place = torch.from_numpy(offset).to(self.device, non_blocking=True)[:, None]
        index = start + (place + torch.arange(length + 1, device=self.device)) % span
        ids = self.ids[index].long()
        return ids, document_numbers(ids[:, :-1], index[:, :-1], self.end_id)


def document_numbers(ids, index, end_id: int):
    """Number of the document each token belongs to.

    An end-of-text token closes its document at odd places of the corpus and opens the next one (as a BOS would) at
    even places, so the trained model works with and without a leading `<|endoftext|>`.
    """
    end = ids == end_id
    opens = (end & (index % 2 == 0)).int()
    closes = (end & (index % 2 == 1)).int()
    before = closes.cumsum(1) - closes
    return (before + opens.cumsum(1)).int()
