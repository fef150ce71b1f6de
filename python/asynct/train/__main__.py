"""python -m asynct.train {tokenizer,model,report} ..."""

import argparse
import json
from dataclasses import fields
from pathlib import Path

import torch

from asynct.hf.configuration_asynct import AsyncTConfig
from asynct.hf.modeling_asynct import AsyncTForCausalLM

from . import checkpoint, dataset, multiple_choice, plot, sources, statistics, tokenizer
from .loop import Options, Trainer

# Which part of each source the tokenizer sees: (source, every n-th document).
TOKENIZER_TEXT = (("stories", 1), ("books_children", 2), ("science", 2), ("arc", 1), ("gsm8k", 1), ("word_problems", 1))
TINY = {"attention_scale": 1 / 64, "embedding_multiplier": 50.0}
TWIN = {"attention_kind": "softmax", "norm_kind": "rms", "attention_scale": 64**-0.5, "embedding_multiplier": 50.0}
STORY_PROMPTS = ("Once upon a time, there was a little girl named", "One day, a boy and his dog went to the river.",
                 "The old king looked at his three sons and said,")  # fmt: skip


def parse_values(pairs) -> dict:
    """key=value with JSON values ("pool_size=5", "attention_kind=\\"softmax\\"")."""
    out = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        try:
            out[key] = json.loads(value)
        except json.JSONDecodeError:
            out[key] = value
    return out


def mix(weights: dict, without) -> list:
    chosen = []
    for source in sources.DEFAULT_MIX:
        changes = {"weight": weights.get(source.name, source.weight)}
        changes["files"] = tuple(f for f in source.files if f not in without)
        if changes["weight"] > 0:
            chosen.append(sources.Source(**{**source.__dict__, **changes}))
    return chosen


def train_tokenizer(args) -> None:
    by_name = {s.name: s for s in sources.DEFAULT_MIX}
    texts = (d for name, every in TOKENIZER_TEXT for d in sources.load(by_name[name], args.data)[0][::every])
    made = tokenizer.train(texts, args.vocab_size, args.pre_tokenizer)
    tokenizer.save(made, args.out, args.max_length)
    print(f"{args.out}: {made.get_vocab_size()} tokens")


def train_model(args) -> None:
    torch.manual_seed(args.seed)
    bpe = tokenizer.load(args.tokenizer)
    end_id = bpe.token_to_id(tokenizer.END_OF_TEXT)
    chosen = mix(parse_values(args.weight), args.without)
    corpus, held_out = dataset.build_cached(args.tokens, chosen, args.data, bpe, end_id)
    print("corpus:", corpus.summary(), flush=True)
    values = {**(TWIN if args.twin else TINY), **parse_values(args.config)}
    ids = {"bos_token_id": end_id, "eos_token_id": end_id, "pad_token_id": end_id}
    config = AsyncTConfig(vocab_size=bpe.get_vocab_size(), **{"num_key_value_heads": 2, **ids, **values})
    if args.channel_alpha:
        config.tensor_shapes = channel_alpha_shapes(config)
    if args.init:
        model = AsyncTForCausalLM.from_pretrained(args.init, dtype=torch.float32).to(args.device)
    else:
        model = AsyncTForCausalLM(config).to(args.device)
    print(f"parameters: {sum(p.numel() for p in model.parameters()):,}", flush=True)
    names = {f.name for f in fields(Options)}
    options = Options(**{k: v for k, v in vars(args).items() if k in names})
    sampler = dataset.WindowSampler(corpus, end_id, args.seed, args.device)
    trainer = Trainer(model, sampler, held_out, end_id, options)
    if args.resume and trainer.resume():
        print(f"resumed at step {trainer.step}")
    trainer.train()
    checkpoint.write(model, args.out, args.tokenizer)
    summary = {
        "steps": trainer.step, "tokens": trainer.tokens, "seconds": round(trainer.seconds(), 1),
        "parameters": sum(p.numel() for p in model.parameters()), "options": vars(options),
        "mix": {n: [int(l), round(float(s), 4)] for n, l, s in zip(corpus.names, corpus.length, corpus.share)},
        "held_out": trainer.evaluations[-1], "train_loss": trainer.history[-1]["loss"] if trainer.history else None,
    }  # fmt: skip
    (Path(args.out) / "summary.json").write_text(json.dumps(summary, indent=1))


def channel_alpha_shapes(config) -> dict:
    """tensor_shapes of the same model with alpha per channel in the norms over the hidden size."""
    shapes = {name: tuple(t.shape) for name, t in AsyncTForCausalLM(config).state_dict().items()}
    wide = {n: (config.hidden_size,) for n in shapes if n.endswith("norm.alpha") and "self_attn" not in n}
    return {**shapes, **wide}


def report(args) -> None:
    """Scores, statistics and samples of a written checkpoint (loaded as anyone would), and the loss plot."""
    directory = Path(args.model)
    model = AsyncTForCausalLM.from_pretrained(directory, dtype=torch.float32).to(args.device).eval()
    bpe = tokenizer.load(directory)
    end_id = bpe.token_to_id(tokenizer.END_OF_TEXT)
    result = {}
    if args.arc:
        result["arc"] = {Path(f).stem: multiple_choice.score(model, bpe, f, args.limit) for f in args.arc}
        print(json.dumps(result["arc"]), flush=True)
    result["statistics"] = {}
    for source in sources.DEFAULT_MIX:
        if source.name in ("stories", "science"):
            held = sources.load(source, args.data)[1]
            encoded = [bpe.encode(d, add_special_tokens=False).ids[:512] for d in held]
            windows = [torch.tensor(ids, device=args.device) for ids in encoded if len(ids) >= 256][:32]
            result["statistics"][source.name] = statistics.gather(model, windows)
    print(json.dumps(result["statistics"]), flush=True)
    result["samples"] = [sample(model, bpe, end_id, p, args.device) for p in STORY_PROMPTS]
    Path(args.out).write_text(json.dumps(result, indent=1))
    for s in result["samples"]:
        print(f"--- {s['prompt']}\n[greedy] {s['greedy']}\n[t=0.7] {s['sampled']}", flush=True)
    if args.plot:
        plot.draw(parse_values(args.runs), args.plot)


def sample(model, bpe, end_id: int, prompt: str, device, count: int = 160) -> dict:
    ids = torch.tensor([bpe.encode(prompt, add_special_tokens=False).ids], device=device)
    common = {"max_new_tokens": count, "eos_token_id": end_id, "pad_token_id": end_id}
    mask = torch.ones_like(ids)
    torch.manual_seed(0)
    greedy = model.generate(ids, attention_mask=mask, do_sample=False, **common)
    drawn = model.generate(ids, attention_mask=mask, do_sample=True, temperature=0.7, top_k=50, **common)
    return {"prompt": prompt, "greedy": bpe.decode(greedy[0].tolist()), "sampled": bpe.decode(drawn[0].tolist())}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m asynct.train", description=__doc__)
    commands = top.add_subparsers(required=True)
    show_defaults = argparse.ArgumentDefaultsHelpFormatter

    p = commands.add_parser("tokenizer", help="train a byte-level BPE tokenizer", formatter_class=show_defaults)
    p.add_argument("--data", nargs="+", required=True, help="directories with the training files")
    p.add_argument("--out", required=True)
    p.add_argument("--vocab-size", type=int, default=4096)
    p.add_argument("--pre-tokenizer", choices=("qwen", "gpt2"), default="qwen")
    p.add_argument("--max-length", type=int, default=2048)
    p.set_defaults(run=train_tokenizer)

    p = commands.add_parser("model", help="train a model, or its softmax twin", formatter_class=show_defaults)
    p.add_argument("--data", nargs="+", required=True, help="directories with the training files")
    p.add_argument("--tokenizer", required=True, help="directory with tokenizer.json")
    p.add_argument("--twin", action="store_true", help="RMSNorm + softmax instead of DyHT + AsyncI")
    p.add_argument("--config", nargs="*", default=[], help="key=value changes of the model configuration")
    p.add_argument("--channel-alpha", action="store_true", help="alpha per channel instead of scalar")
    p.add_argument("--weight", nargs="*", default=[], help="source=weight changes of the mix")
    p.add_argument("--without", nargs="*", default=[], help="files to leave out of the mix")
    p.add_argument("--tokens", help="keep the encoded corpus in this .npz file")
    p.add_argument("--init", help="start from the weights of this checkpoint directory")
    p.add_argument("--resume", action="store_true", help="go on from OUT/state.pt")
    for field in fields(Options):
        name = "--" + field.name.replace("_", "-")
        if field.name == "out":
            p.add_argument(name, required=True)
        elif isinstance(field.default, bool):
            p.add_argument(name, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            kind = {"steps": int, "seconds": float}.get(field.name, type(field.default))
            p.add_argument(name, type=kind, default=field.default)
    p.set_defaults(run=train_model)

    p = commands.add_parser("report", help="scores, statistics, samples, plot", formatter_class=show_defaults)
    p.add_argument("--model", required=True)
    p.add_argument("--data", nargs="+", required=True)
    p.add_argument("--arc", nargs="*", default=[], help="ARC files to score")
    p.add_argument("--limit", type=int)
    p.add_argument("--device", default="cuda")
    p.add_argument("--out", required=True, help="JSON file")
    p.add_argument("--plot", help="PNG file")
    p.add_argument("--runs", nargs="*", default=[], help="label=directory of the runs in the plot")
    p.set_defaults(run=report)
    return top


if __name__ == "__main__":
    args = parser().parse_args()
    args.run(args)
