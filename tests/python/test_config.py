"""A configuration the model cannot honour is refused with the key's name."""

import pytest
from asynct.hf.configuration_asynct import AsyncTConfig
from conftest import SMALL


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sliding_window": 128}, "unknown key.* sliding_window"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "unknown key.* rope_scaling"),
        ({"norm_clip": [1, -1]}, "norm_clip is .* expected \\[lo, hi\\]"),
        ({"norm_clip": 1.0}, "norm_clip is 1.0"),
        ({"attention_kind": "linear"}, "attention_kind is 'linear', expected one of"),
        ({"norm_kind": "layer"}, "norm_kind is 'layer'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"pool_size": 0}, "pool_size is 0, expected a positive integer"),
        ({"pool_size": 3.0}, "pool_size is 3.0"),
        ({"pool_relu": 1}, "pool_relu is 1, expected true or false"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3, expected a divisor"),
        ({"head_dim": 7}, "head_dim is 7, expected an even number"),
        ({"attention_scale": "auto"}, "attention_scale is 'auto'"),
        ({"rope_theta": -1}, "rope_theta is -1"),
    ],
)
def test_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        AsyncTConfig(**{**SMALL, **changes})


def test_scale_defaults_to_one_over_hidden_size():
    assert AsyncTConfig(**{**SMALL, "attention_scale": None}).score_scale == 1 / 32


def test_keys_without_arithmetic_are_accepted():
    config = AsyncTConfig(**SMALL, torch_dtype="bfloat16", transformers_version="5.0", architectures=["AsyncTForCausalLM"])
    assert "tensor_shapes" not in config.to_dict()
