# Copyright The AsyncT Authors. SPDX-License-Identifier: Apache-2.0
"""AsyncT decoder, the fp32-exact eager reference (self-contained: this file travels inside checkpoint directories).

Shapes: B batch, T new tokens, J keys in context, H query heads, N key/value heads, D head size, d hidden size.
"""

import json
import os
import struct

import torch
import torch.nn.functional as F
from torch import nn
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import cached_file

from .configuration_asynct import AsyncTConfig

# Per-head parameters and what they are when their tensor is absent.
HEAD_PARAMETERS = {"sigma": 0.0, "slope": 1.0, "bias": 0.0, "gain": 1.0}


def _head_parameters(config, name: str) -> tuple:
    """The per-head tensors of attention `name`: those of the kind, optional ones as the checkpoint has them."""
    if config.attention_kind == "softmax":
        return ()
    optional = ("slope", "bias", "gain")
    if config.tensor_shapes:
        optional = tuple(key for key in optional if f"{name}.{key}" in config.tensor_shapes)
    elif config.attention_kind == "asynci":
        optional = ()
    return ("sigma", *optional) if config.attention_kind == "asynci" else optional


class DyHT(nn.Module):
    """y = gamma * clamp(alpha * x + beta, lo, hi); no statistic of the row is needed."""

    def __init__(self, config: AsyncTConfig, name: str, size: int, alpha: float = 1.0):
        super().__init__()
        shapes = config.tensor_shapes
        self.lo, self.hi = config.norm_clip
        self.alpha = nn.Parameter(torch.full(shapes.get(f"{name}.alpha", (1,)), alpha))
        self.gamma = nn.Parameter(torch.ones(shapes.get(f"{name}.gamma", (size,))))
        beta = shapes.get(f"{name}.beta")
        self.beta = None if beta is None else nn.Parameter(torch.zeros(beta))
        self.initial_alpha = alpha

    def forward(self, x):
        y = self.alpha.float() * x.float()
        if self.beta is not None:
            y = y + self.beta.float()
        return (self.gamma.float() * y.clamp(self.lo, self.hi)).to(x.dtype)


class RMSNorm(nn.Module):
    def __init__(self, config: AsyncTConfig, name: str, size: int, alpha: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = config.rms_norm_eps

    def forward(self, x):
        f = x.float()
        f = f * torch.rsqrt(f.square().mean(-1, keepdim=True) + self.eps)
        return (self.weight.float() * f).to(x.dtype)


def make_norm(config: AsyncTConfig, name: str, size: int, alpha: float = 1.0) -> nn.Module:
    return (DyHT if config.norm_kind == "dyht" else RMSNorm)(config, name, size, alpha)


def rope_tables(position_ids, head_dim: int, theta: float):
    """cos and sin, fp32 [B, 1, T, D / 2]."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32, device=position_ids.device) / head_dim
    angle = position_ids[:, None, :, None].float() * (1.0 / theta**exponent)
    return angle.cos(), angle.sin()


def apply_rope(x, cos, sin):
    """Half-split rotation: channel i pairs with channel i + D / 2."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def causal_pool(r, size: int):
    """P_j = (R_j + ... + R_{j-size+1}) / size over the last axis, zero history on the left."""
    total = r
    for lag in range(1, size):
        total = total + F.pad(r, (lag, 0))[..., : r.shape[-1]]
    return total / size


def asynci_weights(scores, visible, sigma, slope, bias, gain, pool_size: int, pool_relu: bool):
    """A of AsyncI. scores fp32 [B, H, T, J]; visible bool [B, 1, T, J]; per-head factors [H, 1, 1]."""
    scores = scores.masked_fill(~visible, 0.0)
    # Hidden keys pool as zero history, so padding on the left cannot be seen by the first real keys.
    pooled = causal_pool(scores.relu() if pool_relu else scores, pool_size)
    weights = gain * (slope * scores + bias - sigma * pooled).clamp(0.0, 1.0)
    return weights.masked_fill(~visible, 0.0)


def softmax_weights(scores, visible):
    # A row without a visible key (a padding query) must stay finite, so the mask is finite too.
    scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(~visible, 0.0)


def residual_gain(config) -> float:
    """Initial gain of the two projections that write into the residual stream."""
    return 3.0 / (2 * config.num_hidden_layers) ** 0.5


class AsyncTAttention(nn.Module):
    def __init__(self, config: AsyncTConfig, layer_idx: int):
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        name = f"model.layers.{layer_idx}.self_attn"
        self.q_proj = nn.Linear(config.hidden_size, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, config.hidden_size, bias=False)
        self.o_proj.initial_gain = residual_gain(config)
        if config.qk_norm:
            self.q_norm = make_norm(config, f"{name}.q_norm", head_dim, 1.5)
            self.k_norm = make_norm(config, f"{name}.k_norm", head_dim, 1.5)
        present = _head_parameters(config, name)
        for key, neutral in HEAD_PARAMETERS.items():
            value = 1.0 if key == "sigma" else neutral
            setattr(self, key, nn.Parameter(torch.full((heads,), value)) if key in present else None)

    def head_parameter(self, key: str):
        tensor = getattr(self, key)
        return HEAD_PARAMETERS[key] if tensor is None else tensor.float()[:, None, None]

    def weights(self, scores, visible):
        if self.config.attention_kind == "softmax":
            return softmax_weights(scores, visible)
        factors = {key: self.head_parameter(key) for key in HEAD_PARAMETERS}
        return asynci_weights(
            scores, visible, pool_size=self.config.pool_size, pool_relu=self.config.pool_relu, **factors
        )

    def forward(self, x, rope, visible, past_key_values=None):
        batch, length, _ = x.shape
        head_dim = self.config.head_dim
        q = self.q_proj(x).view(batch, length, -1, head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, -1, head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, -1, head_dim).transpose(1, 2)
        if self.config.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = apply_rope(q, *rope), apply_rope(k, *rope)
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, self.layer_idx)
        group = q.shape[1] // k.shape[1]
        keys = k.float().repeat_interleave(group, dim=1)
        values = v.float().repeat_interleave(group, dim=1)
        scores = torch.matmul(q.float(), keys.transpose(2, 3)) * self.config.score_scale
        weights = self.weights(scores, visible)
        out = torch.matmul(weights, values).to(x.dtype)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1)), weights


class AsyncTMLP(nn.Module):
    def __init__(self, config: AsyncTConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.down_proj.initial_gain = residual_gain(config)
        self.act = {"relu": F.relu, "silu": F.silu}[config.hidden_act]

    def forward(self, x):
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class AsyncTDecoderLayer(nn.Module):
    def __init__(self, config: AsyncTConfig, layer_idx: int):
        super().__init__()
        name = f"model.layers.{layer_idx}"
        self.input_norm = make_norm(config, f"{name}.input_norm", config.hidden_size, 0.6)
        self.self_attn = AsyncTAttention(config, layer_idx)
        if config.post_attention_norm:
            self.post_attention_norm = make_norm(config, f"{name}.post_attention_norm", config.hidden_size, 1.0)
        else:
            self.post_attention_norm = nn.Identity()
        self.pre_mlp_norm = make_norm(config, f"{name}.pre_mlp_norm", config.hidden_size, 0.6)
        self.mlp = AsyncTMLP(config)

    def forward(self, x, rope, visible, past_key_values=None):
        attended, weights = self.self_attn(self.input_norm(x), rope, visible, past_key_values)
        x = x + self.post_attention_norm(attended)
        return x + self.mlp(self.pre_mlp_norm(x)), weights


class AsyncTPreTrainedModel(PreTrainedModel):
    config_class = AsyncTConfig
    base_model_prefix = "model"
    _no_split_modules = ["AsyncTDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]

    @torch.no_grad()
    def _init_weights(self, module):
        """Signal scale matters: nothing normalizes, so rows must enter every clamp with rms near 1."""
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=getattr(module, "initial_gain", 1.0) * module.in_features**-0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        elif isinstance(module, DyHT):
            nn.init.constant_(module.alpha, module.initial_alpha)
            nn.init.ones_(module.gamma)
            if module.beta is not None:
                nn.init.zeros_(module.beta)
        elif isinstance(module, RMSNorm):
            nn.init.ones_(module.weight)
        elif isinstance(module, AsyncTAttention):
            for key, neutral in HEAD_PARAMETERS.items():
                if getattr(module, key) is not None:
                    nn.init.constant_(getattr(module, key), 1.0 if key == "sigma" else neutral)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, config=None, **kwargs):
        shapes = checkpoint_shapes(pretrained_model_name_or_path, kwargs) if pretrained_model_name_or_path else {}
        if shapes:
            # Not an isinstance of AsyncTConfig: remote code may have loaded that class a second time.
            if config is None or isinstance(config, (str, os.PathLike)):
                config = AsyncTConfig.from_pretrained(config or pretrained_model_name_or_path)
            config.tensor_shapes = shapes
        model = super().from_pretrained(pretrained_model_name_or_path, *args, config=config, **kwargs)
        if shapes and not kwargs.get("ignore_mismatched_sizes"):
            check_tensors(model, shapes)
        return model


class AsyncTModel(AsyncTPreTrainedModel):
    def __init__(self, config: AsyncTConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([AsyncTDecoderLayer(config, i) for i in range(config.num_hidden_layers)])
        self.norm = make_norm(config, "model.norm", config.hidden_size, 0.6)
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        use_cache=None,
        output_attentions=False,
        output_hidden_states=False,
        **kwargs,
    ):
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        x = x * self.config.embedding_multiplier
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError(f"attention_mask has {attention_mask.dim()} dimensions, expected [batch, keys]")
        if position_ids is None:
            position_ids = default_positions(attention_mask, past, x.shape[1], x.device)
        rope = rope_tables(position_ids, self.config.head_dim, self.config.rope_theta)
        visible = visible_keys(attention_mask, past, x.shape[1], x.device)
        states, attentions = [x], []
        for layer in self.layers:
            x, weights = layer(x, rope, visible, past_key_values)
            states.append(x)
            attentions.append(weights)
        x = self.norm(x)
        return BaseModelOutputWithPast(
            last_hidden_state=x,
            past_key_values=past_key_values,
            hidden_states=(*states[:-1], x) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )


class AsyncTForCausalLM(AsyncTPreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: AsyncTConfig):
        super().__init__(config)
        self.model = AsyncTModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        logits_to_keep: int | torch.Tensor = 0,
        return_dict=None,
        **kwargs,
    ):
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        x = outputs.last_hidden_state
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(x[:, kept, :])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size)
        result = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
        return result if return_dict is not False else result.to_tuple()


def visible_keys(attention_mask, past: int, length: int, device):
    """bool [B or 1, 1, T, past + T]: causal, and real keys only."""
    keys = torch.arange(past + length, device=device)
    queries = torch.arange(past, past + length, device=device)
    visible = (keys[None, :] <= queries[:, None])[None, None]
    if attention_mask is not None:
        mask = attention_mask[:, : past + length].bool()
        if mask.shape[1] != past + length:
            raise ValueError(f"attention_mask covers {mask.shape[1]} keys, the context has {past + length}")
        visible = visible & mask[:, None, None, :]
    return visible


def default_positions(attention_mask, past: int, length: int, device):
    if attention_mask is None:
        return torch.arange(past, past + length, device=device)[None, :]
    positions = attention_mask.long().cumsum(-1) - 1
    return positions.clamp(min=0)[:, past : past + length]


def checkpoint_shapes(path, hub_options: dict) -> dict:
    """Tensor name -> shape from the safetensors headers of a directory or a hub repository; {} if there are none."""
    options = {k: hub_options[k] for k in ("cache_dir", "revision", "token", "local_files_only") if k in hub_options}

    def locate(name):
        if os.path.isdir(path):
            file = os.path.join(path, name)
            return file if os.path.isfile(file) else None
        return cached_file(path, name, _raise_exceptions_for_missing_entries=False, **options)

    index = locate("model.safetensors.index.json")
    if index is not None:
        with open(index, encoding="utf-8") as f:
            files = sorted(set(json.load(f)["weight_map"].values()))
    else:
        files = ["model.safetensors"] if locate("model.safetensors") else []
    shapes = {}
    for name in files:
        with open(locate(name), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        shapes.update({key: tuple(info["shape"]) for key, info in header.items() if key != "__metadata__"})
    return shapes


def check_tensors(model, shapes: dict) -> None:
    """Missing and unknown tensors are errors: transformers would only warn and go on with random weights."""
    prefix = "" if isinstance(model, AsyncTForCausalLM) else "model."
    expected = {prefix + name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        expected.pop("lm_head.weight", None)
    missing = sorted(set(expected) - set(shapes))
    unknown = sorted(set(shapes) - set(expected) - ({"lm_head.weight"} if prefix else set()))
    wrong = sorted(name for name in set(expected) & set(shapes) if expected[name] != shapes[name])
    for what, names in (("is missing", missing), ("is not part of this model", unknown), ("has a wrong shape", wrong)):
        if names:
            raise ValueError(f"AsyncT checkpoint: tensor {names[0]} {what} ({len(names)} such)")


__all__ = ["AsyncTConfig", "AsyncTForCausalLM", "AsyncTModel", "AsyncTPreTrainedModel"]
