"""Checkpoint directories: what `train` writes loads as remote code, and what does not fit is refused."""

import json

import pytest
import torch
from asynct.hf.modeling_asynct import AsyncTForCausalLM
from asynct.train import checkpoint
from conftest import make
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

IDS = torch.arange(1, 30)[None]


def test_remote_code_round_trip(tmp_path):
    model = make()
    checkpoint.write(model, tmp_path, dtype=torch.float32)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True, dtype=torch.float32).eval()
    with torch.no_grad():
        assert torch.equal(loaded(IDS).logits, model(IDS).logits)
    generated = loaded.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=4, do_sample=False)
    assert generated.shape[1] <= IDS.shape[1] + 4


def test_shapes_and_optional_tensors_come_from_the_file(tmp_path):
    model = make()
    checkpoint.write(model, tmp_path, dtype=torch.float32)
    state = load_file(tmp_path / "model.safetensors")
    state["model.norm.alpha"] = torch.full((32,), 0.5)
    state["model.norm.beta"] = torch.full((1,), 0.1)
    state["model.layers.1.self_attn.gain"] = torch.full((4,), 0.5)
    save_file(state, tmp_path / "model.safetensors")
    loaded = AsyncTForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert loaded.model.norm.alpha.shape == (32,)
    assert loaded.model.norm.beta.item() == pytest.approx(0.1)
    assert loaded.model.layers[1].self_attn.gain.tolist() == [0.5] * 4
    assert loaded.model.layers[0].self_attn.gain is None


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda s: s.pop("model.layers.1.self_attn.sigma"), "sigma is missing"),
        (lambda s: s.pop("model.layers.0.mlp.up_proj.weight"), "up_proj.weight is missing"),
        (lambda s: s.update({"model.norm.weight": torch.ones(32)}), "model.norm.weight is not part of this model"),
        (lambda s: s.update(extra=torch.zeros(2)), "extra is not part of this model"),
    ],
)
def test_wrong_tensors_are_refused(tmp_path, change, message):
    checkpoint.write(make(), tmp_path, dtype=torch.float32)
    state = load_file(tmp_path / "model.safetensors")
    change(state)
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        AsyncTForCausalLM.from_pretrained(tmp_path)


def test_golden_logits(root):
    """The committed golden files are what the reference gives today."""
    directories = sorted(p.parent for p in (root / "tests/golden").glob("*/expected.safetensors"))
    ours = [d for d in directories if json.loads((d / "config.json").read_text())["model_type"] == "asynct"]
    assert len(ours) >= 20
    for directory in ours:
        expected = load_file(directory / "expected.safetensors")
        model = AsyncTForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        with torch.no_grad():
            got = model(expected["tokens"].long()[None]).logits[0]
        error = (got - expected["logits"]).norm() / expected["logits"].norm()
        assert error < 1e-5, directory.name
