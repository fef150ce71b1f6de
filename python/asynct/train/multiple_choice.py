"""ARC by lm-evaluation-harness's rules, 0-shot, for a quick look during training."""

import json

import numpy as np
import torch


def requests(items, tokenizer) -> list:
    """(item, choice, context length, ids). The pair is encoded whole, so a merge across the border counts."""
    out = []
    for i, item in enumerate(items):
        context = f"Question: {item['question']}\nAnswer:"
        start = len(tokenizer.encode(context, add_special_tokens=False).ids)
        for j, choice in enumerate(item["choices"]):
            ids = tokenizer.encode(f"{context} {choice}", add_special_tokens=False).ids
            out.append((i, j, start, ids))
    return out


@torch.no_grad()
def score(model, tokenizer, path, limit=None, batch: int = 64) -> dict:
    """acc and acc_norm (per character of the choice) of one ARC file, fp32."""
    with open(path, encoding="utf-8") as f:
        items = [json.loads(line) for line in f][:limit]
    device = next(model.parameters()).device
    work = sorted(requests(items, tokenizer), key=lambda r: len(r[3]))
    sums = [np.zeros(len(item["choices"])) for item in items]
    for b in range(0, len(work), batch):
        part = work[b : b + batch]
        width = max(len(r[3]) for r in part)
        ids = torch.tensor([r[3] + [0] * (width - len(r[3])) for r in part], device=device)
        logp = model(ids, use_cache=False).logits.float().log_softmax(-1)
        picked = logp[:, :-1].gather(-1, ids[:, 1:, None])[..., 0].cpu().numpy()
        for row, (i, j, start, r) in zip(picked, part):
            sums[i][j] = row[start - 1 : len(r) - 1].sum()
    lengths = [np.array([len(c) for c in item["choices"]], dtype=float) for item in items]
    gold = [item["answer"] for item in items]
    acc = np.mean([s.argmax() == g for s, g in zip(sums, gold)])
    norm = np.mean([(s / n).argmax() == g for s, n, g in zip(sums, lengths, gold)])
    return {"items": len(items), "acc": float(acc), "acc_norm": float(norm)}
