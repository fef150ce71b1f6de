"""The whole model in float64, rounded to bf16 exactly where an engine of that precision stores.

Independent of asynct.hf: it reads config.json and the tensors of a checkpoint directory itself. What is rounded
(docs/architecture.md, "Precision"): the embedding, norm outputs, q after norm and RoPE, k and v as they are cached,
the attention output, act(gate) * up, the residual after each addition, the final norm. What is not: weights (as
stored), scores and attention weights, products before their epilogue, the post-attention norm inside the residual
addition, the logits.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

ORDINARY_NAMES = {"input_norm": "input_layernorm", "pre_mlp_norm": "post_attention_layernorm"}
HEAD_PARAMETERS = {"sigma": 0.0, "slope": 1.0, "bias": 0.0, "gain": 1.0}


def load_tensors(directory: Path) -> dict:
    tensors = {}
    for file in sorted(directory.glob("model*.safetensors")):
        tensors.update(load_file(file))
    return {name: tensor.double() for name, tensor in tensors.items()}


class Bf16Reference:
    def __init__(self, directory: Path, rounding: bool = True):
        """Without rounding it is the model's formula, to be compared with the fp32 reference."""
        self.rounding = rounding
        config = json.loads((directory / "config.json").read_text())
        self.tensors = load_tensors(directory)
        self.ordinary = config["model_type"] != "asynct"
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.head_dim = config["head_dim"]
        self.act = config["hidden_act"]
        self.multiplier = config.get("embedding_multiplier", 1.0)
        self.theta = config["rope_parameters"]["rope_theta"] if self.ordinary else config["rope_theta"]
        self.kind = config.get("attention_kind", "softmax")
        scale = self.head_dim**-0.5 if self.ordinary else config.get("attention_scale")
        self.scale = 1.0 / config["hidden_size"] if scale is None else scale
        self.pool_size, self.pool_relu = config.get("pool_size", 3), config.get("pool_relu", True)
        self.clip = config.get("norm_clip", [-1.0, 1.0])
        self.rms = self.ordinary or config["norm_kind"] == "rms"
        self.epsilon = config.get("rms_norm_eps", 1e-6)

    def stored(self, x):
        return x.float().bfloat16().double() if self.rounding else x

    def norm(self, name: str, x):
        """x itself where the checkpoint has no such norm."""
        if self.rms:
            weight = self.tensors.get(f"{name}.weight")
            return x if weight is None else weight * x / (x.square().mean(-1, keepdim=True) + self.epsilon).sqrt()
        if f"{name}.alpha" not in self.tensors:
            return x
        y = self.tensors[f"{name}.alpha"] * x + self.tensors.get(f"{name}.beta", 0.0)
        return self.tensors[f"{name}.gamma"] * y.clamp(*self.clip)

    def rope(self, x):
        """x [T, heads, D]; the tables are fp32, like everybody's."""
        half = self.head_dim // 2
        exponent = torch.arange(0, self.head_dim, 2, dtype=torch.float32) / self.head_dim
        angle = torch.arange(len(x), dtype=torch.float32)[:, None, None] / self.theta**exponent
        cos, sin = angle.cos().double(), angle.sin().double()
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def head_parameter(self, layer: str, key: str):
        value = self.tensors.get(f"{layer}.self_attn.{key}")
        return HEAD_PARAMETERS[key] if value is None else value[:, None, None]

    def attention_weights(self, layer: str, scores):
        """scores [H, T, T] of queries and keys -> A, zero above the diagonal."""
        visible = torch.ones(scores.shape[-2:]).tril().bool()
        if self.kind == "softmax":
            return scores.masked_fill(~visible, -torch.inf).softmax(-1)
        history = scores.relu() if self.pool_relu else scores
        pooled = torch.zeros_like(scores)
        for lag in range(self.pool_size):
            pooled[..., lag:] += history[..., : scores.shape[-1] - lag]
        pooled /= self.pool_size
        sigma, slope, bias, gain = (self.head_parameter(layer, key) for key in HEAD_PARAMETERS)
        return gain * (slope * scores + bias - sigma * pooled).clamp(0.0, 1.0) * visible

    def attention(self, layer: str, h):
        def heads(kind: str, count: int):
            return (h @ self.tensors[f"{layer}.self_attn.{kind}_proj.weight"].T).view(len(h), count, self.head_dim)

        q = self.stored(self.rope(self.norm(f"{layer}.self_attn.q_norm", heads("q", self.heads))))
        k = self.stored(self.rope(self.norm(f"{layer}.self_attn.k_norm", heads("k", self.kv_heads))))
        v = self.stored(heads("v", self.kv_heads))
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = self.scale * torch.einsum("qhd,khd->hqk", q, k)
        out = torch.einsum("hqk,khd->qhd", self.attention_weights(layer, scores), v)
        return self.stored(out.reshape(len(h), -1)) @ self.tensors[f"{layer}.self_attn.o_proj.weight"].T

    def feed_forward(self, layer: str, h):
        gate, up = (h @ self.tensors[f"{layer}.mlp.{kind}_proj.weight"].T for kind in ("gate", "up"))
        activated = gate.relu() if self.act == "relu" else gate * gate.sigmoid()
        return self.stored(activated * up) @ self.tensors[f"{layer}.mlp.down_proj.weight"].T

    def logits(self, tokens):
        """float32 [T, V] of one sequence."""
        names = ORDINARY_NAMES if self.ordinary else {}
        table = self.tensors["model.embed_tokens.weight"]
        x = self.stored(table[tokens] * self.multiplier)
        for index in range(self.layers):
            layer = f"model.layers.{index}"
            h = self.stored(self.norm(f"{layer}.{names.get('input_norm', 'input_norm')}", x))
            attended = self.attention(layer, h)
            if not self.ordinary:
                attended = self.norm(f"{layer}.post_attention_norm", attended)
            x = self.stored(x + attended)
            h = self.stored(self.norm(f"{layer}.{names.get('pre_mlp_norm', 'pre_mlp_norm')}", x))
            x = self.stored(x + self.feed_forward(layer, h))
        x = self.stored(self.norm("model.norm", x))
        return (x @ self.tensors.get("lm_head.weight", table).T).float()
