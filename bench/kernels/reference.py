"""Attention in float64, for the rows that peers.py looks at."""

import torch


def asynci(query, key, value, *, scale, sigma, slope=1.0, bias=0.0, pool_size=3):
    """query [H, R, D]: rows at the end of key [Hk, T, D]; value likewise. Scores are pooled with relu. [H, R, D]."""
    heads, rows, _ = query.shape
    group = heads // key.shape[0]
    key, value = (x.double().repeat_interleave(group, 0) for x in (key, value))
    scores = scale * query.double() @ key.transpose(1, 2)
    pool = torch.zeros_like(scores)
    for back in range(pool_size):
        pool[:, :, back:] += scores.clamp(min=0)[:, :, : scores.shape[2] - back]
    weights = (slope * scores + bias - sigma * pool / pool_size).clamp(0, 1)
    return _masked(weights, rows, 0.0) @ value


def softmax(query, key, value, *, scale):
    heads, rows, _ = query.shape
    group = heads // key.shape[0]
    key, value = (x.double().repeat_interleave(group, 0) for x in (key, value))
    scores = _masked(scale * query.double() @ key.transpose(1, 2), rows, float("-inf"))
    return scores.softmax(-1) @ value


def _masked(scores, rows, hidden):
    """Row r of the last `rows` positions sees the keys up to its own."""
    keys = scores.shape[2]
    position = torch.arange(keys - rows, keys, device=scores.device)
    later = torch.arange(keys, device=scores.device)[None, :] > position[:, None]
    return scores.masked_fill(later, hidden)


def error(got, want) -> float:
    """Relative, in the 2-norm (absolute where zeros are wanted); a NaN anywhere makes it NaN."""
    norm = want.norm().item()
    return (got.double() - want).norm().item() / (norm or 1.0)
