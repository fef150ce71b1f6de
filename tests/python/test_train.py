"""Training: the fast forward pass is the reference's, data never mix documents or splits, runs resume."""

import json
import random
import re

import numpy as np
import pytest
import torch
from asynct.hf.modeling_asynct import AsyncTForCausalLM
from asynct.train import arithmetic, cloze, dataset, multiple_choice, sources, tokenizer
from asynct.train.__main__ import parser
from asynct.train.network import TrainingNetwork
from asynct.train.optimizer import newton_schulz
from conftest import KINDS, make


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"bare"}))
def test_training_loss_is_the_reference_loss_of_each_document(kind):
    model = make(**KINDS[kind])
    ids = torch.randint(1, 61, (2, 21), generator=torch.Generator().manual_seed(0))
    documents = torch.zeros(2, 20, dtype=torch.int32)
    documents[:, 7:] = 1
    loss = TrainingNetwork(model, torch.float32, compile=False).loss(ids, documents)
    logits = torch.cat((model(ids[:, :7]).logits, model(ids[:, 7:20]).logits), 1)
    want = torch.nn.functional.cross_entropy(logits.reshape(-1, 61), ids[:, 1:].reshape(-1))
    assert loss.item() == pytest.approx(want.item(), rel=1e-5)


def test_end_of_text_opens_or_closes_a_document_by_place():
    ids = torch.tensor([[5, 0, 6, 7, 0, 8]])
    index = torch.arange(6)[None]
    assert dataset.document_numbers(ids, index, 0).tolist() == [[0, 0, 1, 1, 2, 2]]  # place 1 closes, place 4 opens


def test_arithmetic_is_right():
    rng = random.Random(5)
    for _ in range(300):
        text = arithmetic.problem(rng)
        steps = re.findall(r"<<([^=]+)=([^>]+)>>(\S+?)\b", text)
        assert steps
        for expression, value, written in steps:
            assert re.fullmatch(r"[\d.+*/-]+", expression)
            assert eval(expression) == pytest.approx(float(value))
            assert written == value
        assert text.rsplit("#### ", 1)[1] == steps[-1][1]


def test_every_hundredth_document_is_held_out(tmp_path):
    text = "".join(f"document {i}\n<|endoftext|>\n" for i in range(250))
    (tmp_path / "a.txt").write_text(text)
    train, held = sources.load(sources.Source("a", ("a.txt",), 1), [tmp_path])
    assert held == ["document 99", "document 199"] and len(train) == 248


def test_test_splits_are_refused(tmp_path):
    (tmp_path / "arc_easy_test.jsonl").write_text("")
    with pytest.raises(ValueError, match="test split is never trained on"):
        sources.load(sources.Source("arc", ("arc_easy_test.jsonl",), 1, "questions"), [tmp_path])


def test_cloze_splits_a_sentence_in_two():
    page = "Water cycle\n\nThe water cycle is a process that moves water from the ocean to the land and back again."
    texts = cloze.questions(page, seed=0, share=1.0)
    assert texts[0].startswith("Question: What is water cycle?\nAnswer: a process that moves water")
    question, answer = texts[-1].removeprefix("Question: ").split("\nAnswer: ")
    assert f"{question} {answer}." in page


def test_newton_schulz_orthogonalizes():
    g = torch.randn(3, 16, 40, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(newton_schulz(g))
    assert values.min() > 0.5 and values.max() < 1.3


@pytest.mark.parametrize("kind", ("qwen", "gpt2"))
def test_tokenizer_round_trip(tmp_path, kind):
    made = tokenizer.train(["the cat sat on the mat in 1984"] * 5, 300, kind)
    tokenizer.save(made, tmp_path, 128)
    text = "The cat\n\n sat: 1984 — naïve 猫\r\n"
    loaded = tokenizer.load(tmp_path)
    assert loaded.decode(loaded.encode(text).ids, skip_special_tokens=False) == text
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["eos_token"] == tokenizer.END_OF_TEXT


@pytest.fixture
def corpus_dir(tmp_path):
    items = [{"question": f"What is {i} plus {i}?", "answer": str(2 * i)} for i in range(400)]
    (tmp_path / "gsm8k_train.jsonl").write_text("\n".join(map(json.dumps, items)))
    words = tokenizer.train([f"Question: {q['question']}\nAnswer: {q['answer']}" for q in items], 320, "qwen")
    tokenizer.save(words, tmp_path / "tok", 128)
    return tmp_path


def run(corpus_dir, out, *more):
    others = [f"{s.name}=0" for s in sources.DEFAULT_MIX if s.name != "gsm8k"]
    words = ["model", "--data", corpus_dir, "--tokenizer", corpus_dir / "tok", "--out", out, "--device", "cpu",
             "--no-compile", "--batch-tokens", 256, "--length", 32, "--long-length", 64, "--log-every", 1,
             "--warmup", 2, "--config", "hidden_size=32", "num_attention_heads=2", "head_dim=16",
             "intermediate_size=48", "num_hidden_layers=2", "--weight", *others, *more]  # fmt: skip
    args = parser().parse_args([str(w) for w in words])
    args.run(args)
    return json.loads((out / "history.json").read_text())["train"]


@pytest.mark.parametrize("optimizer", ("adamw", "muon"))
def test_training_learns_and_resumes(corpus_dir, tmp_path, optimizer):
    options = ("--optimizer", optimizer, "--save-every", 0)
    whole = run(corpus_dir, tmp_path / "whole", "--steps", 24, *options)
    assert whole[-1]["loss"] < whole[0]["loss"] - 0.3
    half = tmp_path / "half"
    # Interrupted in the middle of the same schedule: the state file of step 12, then the rest.
    run_until(corpus_dir, half, 12, options)
    rest = run(corpus_dir, half, "--steps", 24, "--resume", *options)
    assert [r["step"] for r in rest] == [r["step"] for r in whole]
    assert rest[-1]["loss"] == pytest.approx(whole[-1]["loss"], rel=1e-4)


def run_until(corpus_dir, out, step, options):
    from asynct.train.loop import Trainer

    class Stop(Exception):
        pass

    save = Trainer.save

    def save_and_stop(self):
        save(self)
        if self.step == step:
            raise Stop

    Trainer.save = save_and_stop
    try:
        with pytest.raises(Stop):
            run(corpus_dir, out, "--steps", 24, *options)
    finally:
        Trainer.save = save


def test_gate_penalty_makes_gates_sparser(corpus_dir, tmp_path):
    words = tokenizer.load(corpus_dir / "tok")
    ids = torch.tensor([words.encode("Question: What is 12 plus 12?\nAnswer: 24").ids])

    def zeros(out):
        model = AsyncTForCausalLM.from_pretrained(out, dtype=torch.float32)
        shares = []
        for block in model.model.layers:
            block.mlp.gate_proj.register_forward_hook(lambda _m, _i, y: shares.append((y <= 0).float().mean().item()))
        model(ids)
        return np.mean(shares)

    run(corpus_dir, tmp_path / "plain", "--steps", 30)
    run(corpus_dir, tmp_path / "sparse", "--steps", 30, "--gate-penalty", 5)
    assert zeros(tmp_path / "sparse") > zeros(tmp_path / "plain") + 0.05


def test_choice_scores_sum_the_continuation(corpus_dir, tmp_path):
    words = tokenizer.load(corpus_dir / "tok")
    model = make(vocab_size=words.get_vocab_size())
    item = {"question": "What is 3 plus 3?", "choices": ["6", "61 plus 2"], "answer": 0}
    requests = multiple_choice.requests([item], words)
    sums = []
    for _, _, start, ids in requests:
        with torch.no_grad():
            logp = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        sums.append(sum(logp[t - 1, ids[t]].item() for t in range(start, len(ids))))
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps(item) + "\n")
    result = multiple_choice.score(model, words, path)
    assert result["acc"] == float(np.argmax(sums) == 0)
    assert result["acc_norm"] == float(np.argmax([sums[0] / 1, sums[1] / 9]) == 0)
