#!/usr/bin/env python3
# Copyright The AsyncT Authors. SPDX-License-Identifier: Apache-2.0
"""Converts stories260K (llama2.c's binary form) into an ordinary Hugging Face Llama directory.

    tools/convert_stories260k.py MODEL.bin TOKENIZER.bin OUT_DIR [--verify]

OUT_DIR gets config.json, generation_config.json, model.safetensors (fp32) and tokenizer.json (byte-fallback BPE in
Llama-2's form). Needs numpy only; --verify also needs torch and transformers and checks the golden greedy text.
"""

import argparse
import json
import struct
from pathlib import Path

import numpy as np

GOLDEN_PROMPT = "Once upon a time"
GOLDEN_IDS = [1, 403, 407, 261, 378]
GOLDEN_TEXT = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high.\nLily"
)
GOLDEN_TOKENS = 65  # <s>, then 64 steps of llama2.c (the prompt included)
FIRST_BYTE_ID = 3  # after <unk>, <s>, </s>


def read_model(path):
    """Header and tensors by llama2.c's names; stacked matrices keep their layer axis."""
    raw = Path(path).read_bytes()
    dim, hidden, layers, heads, kv_heads, vocab, positions = struct.unpack_from("<7i", raw)
    if vocab <= 0:
        raise SystemExit(f"{path}: vocabulary size {vocab}: untied outputs are not supported here")
    head_dim = dim // heads
    kv_dim = kv_heads * head_dim
    shapes = {
        "embedding": (vocab, dim),
        "attention_norm": (layers, dim),
        "wq": (layers, dim, dim),
        "wk": (layers, kv_dim, dim),
        "wv": (layers, kv_dim, dim),
        "wo": (layers, dim, dim),
        "ffn_norm": (layers, dim),
        "w1": (layers, hidden, dim),
        "w2": (layers, dim, hidden),
        "w3": (layers, hidden, dim),
        "final_norm": (dim,),
        "rope_cos": (positions, head_dim // 2),
        "rope_sin": (positions, head_dim // 2),
    }
    values = np.frombuffer(raw, dtype="<f4", offset=28)
    expected = sum(int(np.prod(shape)) for shape in shapes.values())
    if values.size != expected:
        raise SystemExit(f"{path}: {values.size} values, expected {expected}")
    tensors, begin = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        tensors[name] = values[begin : begin + size].reshape(shape)
        begin += size
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    return config, tensors


def half_split(weight, heads):
    """Rows of each head from llama2.c's RoPE pairs (2i, 2i + 1) to pairs (i, i + D / 2)."""
    rows, cols = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, cols).transpose(0, 2, 1, 3).reshape(rows, cols)


def hf_tensors(config, tensors):
    out = {"model.embed_tokens.weight": tensors["embedding"], "model.norm.weight": tensors["final_norm"]}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        out[f"{layer}.input_layernorm.weight"] = tensors["attention_norm"][i]
        out[f"{layer}.self_attn.q_proj.weight"] = half_split(tensors["wq"][i], config["num_attention_heads"])
        out[f"{layer}.self_attn.k_proj.weight"] = half_split(tensors["wk"][i], config["num_key_value_heads"])
        out[f"{layer}.self_attn.v_proj.weight"] = tensors["wv"][i]
        out[f"{layer}.self_attn.o_proj.weight"] = tensors["wo"][i]
        out[f"{layer}.post_attention_layernorm.weight"] = tensors["ffn_norm"][i]
        out[f"{layer}.mlp.gate_proj.weight"] = tensors["w1"][i]
        out[f"{layer}.mlp.down_proj.weight"] = tensors["w2"][i]
        out[f"{layer}.mlp.up_proj.weight"] = tensors["w3"][i]
    return out


def write_safetensors(path, tensors):
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, begin + tensor.nbytes]}
        begin += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            f.write(np.ascontiguousarray(tensor, dtype="<f4").tobytes())


def read_pieces(path, count):
    """(text, score) of every token; spaces as SentencePiece writes them."""
    raw = Path(path).read_bytes()
    pieces, at = [], 4  # the first int32 is the longest token's length
    for _ in range(count):
        score, length = struct.unpack_from("<fi", raw, at)
        at += 8
        pieces.append((raw[at : at + length].decode("utf-8").replace(" ", "\u2581"), score))
        at += length
    if at != len(raw):
        raise SystemExit(f"{path}: {len(raw) - at} bytes left after {count} tokens")
    return pieces


def tokenizer_json(pieces):
    special = ["<unk>", "<s>", "</s>"]
    texts = special + [f"<0x{b:02X}>" for b in range(256)]
    found = [text for text, _ in pieces[len(special) : len(texts)]]
    if found != texts[len(special) :]:
        raise SystemExit("tokenizer: expected the 256 byte tokens after the special ones")
    texts += [text for text, _ in pieces[len(texts) :]]
    vocab = {text: i for i, text in enumerate(texts)}
    if len(vocab) != len(texts):
        raise SystemExit("tokenizer: a token appears twice")
    # SentencePiece merges the pair whose union has the best score; every split of a piece is such a pair.
    merges = []
    for i in range(FIRST_BYTE_ID + 256, len(texts)):
        splits = [(texts[i][:k], texts[i][k:]) for k in range(1, len(texts[i]))]
        known = sorted((vocab[a], vocab[b], a, b) for a, b in splits if a in vocab and b in vocab)
        merges += [(-pieces[i][1], i, rank, a, b) for rank, (_, _, a, b) in enumerate(known)]
    merges = [[a, b] for _, _, _, a, b in sorted(merges)]

    def added(i):
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        return {"id": i, "content": special[i], **flags}

    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "<s>", "type_id": 1}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(i) for i in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": template,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def reference_encode(text, pieces):
    """llama2.c's encoder: characters, bytes where unknown, then the best-scored adjacent pair until none is left."""
    ids_of = {text: i for i, (text, _) in enumerate(pieces)}
    ids = []
    for c in ("\u2581" + text.replace(" ", "\u2581")) if text else "":
        ids += [ids_of[c]] if c in ids_of else [b + FIRST_BYTE_ID for b in c.encode()]
    while True:
        best = None
        for i in range(len(ids) - 1):
            merged = ids_of.get(pieces[ids[i]][0] + pieces[ids[i + 1]][0])
            if merged is not None and (best is None or pieces[merged][1] > best[0]):
                best = (pieces[merged][1], i, merged)
        if best is None:
            return [1] + ids
        ids[best[1] : best[1] + 2] = [best[2]]


def verify(out, pieces):
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    if not torch.cuda.is_available():  # generate() asks the CUDA driver, which crashes where there is only a stub
        torch.cuda.is_current_stream_capturing = lambda: False
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(out / "tokenizer.json"))
    ids = tokenizer(GOLDEN_PROMPT)["input_ids"]
    assert ids == GOLDEN_IDS == reference_encode(GOLDEN_PROMPT, pieces), ids
    cases = [GOLDEN_TEXT, "", " ", "  two  spaces ", "Zürich \u4f60\u597d \U0001f600\tx\n\n\"Hi!\" 1234", "aaaaaaa bbbb 'tis"]
    cases += [GOLDEN_TEXT[i:] for i in range(0, len(GOLDEN_TEXT), 7)]
    for case in cases:
        got, expected = tokenizer(case)["input_ids"], reference_encode(case, pieces)
        assert got == expected, (case, got, expected)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    result = model.generate(torch.tensor([ids]), max_length=GOLDEN_TOKENS, do_sample=False)[0].tolist()
    text = tokenizer.decode(result, skip_special_tokens=True)
    assert text == GOLDEN_TEXT, text
    print(f"verified: {len(cases)} tokenizer cases and the golden text of {len(result)} tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tokenizer")
    parser.add_argument("out", type=Path)
    parser.add_argument("--verify", action="store_true", help="check the result with torch and transformers")
    args = parser.parse_args()
    config, tensors = read_model(args.model)
    pieces = read_pieces(args.tokenizer, config["vocab_size"])
    args.out.mkdir(parents=True, exist_ok=True)
    write_safetensors(args.out / "model.safetensors", hf_tensors(config, tensors))
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {"bos_token_id": 1, "eos_token_id": 2}
    (args.out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    text = json.dumps(tokenizer_json(pieces), indent=1, ensure_ascii=False)
    (args.out / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    if args.verify:
        verify(args.out, pieces)


if __name__ == "__main__":
    main()
