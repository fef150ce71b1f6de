"""Writing a checkpoint directory: config.json, bf16 safetensors, tokenizer, generation config, remote code."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from asynct import hf

REMOTE_CODE = ("configuration_asynct.py", "modeling_asynct.py")
AUTO_MAP = {
    "AutoConfig": "configuration_asynct.AsyncTConfig",
    "AutoModel": "modeling_asynct.AsyncTModel",
    "AutoModelForCausalLM": "modeling_asynct.AsyncTForCausalLM",
}
CONFIG_KEYS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "max_position_embeddings", "rope_theta", "tie_word_embeddings", "hidden_act",
    "embedding_multiplier", "attention_kind", "attention_scale", "pool_size", "pool_relu", "norm_kind", "norm_clip",
    "rms_norm_eps", "qk_norm", "post_attention_norm", "bos_token_id", "eos_token_id", "pad_token_id",
)  # fmt: skip


def config_dict(config, dtype: torch.dtype) -> dict:
    head = {"model_type": "asynct", "architectures": ["AsyncTForCausalLM"], "auto_map": AUTO_MAP}
    keys = [k for k in CONFIG_KEYS if k != "rms_norm_eps" or config.norm_kind == "rms"]
    return {**head, **{k: getattr(config, k) for k in keys}, "torch_dtype": str(dtype).removeprefix("torch.")}


def tensors(model, dtype: torch.dtype) -> dict:
    state = {name: t.detach().to("cpu", dtype).contiguous() for name, t in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return state


def write_config(model, directory, dtype=torch.bfloat16) -> None:
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config_dict(model.config, dtype), indent=2)
    (directory / "config.json").write_text(text + "\n", encoding="utf-8")


def write(model, directory, tokenizer_directory=None, dtype=torch.bfloat16) -> None:
    directory = Path(directory)
    write_config(model, directory, dtype)
    save_file(tensors(model, dtype), directory / "model.safetensors", metadata={"format": "pt"})
    c = model.config
    generation = {"bos_token_id": c.bos_token_id, "eos_token_id": c.eos_token_id, "pad_token_id": c.pad_token_id}
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
    for name in REMOTE_CODE:
        shutil.copyfile(Path(hf.__file__).parent / name, directory / name)
    if tokenizer_directory is not None:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(Path(tokenizer_directory) / name, directory / name)
