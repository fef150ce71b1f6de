"""The training forward pass over an AsyncTForCausalLM's own parameters.

The same function as hf/modeling_asynct.py (a test compares them), written so that one compiled region serves all
layers: documents of a packed window cannot see each other, matrix products run in `dtype`, the residual stream,
norms, S, P and A stay fp32.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from asynct.hf.modeling_asynct import HEAD_PARAMETERS, asynci_weights, rope_tables, softmax_weights


@dataclass(frozen=True)
class Statics:
    """What the compiled layer treats as constants."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    kind: str
    pool_size: int
    pool_relu: bool
    act: str
    clip: tuple
    eps: float
    dtype: torch.dtype
    density: bool  # measure the density of the gate for a penalty


def statics(config, dtype, density: bool) -> Statics:
    return Statics(
        config.num_attention_heads, config.num_key_value_heads, config.head_dim, config.score_scale,
        config.attention_kind, config.pool_size, config.pool_relu, config.hidden_act, tuple(config.norm_clip),
        config.rms_norm_eps, dtype, density,
    )  # fmt: skip


def norm(x, parameters: dict, prefix: str, s: Statics):
    if f"{prefix}.alpha" in parameters:
        y = parameters[f"{prefix}.alpha"] * x
        if f"{prefix}.beta" in parameters:
            y = y + parameters[f"{prefix}.beta"]
        return parameters[f"{prefix}.gamma"] * y.clamp(*s.clip)
    if f"{prefix}.weight" in parameters:
        return parameters[f"{prefix}.weight"] * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + s.eps)
    return x


def linear(x, weight, s: Statics):
    return F.linear(x.to(s.dtype), weight.to(s.dtype))


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attention(h, p: dict, cos, sin, documents, s: Statics):
    batch, length, _ = h.shape
    group = s.heads // s.kv_heads
    split = lambda name: linear(h, p[f"self_attn.{name}_proj.weight"], s).view(batch, length, -1, s.head_dim).transpose(1, 2)
    q = rotate(norm(split("q").float(), p, "self_attn.q_norm", s), cos, sin).to(s.dtype)
    k = rotate(norm(split("k").float(), p, "self_attn.k_norm", s), cos, sin).to(s.dtype)
    v = split("v")
    # The query heads of a group share K and V, so they are rows of one product.
    q = q.reshape(batch * s.kv_heads, group * length, s.head_dim)
    k = k.reshape(batch * s.kv_heads, length, s.head_dim)
    v = v.reshape(batch * s.kv_heads, length, s.head_dim)
    scores = torch.bmm(q, k.transpose(1, 2)).float() * s.scale
    scores = scores.view(batch, s.heads, length, length)
    order = torch.arange(length, device=h.device)
    visible = ((order[None, :] <= order[:, None]) & (documents[:, :, None] == documents[:, None, :]))[:, None]
    if s.kind == "softmax":
        weights = softmax_weights(scores, visible)
    else:
        factors = {
            key: p[f"self_attn.{key}"][:, None, None] if f"self_attn.{key}" in p else neutral
            for key, neutral in HEAD_PARAMETERS.items()
        }
        weights = asynci_weights(scores, visible, pool_size=s.pool_size, pool_relu=s.pool_relu, **factors)
    out = torch.bmm(weights.to(s.dtype).view(batch * s.kv_heads, group * length, length), v)
    out = out.view(batch, s.heads, length, s.head_dim).transpose(1, 2).reshape(batch, length, -1)
    return linear(out, p["self_attn.o_proj.weight"], s)


def layer(x, p: dict, cos, sin, documents, s: Statics):
    h = norm(x, p, "input_norm", s)
    x = x + norm(attention(h, p, cos, sin, documents, s).float(), p, "post_attention_norm", s)
    h = norm(x, p, "pre_mlp_norm", s)
    gate = linear(h, p["mlp.gate_proj.weight"], s)
    density = soft_density(gate) if s.density else gate.new_zeros(())
    gate = F.relu(gate) if s.act == "relu" else F.silu(gate)
    return x + linear(gate * linear(h, p["mlp.up_proj.weight"], s), p["mlp.down_proj.weight"], s).float(), density


def soft_density(gate, width: float = 0.25):
    """A differentiable share of active neurons: the step at 0 is `width` of the gate's own rms wide."""
    gate = gate.float()
    scale = width * gate.detach().square().mean().sqrt() + 1e-6
    return torch.sigmoid(gate / scale).mean()


def head_loss(x, p: dict, output, labels, s: Statics):
    """Mean cross entropy (nats a token)."""
    logits = linear(norm(x, p, "norm", s), output, s).float()
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))


class TrainingNetwork:
    """loss(ids [B, T + 1], documents [B, T]) of `model`; parameters stay the model's own."""

    def __init__(self, model, dtype, compile: bool, gate_density: float = 1.0, gate_penalty: float = 0.0):
        self.model, self.config = model, model.config
        self.gate_density, self.gate_penalty = gate_density, gate_penalty
        self.statics = statics(model.config, dtype, gate_penalty > 0)
        self.layers = [dict(block.named_parameters()) for block in model.model.layers]
        self.final = {f"norm.{k}": v for k, v in model.model.norm.named_parameters()}
        self.layer, self.head_loss = layer, head_loss
        if compile:
            self.layer = torch.compile(layer, dynamic=False)
            self.head_loss = torch.compile(head_loss, dynamic=False)

    def loss(self, ids, documents):
        inputs, labels = ids[:, :-1], ids[:, 1:]
        x = self.model.model.embed_tokens(inputs).float() * self.config.embedding_multiplier
        positions = torch.arange(inputs.shape[1], device=ids.device)[None]
        cos, sin = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
        densities = []
        for parameters in self.layers:
            x, density = self.layer(x, parameters, cos, sin, documents, self.statics)
            densities.append(density)
        loss = self.head_loss(x, self.final, self.model.lm_head.weight, labels, self.statics)
        if self.gate_penalty > 0:
            # A hinge per layer: only layers denser than the target are pushed.
            loss = loss + self.gate_penalty * F.relu(torch.stack(densities) - self.gate_density).sum()
        return loss
