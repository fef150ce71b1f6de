"""The reference model: its formulas by hand, and the ways of running it that must agree."""

import pytest
import torch
from asynct.hf.modeling_asynct import asynci_weights, causal_pool
from conftest import make

LENGTH = 23


def tokens(batch=1, length=LENGTH, seed=0):
    return torch.randint(1, 61, (batch, length), generator=torch.Generator().manual_seed(seed))


def logits(model, ids, **options):
    with torch.no_grad():
        return model(ids, **options).logits


def test_pool_has_zero_history_and_a_constant_divisor():
    r = torch.tensor([3.0, 6.0, 9.0, 12.0])
    assert causal_pool(r, 3).tolist() == [1.0, 3.0, 6.0, 9.0]
    assert causal_pool(r, 1).tolist() == r.tolist()


@pytest.mark.parametrize("pool_size", (1, 2, 3, 5))
@pytest.mark.parametrize("pool_relu", (True, False))
def test_attention_weights_follow_the_formula(pool_size, pool_relu):
    generator = torch.Generator().manual_seed(1)
    heads, queries, keys = 3, 4, 9
    scores = torch.randn(1, heads, queries, keys, generator=generator)
    visible = torch.ones(queries, keys).tril(keys - queries).bool()[None, None]
    sigma, slope, bias, gain = (torch.randn(heads, 1, 1, generator=generator) for _ in range(4))
    got = asynci_weights(scores, visible, sigma, slope, bias, gain, pool_size, pool_relu)
    for h in range(heads):
        for p in range(queries):
            for j in range(keys):
                want = 0.0
                if visible[0, 0, p, j]:
                    history = [float(scores[0, h, p, i]) for i in range(max(0, j - pool_size + 1), j + 1)]
                    pooled = sum(max(s, 0.0) if pool_relu else s for s in history) / pool_size
                    raw = float(slope[h]) * float(scores[0, h, p, j]) + float(bias[h]) - float(sigma[h]) * pooled
                    want = float(gain[h]) * min(max(raw, 0.0), 1.0)
                assert got[0, h, p, j].item() == pytest.approx(want, abs=1e-5)


def test_cache_changes_nothing(model):
    ids = tokens(2)
    whole = logits(model, ids, use_cache=False)
    cache, parts = None, []
    for piece in ids.split([5, 1, 1, 9, 7], dim=1):
        with torch.no_grad():
            out = model(piece, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        parts.append(out.logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-5)


def test_left_padding_changes_nothing(model):
    short, long = tokens(1, 11, seed=1), tokens(1, LENGTH, seed=2)
    pad = LENGTH - short.shape[1]
    batch = torch.cat((torch.cat((torch.zeros(1, pad, dtype=torch.long), short), 1), long))
    mask = torch.ones_like(batch)
    mask[0, :pad] = 0
    together = logits(model, batch, attention_mask=mask)
    torch.testing.assert_close(together[0, pad:], logits(model, short)[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together[1], logits(model, long)[0], rtol=1e-4, atol=1e-5)


def test_positions_are_relative(model):
    ids = tokens()
    here = logits(model, ids)
    shifted = logits(model, ids, position_ids=torch.arange(LENGTH)[None] + 100)
    torch.testing.assert_close(shifted, here, rtol=1e-3, atol=1e-4)


def test_later_tokens_are_not_seen(model):
    a = tokens()
    b = a.clone()
    b[0, 15:] = tokens(1, LENGTH - 15, seed=9)[0]
    torch.testing.assert_close(logits(model, a)[0, :15], logits(model, b)[0, :15], rtol=0, atol=1e-6)
    assert (logits(model, a)[0, 15:] - logits(model, b)[0, 15:]).abs().max() > 1e-3


def test_batched_generation_equals_single(model):
    prompts = [tokens(1, n, seed=n) for n in (4, 9, 13)]
    width = 13
    batch = torch.cat([torch.nn.functional.pad(p, (width - p.shape[1], 0)) for p in prompts])
    mask = torch.cat([torch.nn.functional.pad(torch.ones_like(p), (width - p.shape[1], 0)) for p in prompts])
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    together = model.generate(batch, attention_mask=mask, **options)[:, width:]
    for row, prompt in zip(together, prompts):
        alone = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0, prompt.shape[1] :]
        assert row.tolist() == alone.tolist()
        steps = prompt
        for _ in range(12):  # without any cache
            steps = torch.cat((steps, logits(model, steps, use_cache=False)[:, -1:].argmax(-1)), 1)
        assert alone.tolist() == steps[0, prompt.shape[1] :].tolist()


def test_padding_must_cover_the_context():
    model = make()
    with pytest.raises(ValueError, match="attention_mask covers 5 keys, the context has 23"):
        logits(model, tokens(), attention_mask=torch.ones(1, 5))


def test_output_projections_start_smaller():
    model = make(num_hidden_layers=8)
    std = model.model.layers[0].mlp.down_proj.weight.std().item()
    assert std == pytest.approx(3 / 16**0.5 / 40**0.5, rel=0.15)
