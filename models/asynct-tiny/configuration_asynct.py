# Copyright The AsyncT Authors. SPDX-License-Identifier: Apache-2.0
"""AsyncT model configuration (self-contained: this file travels inside checkpoint directories)."""

from transformers.configuration_utils import PreTrainedConfig
from transformers.generation import GenerationConfig

ATTENTION_KINDS = ("asynci", "uniaffine", "softmax")
NORM_KINDS = ("dyht", "rms")
HIDDEN_ACTS = ("relu", "silu")

# Keys a config.json may carry that do not change what the model computes. Anything else that is not a
# parameter of AsyncTConfig is refused: a key we do not know may well be arithmetic we do not do.
_NEUTRAL_KEYS = frozenset(
    {
        "_attn_implementation", "_commit_hash", "_experts_implementation", "_name_or_path", "architectures",
        "attn_implementation", "auto_map", "chunk_size_feed_forward", "dtype", "experts_implementation",
        "finetuning_task", "id2label", "initializer_range", "is_encoder_decoder", "label2id", "model_type",
        "name_or_path", "num_labels", "output_attentions", "output_hidden_states", "problem_type", "return_dict",
        "task_specific_params", "tokenizer_class", "torch_dtype", "transformers_version", "use_cache",
    }
)  # fmt: skip


def _require(ok: bool, name: str, found, expected: str) -> None:
    if not ok:
        raise ValueError(f"AsyncT config: {name} is {found!r}, expected {expected}")


def _is_int(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class AsyncTConfig(PreTrainedConfig):
    """Flat configuration of an AsyncT decoder.

    attention_scale: factor on <q, k>; None means 1 / hidden_size.
    norm_clip: [lo, hi] of the DyHT clamp.
    rms_norm_eps: used by norm_kind "rms" only.

    The shapes of alpha, gamma and beta (scalar [1] or per channel [n]) and the presence of beta, slope, bias
    and gain are properties of the tensors, not of config.json: from_pretrained reads them from the safetensors
    headers into `tensor_shapes` (tensor name -> shape), which is never saved.
    """

    model_type = "asynct"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self,
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=None,
        head_dim=None,
        max_position_embeddings=2048,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        hidden_act="relu",
        embedding_multiplier=1.0,
        attention_kind="asynci",
        attention_scale=None,
        pool_size=3,
        pool_relu=True,
        norm_kind="dyht",
        norm_clip=(-1.0, 1.0),
        rms_norm_eps=1e-6,
        qk_norm=True,
        post_attention_norm=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        use_cache=True,
        tensor_shapes=None,
        **kwargs,
    ):
        self._check_unknown_keys(kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_attention_heads if num_key_value_heads is None else num_key_value_heads
        self.head_dim = hidden_size // num_attention_heads if head_dim is None else head_dim
        self.max_position_embeddings = max_position_embeddings
        self.rope_theta = rope_theta
        self.hidden_act = hidden_act
        self.embedding_multiplier = embedding_multiplier
        self.attention_kind = attention_kind
        self.attention_scale = attention_scale
        self.pool_size = pool_size
        self.pool_relu = pool_relu
        self.norm_kind = norm_kind
        self.norm_clip = list(norm_clip) if isinstance(norm_clip, (list, tuple)) else norm_clip
        self.rms_norm_eps = rms_norm_eps
        self.qk_norm = qk_norm
        self.post_attention_norm = post_attention_norm
        self.use_cache = use_cache
        self.tie_word_embeddings = tie_word_embeddings
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.pad_token_id = pad_token_id
        self.tensor_shapes = dict(tensor_shapes or {})
        self._check_values()
        super().__init__(**kwargs)

    @staticmethod
    def _check_unknown_keys(kwargs) -> None:
        generation = set(GenerationConfig().to_dict())
        unknown = sorted(k for k in kwargs if k not in _NEUTRAL_KEYS and k not in generation)
        if unknown:
            raise ValueError(f"AsyncT config: unknown key(s) {', '.join(unknown)}; the model would not be the one meant")

    def _check_values(self) -> None:
        positive = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                    "num_key_value_heads", "head_dim", "max_position_embeddings", "pool_size")  # fmt: skip
        for name in positive:
            value = getattr(self, name)
            _require(_is_int(value) and value > 0, name, value, "a positive integer")
        for name in ("rope_theta", "rms_norm_eps"):
            value = getattr(self, name)
            _require(_is_number(value) and value > 0, name, value, "a positive number")
        for name in ("pool_relu", "qk_norm", "post_attention_norm", "tie_word_embeddings"):
            _require(isinstance(getattr(self, name), bool), name, getattr(self, name), "true or false")
        for name, kinds in (("attention_kind", ATTENTION_KINDS), ("norm_kind", NORM_KINDS), ("hidden_act", HIDDEN_ACTS)):
            _require(getattr(self, name) in kinds, name, getattr(self, name), f"one of {', '.join(kinds)}")
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        _require(heads % kv_heads == 0, "num_key_value_heads", kv_heads, f"a divisor of num_attention_heads = {heads}")
        _require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "an even number (RoPE rotates halves)")
        _require(_is_number(self.embedding_multiplier), "embedding_multiplier", self.embedding_multiplier, "a number")
        scale = self.attention_scale
        _require(scale is None or _is_number(scale), "attention_scale", scale, "null or a number")
        clip = self.norm_clip
        ok = isinstance(clip, list) and len(clip) == 2 and all(map(_is_number, clip)) and clip[0] < clip[1]
        _require(ok, "norm_clip", clip, "[lo, hi] with lo < hi")

    @property
    def score_scale(self) -> float:
        """attention_scale with its default resolved."""
        return 1.0 / self.hidden_size if self.attention_scale is None else float(self.attention_scale)

    def to_dict(self):
        output = super().to_dict()
        output.pop("tensor_shapes", None)
        return output


__all__ = ["AsyncTConfig"]
