import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from asynct.hf.configuration_asynct import AsyncTConfig  # noqa: E402
from asynct.hf.modeling_asynct import AsyncTForCausalLM  # noqa: E402

SMALL = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "attention_scale": 0.4, "embedding_multiplier": 50.0, "bos_token_id": 0,
    "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip

KINDS = {
    "pool1": {"pool_size": 1},
    "pool2": {"pool_size": 2},
    "pool3": {},
    "pool5": {"pool_size": 5},
    "no_pool_relu": {"pool_relu": False},
    "rms": {"norm_kind": "rms", "attention_scale": 0.2},
    "uniaffine": {"attention_kind": "uniaffine"},
    "softmax": {"attention_kind": "softmax", "norm_kind": "rms"},
    "bare": {"qk_norm": False, "post_attention_norm": False, "attention_scale": 0.1},
    "untied_silu": {"tie_word_embeddings": False, "hidden_act": "silu"},
}


def make(**changes):
    """A random model whose attention is far from degenerate."""
    torch.manual_seed(3)
    model = AsyncTForCausalLM(AsyncTConfig(**{**SMALL, **changes})).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.dim() == 1:
                tensor.mul_(0.7 + 0.6 * torch.rand(tensor.shape))
    return model


@pytest.fixture(params=sorted(KINDS))
def model(request):
    return make(**KINDS[request.param])


@pytest.fixture
def root():
    return ROOT
