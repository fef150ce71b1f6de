"""What the C++ model must reproduce, from the PyTorch reference.

    PYTHONPATH=python python tests/golden/make_goldens.py [checkpoints|bf16|greedy] [--out tests/golden] [--only NAME ...]

checkpoints (default): tiny random checkpoints, one for each switch of the model. Each directory NAME/ holds
config.json, the weights, and expected.safetensors {tokens int32 [T], logits f32 [T, V], logits_bf16 f32 [T, V]}.
`logits` are the reference's in fp32 whatever the stored dtype; `logits_bf16` those of bf16_reference.py, which rounds
where a bf16 engine stores. The script fails when a case would not test what it is for: clamps that never act,
attention weights that are all zero or all positive, flat logits.

bf16: computes `logits_bf16` again for the directories that are there, and leaves everything else as it is.

greedy: 256 greedy tokens of the bundled checkpoint in fp32, greedy_asynct_tiny.json. Run it whenever
models/asynct-tiny changes.
"""

import argparse
import json
import shutil
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import torch
from bf16_reference import Bf16Reference
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from asynct.hf.configuration_asynct import AsyncTConfig
from asynct.hf.modeling_asynct import AsyncTForCausalLM, DyHT
from asynct.train.checkpoint import config_dict

BASE = {
    "vocab_size": 53,
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "embedding_multiplier": 50.0,
    "attention_scale": 0.5,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
SOFTMAX = {"attention_kind": "softmax", "attention_scale": 8**-0.5}


@dataclass
class Case:
    length: int
    config: dict = field(default_factory=dict)
    norm: str = "scalar"  # shape of alpha and gamma: scalar, channel, or mixed (alpha scalar, gamma per channel)
    beta: bool = False
    heads: tuple = ()  # optional per-head tensors that are present
    sigma: tuple = (0.2, 1.3)  # range
    sigma_values: tuple = ()  # or exactly these
    dtype: torch.dtype = torch.float32
    shards: int = 1
    score_gain: float = 1.0  # on q_norm's gamma, for small attention scales


CASES = {
    "asynci_pool3": Case(61, {"hidden_size": 32, "intermediate_size": 64}, norm="mixed"),
    "asynci_pool1": Case(47, {"pool_size": 1}, sigma=(0.1, 0.9)),
    "asynci_pool2": Case(33, {"pool_size": 2, "num_key_value_heads": 4}),
    "asynci_pool5": Case(70, {"pool_size": 5, "num_key_value_heads": 1, "rope_theta": 500.0}),
    "asynci_no_pool_relu": Case(65, {"pool_relu": False}),
    "asynci_sigma_classes": Case(49, sigma_values=(-1.5, 0.0, 3.0, 2.9)),
    "asynci_head_affine": Case(66, heads=("slope", "bias", "gain"), norm="mixed"),
    "asynci_default_scale": Case(40, {"attention_scale": None}, score_gain=12.0),
    "asynci_rms": Case(50, {"norm_kind": "rms", "attention_scale": 0.25}),
    "uniaffine": Case(52, {"attention_kind": "uniaffine"}, heads=("slope", "bias", "gain"), norm="channel", beta=True),
    "softmax_twin": Case(64, {**SOFTMAX, "norm_kind": "rms", "rms_norm_eps": 1e-5}),
    "softmax_dyht": Case(41, {**SOFTMAX, "attention_scale": 0.8}, norm="mixed"),
    "dyht_channel": Case(48, norm="channel"),
    "dyht_scalar_beta": Case(45, norm="scalar", beta=True),
    "norm_clip": Case(55, {"norm_clip": [-0.5, 1.75]}, norm="channel", beta=True),
    "no_qk_norm": Case(63, {"qk_norm": False, "attention_scale": 0.2}),
    "no_post_attention_norm": Case(42, {"post_attention_norm": False}),
    "untied_silu": Case(57, {"tie_word_embeddings": False, "hidden_act": "silu", "embedding_multiplier": 1.0}),
    "odd_sizes": Case(
        68,
        {"hidden_size": 28, "intermediate_size": 30, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10, "vocab_size": 59},
    ),
    "sharded": Case(43, {"tie_word_embeddings": False}, shards=3),
    "weights_bf16": Case(60, dtype=torch.bfloat16, norm="mixed"),
    "weights_f16": Case(58, dtype=torch.float16, norm="mixed"),
}


def uniform(generator, shape, low: float, high: float):
    return low + (high - low) * torch.rand(shape, generator=generator)


def shape_of(case: Case, name: str, size: int):
    kind = name.rsplit(".", 1)[1]
    wide = case.norm == "channel" or (case.norm == "mixed" and kind != "alpha")
    return (size,) if wide else (1,)


def make_model(case: Case, generator):
    """A random model whose optional tensors and norm shapes are those of the case."""
    values = {**BASE, **case.config}
    plain = AsyncTForCausalLM(AsyncTConfig(**values))
    shapes = {name: tuple(t.shape) for name, t in plain.state_dict().items()}
    for module_name, module in plain.named_modules():
        if isinstance(module, DyHT):
            size = values["head_dim"] if "self_attn" in module_name else values["hidden_size"]
            for kind in ("alpha", "gamma") + (("beta",) if case.beta else ()):
                name = f"{module_name}.{kind}"
                shapes[name] = shape_of(case, name, size)
    for layer in range(values["num_hidden_layers"]):
        for head in case.heads:
            shapes[f"model.layers.{layer}.self_attn.{head}"] = (values["num_attention_heads"],)
    model = AsyncTForCausalLM(AsyncTConfig(**values, tensor_shapes=shapes)).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(random_tensor(case, name, tensor, generator))
    return model.to(case.dtype).float()  # what a reader of the stored weights gets


def random_tensor(case: Case, name: str, tensor, generator):
    shape, kind = tensor.shape, name.rsplit(".", 1)[1]
    multiplier = {**BASE, **case.config}["embedding_multiplier"]
    if name.endswith("embed_tokens.weight"):
        return torch.randn(shape, generator=generator) / multiplier
    if kind == "weight" and len(shape) == 2:
        return torch.randn(shape, generator=generator) * shape[1] ** -0.5
    if kind == "alpha":
        return uniform(generator, shape, 0.7, 1.6)
    if kind in ("gamma", "weight"):
        sign = 1.0 if "q_norm" in name or "k_norm" in name else torch.randint(0, 2, shape, generator=generator) * 2 - 1
        gain = case.score_gain if "q_norm" in name else 1.0
        return uniform(generator, shape, 0.7, 1.4) * sign * gain
    if kind == "beta":
        return uniform(generator, shape, -0.4, 0.4)
    if kind == "sigma":
        return torch.tensor(case.sigma_values) if case.sigma_values else uniform(generator, shape, *case.sigma)
    # One head of each sign: positive slopes skip, negative slopes and positive biases are dense.
    pattern = {"slope": [1.2, 0.7, -0.8, 1.5], "bias": [-0.1, 0.2, 0.3, 0.0], "gain": [1.0, 0.6, 1.7, -0.9]}[kind]
    return torch.tensor(pattern) + uniform(generator, shape, -0.05, 0.05)


@torch.no_grad()
def check(name: str, case: Case, model, tokens, logits) -> str:
    """Refuses cases in which the thing under test does not happen; returns the numbers."""
    clipped = []
    hooks = []

    def watch(module, inputs, _):
        x = module.alpha * inputs[0] + (0 if module.beta is None else module.beta)
        clipped.append(((x <= module.lo) | (x >= module.hi)).float().mean().item())

    for module in model.modules():
        if isinstance(module, DyHT):
            hooks.append(module.register_forward_hook(watch))
    attentions = model(tokens[None], use_cache=False, output_attentions=True).attentions
    for hook in hooks:
        hook.remove()
    lower = torch.ones(len(tokens), len(tokens)).tril().bool()
    zero, one = [], []
    for layer, a in zip(model.model.layers, attentions):
        gain = layer.self_attn.head_parameter("gain")
        a = a[0] / gain
        zero.append((a[:, lower] == 0).float().mean().item())
        one.append((a[:, lower] >= 1).float().mean().item())
    spread = (logits.std(0).mean() / logits.std()).item()
    if spread < 0.3:
        raise AssertionError(f"{name}: logits hardly depend on the position (spread {spread:.3f})")
    if clipped and not 0.05 < min(clipped) <= max(clipped) < 0.95:
        raise AssertionError(f"{name}: share of clamped norm values {min(clipped):.3f}..{max(clipped):.3f}")
    if model.config.attention_kind != "softmax":
        if not (0.1 < min(zero) and max(zero) < 0.97 and min(one) > 0.002):
            raise AssertionError(f"{name}: shares of A = 0 {zero}, A = 1 {one}")
    clamps = f"clamped {min(clipped):.2f}..{max(clipped):.2f}  " if clipped else ""
    return f"{clamps}A=0 {max(zero):.2f}  A=1 {max(one):.3f}  logits spread {spread:.2f}"


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_weights(directory: Path, state: dict, shards: int) -> None:
    if shards == 1:
        save_file(state, directory / "model.safetensors", metadata={"format": "pt"})
        return
    names, weight_map = sorted(state), {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {n: state[n] for n in names[i::shards]}
        save_file(part, directory / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, file))
    total = sum(t.numel() * t.element_size() for t in state.values())
    write_json(directory / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})


def relative_error(a, b) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def write_expected(directory: Path, tokens, logits) -> str:
    """Beside a checkpoint that is written. The second reference must agree with the first where nothing is rounded."""
    exact = relative_error(Bf16Reference(directory, rounding=False).logits(tokens), logits)
    if not exact < 5e-6:
        raise AssertionError(f"{directory}: the two references differ by {exact}")
    bf16 = Bf16Reference(directory).logits(tokens)
    tensors = {"tokens": tokens.to(torch.int32), "logits": logits.contiguous(), "logits_bf16": bf16.contiguous()}
    save_file(tensors, directory / "expected.safetensors")
    return f"rounding to bf16 {relative_error(bf16, logits):.4f}"


def add_bf16(directory: Path) -> str:
    expected = load_file(directory / "expected.safetensors")
    return write_expected(directory, expected["tokens"].long(), expected["logits"])


def draw(name: str, case: Case, attempts: int = 30):
    """The first random model of the case that tests what it is for."""
    for attempt in range(attempts):
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + attempt)
        model = make_model(case, generator)
        tokens = torch.randint(0, model.config.vocab_size, (case.length,), generator=generator)
        with torch.no_grad():
            logits = model(tokens[None], use_cache=False).logits[0]
        try:
            return model, tokens, logits, check(name, case, model, tokens, logits)
        except AssertionError as reason:
            last = reason
    raise last


def write_asynct(root: Path, name: str, case: Case) -> str:
    model, tokens, logits, numbers = draw(name, case)
    directory = fresh(root / name)
    config = config_dict(model.config, case.dtype)
    del config["auto_map"]
    write_json(directory / "config.json", config)
    state = {n: t.to(case.dtype).contiguous() for n, t in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    write_weights(directory, state, case.shards)
    check_loads(directory, tokens, logits)
    return f"{numbers}  {write_expected(directory, tokens, logits)}"


def check_loads(directory: Path, tokens, logits) -> None:
    again = AsyncTForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        difference = (again(tokens[None], use_cache=False).logits[0] - logits).abs().max().item()
    if difference > 1e-5:
        raise AssertionError(f"{directory}: the written checkpoint differs by {difference}")


def write_ordinary(root: Path, name: str, model, length: int) -> str:
    """A Llama or Qwen3 checkpoint as transformers itself writes it."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = model.eval()
    with torch.no_grad():
        for parameter_name, tensor in model.named_parameters():
            if tensor.dim() == 2:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * tensor.shape[1] ** -0.5)
            else:
                tensor.copy_(uniform(generator, tensor.shape, 0.5, 1.5))
        tokens = torch.randint(0, model.config.vocab_size, (length,), generator=generator)
        mask = torch.ones_like(tokens)[None]
        logits = model(tokens[None], attention_mask=mask, use_cache=False).logits[0].float()
    directory = fresh(root / name)
    with tempfile.TemporaryDirectory() as temporary:
        model.save_pretrained(temporary)
        for file in ("config.json", "generation_config.json", "model.safetensors"):
            shutil.copyfile(Path(temporary) / file, directory / file)
    rounding = write_expected(directory, tokens, logits)
    return f"logits spread {(logits.std(0).mean() / logits.std()).item():.2f}  {rounding}"


def ordinary_models() -> dict:
    shape = {
        "vocab_size": 53, "hidden_size": 32, "intermediate_size": 36, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    llama = LlamaConfig(**shape, rms_norm_eps=1e-5, tie_word_embeddings=False, head_dim=8)
    qwen = Qwen3Config(**shape, rms_norm_eps=1e-6, tie_word_embeddings=True, head_dim=12)
    for config, theta in ((llama, 10000.0), (qwen, 1000000.0)):
        config._attn_implementation = "eager"
        config.rope_parameters = {"rope_type": "default", "rope_theta": theta}
    return {"llama": (LlamaForCausalLM(llama), 65), "qwen3": (Qwen3ForCausalLM(qwen), 51)}


def fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


GREEDY_MODEL = Path(__file__).parents[2] / "models" / "asynct-tiny"
GREEDY_PROMPTS = (
    "Once upon a time there was a little girl who",
    "The old king looked at his three sons and said,",
    "One day, a boy and his dog went to the river.",
    "The sun is a star. It",
    "Question: What do plants need to make food?\nAnswer:",
)
GREEDY_TOKENS = 256
LEAST_MARGIN = 1e-3  # between the best logit and the next: far above the rounding of any order of summation


@torch.no_grad()
def greedy(model, prompt_tokens: list) -> tuple:
    """(tokens, the smallest margin); the end of text does not stop it."""
    tokens, margin, cache, new = [], float("inf"), None, torch.tensor([prompt_tokens])
    while len(tokens) < GREEDY_TOKENS:
        out = model(new, past_key_values=cache, use_cache=True, logits_to_keep=1)
        best = out.logits[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        cache, new = out.past_key_values, best.indices[:1][None]
        tokens.append(new.item())
    return tokens, margin


def write_greedy(out: Path) -> str:
    """Of the prompts without a near tie, the one whose text repeats itself least."""
    model = AsyncTForCausalLM.from_pretrained(GREEDY_MODEL, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(GREEDY_MODEL / "tokenizer.json"))
    best = None
    for prompt in GREEDY_PROMPTS:
        prompt_tokens = tokenizer.encode(prompt).ids
        tokens, margin = greedy(model, prompt_tokens)
        if margin > LEAST_MARGIN and (best is None or len(set(tokens)) > len(set(best["tokens"]))):
            best = {"prompt": prompt, "prompt_tokens": prompt_tokens, "tokens": tokens}
            numbers = f"{prompt!r}: {len(set(tokens))} different tokens, smallest margin {margin:.1e}"
    if best is None:
        raise AssertionError(f"every prompt has a margin below {LEAST_MARGIN}: add others to GREEDY_PROMPTS")
    (out / "greedy_asynct_tiny.json").write_text(json.dumps(best) + "\n", encoding="utf-8")
    return numbers


def write_checkpoints(out: Path, wanted) -> None:
    torch.manual_seed(0)
    for name, case in CASES.items():
        if wanted(name):
            print(f"{name:24s} {write_asynct(out, name, case)}", flush=True)
    for name, (model, length) in ordinary_models().items():
        if wanted(name):
            print(f"{name:24s} {write_ordinary(out, name, model, length)}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", nargs="?", choices=("checkpoints", "bf16", "greedy"), default="checkpoints")
    arguments.add_argument("--out", type=Path, default=Path(__file__).parent)
    arguments.add_argument("--only", nargs="*")
    args = arguments.parse_args()

    def wanted(name: str) -> bool:
        return not args.only or name in args.only

    if args.what == "greedy":
        print(write_greedy(args.out))
    elif args.what == "bf16":
        for file in sorted(args.out.glob("*/expected.safetensors")):
            if wanted(file.parent.name):
                print(f"{file.parent.name:24s} {add_bf16(file.parent)}", flush=True)
    else:
        write_checkpoints(args.out, wanted)
    for file in args.out.glob("*/*.safetensors"):
        file.chmod(0o644)


if __name__ == "__main__":
    main()
