"""What a trained model's activations look like: the numbers that decide how much work a kernel can skip."""

import torch


@torch.no_grad()
def gather(model, windows) -> dict:
    """Per-layer statistics over held-out windows [N, T] (each one document prefix; batch by batch, fp32).

    gate_zero: share of relu(gate) that is 0. weight_positive: share of causal (query, key) with A > 0.
    rows_needed: share of causal (query, key) for which some query head of a K/V group has A > 0.
    weight_one: share at the upper clamp. score_max: largest S * slope + bias is not recorded, the largest A is.
    """
    layers = model.model.layers
    group = model.config.num_attention_heads // model.config.num_key_value_heads
    names = ("gate_zero", "weight_positive", "rows_needed", "weight_one")
    sums = {name: torch.zeros(len(layers), dtype=torch.float64) for name in names}
    gates = {}
    hooks = [
        block.mlp.gate_proj.register_forward_hook(lambda _m, _i, out, n=n: gates.__setitem__(n, out))
        for n, block in enumerate(layers)
    ]
    try:
        for window in windows:
            attentions = model(window[None], use_cache=False, output_attentions=True).attentions
            length = window.shape[0]
            pairs = length * (length + 1) / 2
            for n, a in enumerate(attentions):
                positive = a[0] > 0
                by_group = positive.view(-1, group, length, length).any(1)
                sums["gate_zero"][n] += (gates[n] <= 0).double().mean().cpu()
                sums["weight_positive"][n] += positive.double().sum().cpu() / (pairs * positive.shape[0])
                sums["rows_needed"][n] += by_group.double().sum().cpu() / (pairs * by_group.shape[0])
                sums["weight_one"][n] += (a[0] >= 1).double().sum().cpu() / (pairs * positive.shape[0])
    finally:
        for hook in hooks:
            hook.remove()
    result = {name: [round(float(v), 4) for v in total / len(windows)] for name, total in sums.items()}
    result["gate_zero_mean"] = round(sum(result["gate_zero"]) / len(layers), 4)
    sigma = [getattr(block.self_attn, "sigma", None) for block in layers]
    if sigma[0] is not None:
        result["sigma"] = [[round(float(v), 4) for v in s] for s in sigma]
    return result
