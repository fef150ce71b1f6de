"""Beam search of `asynct serve` beside transformers' generate(num_beams=n): tokens, scores and order of all answers."""

import concurrent.futures
import json

import httpx2
import model_comparison  # noqa: F401  (before a model is loaded)
import openai
import pytest
import torch
import transformers
from serving import MODEL, client_fixture, server_fixture, serving, tokenizer_fixture

NAME = "asynct-tiny"
EOS = 0
ENDING = "Question: Tom has 3 apples and buys 4 more. How many apples does he have?\nAnswer:"  # answers end early
SHORT = "Question: Which of these is a source of light?\nAnswer:"  # earlier still
CODE = "def f(x):\n"  # some end
LONG = "Once upon a time"  # no answer ends
PROMPTS = [ENDING, SHORT, CODE, LONG, "The"]
PENALTIES = [0, 0.6, 1, 2, -1, -0.4]
CHAT = [{"role": "user", "content": "What is 2 + 3?"}]


server = server_fixture()
client = client_fixture(timeout=120)
tokenizer = tokenizer_fixture()


@pytest.fixture(scope="module")
def hf_model():
    torch.set_num_threads(1)  # rows of a beam are too small for two
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, trust_remote_code=True, dtype=torch.float32)
    return model.eval()


def reference(model, ids, width, count, ends=EOS, **options):
    """(tokens, score) of the answers, the end token with them."""
    config = transformers.GenerationConfig(
        num_beams=width,
        num_return_sequences=width,
        do_sample=False,
        max_new_tokens=count,
        eos_token_id=ends,
        pad_token_id=EOS,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(model.generation_config, "eos_token_id", ends)  # what stands for None in another one
        found = model.generate(torch.tensor([ids]), generation_config=config)
    lengths = (found.beam_indices >= 0).sum(1).tolist()
    tokens = [row[len(ids) : len(ids) + n] for row, n in zip(found.sequences.tolist(), lengths, strict=True)]
    return list(zip(tokens, found.sequences_scores.tolist(), strict=True))


def search(client, prompt, width, count, **options):
    options = {"use_beam_search": True, **options}
    return client.completions.create(
        model=NAME, prompt=prompt, n=width, max_tokens=count, logprobs=0, extra_body=options
    )


def assert_answers(answer, expected, tokenizer, ends=(EOS,), penalty=1.0):
    assert len(answer.choices) == len(expected)
    for choice, (tokens, score) in zip(answer.choices, expected, strict=True):
        assert choice.logprobs.tokens == [tokenizer.decode([t], skip_special_tokens=False) for t in tokens]
        assert choice.finish_reason == ("stop" if tokens[-1] in ends else "length")
        shown = tokens[:-1] if tokens[-1] in ends else tokens
        assert choice.text == tokenizer.decode(shown, skip_special_tokens=True)
        found = sum(choice.logprobs.token_logprobs) / len(tokens) ** penalty
        assert found == pytest.approx(score, rel=1e-4, abs=1e-5)
    assert answer.usage.completion_tokens == sum(len(tokens) for tokens, _ in expected)


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_answers_are_those_of_transformers(client, hf_model, tokenizer, prompt, width):
    ids = tokenizer.encode(prompt).ids
    for penalty in PENALTIES:
        expected = reference(hf_model, ids, width, 64, length_penalty=float(penalty))
        answer = search(client, prompt, width, 64, length_penalty=penalty)
        assert_answers(answer, expected, tokenizer, penalty=penalty)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 20])
def test_lengths(client, hf_model, tokenizer, count):
    """Some answers end with the end token, some at the last token, some with both."""
    for prompt in (ENDING, CODE):
        expected = reference(hf_model, tokenizer.encode(prompt).ids, 4, count)
        assert_answers(search(client, prompt, 4, count), expected, tokenizer)


def test_the_cases_are_of_all_kinds(hf_model, tokenizer):
    """Answers of several lengths, ended and cut ones, and penalties that change the order."""
    kinds = {}
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt).ids
        found = [reference(hf_model, ids, 4, 64, length_penalty=p) for p in (0.0, 2.0)]
        lengths = [[len(tokens) for tokens, _ in answers] for answers in found]
        kinds[prompt] = (lengths, [[t for t, _ in answers] for answers in found])
    assert all(n < 64 for n in kinds[ENDING][0][0]) and len(set(kinds[ENDING][0][0])) > 1
    assert kinds[LONG][0][0] == [64] * 4
    assert kinds[ENDING][1][0] != kinds[ENDING][1][1] and kinds[CODE][1][0] != kinds[CODE][1][1]


def test_many_beams(client, hf_model, tokenizer):
    """More than there may be logprobs."""
    expected = reference(hf_model, tokenizer.encode(CODE).ids, 48, 12)
    assert_answers(search(client, CODE, 48, 12), expected, tokenizer)


def test_other_ends(client, hf_model, tokenizer):
    """Ends that come often: two tokens, three, none."""
    ids = tokenizer.encode(LONG).ids
    greedy = reference(hf_model, ids, 2, 24, ends=None)[0][0]
    more = [greedy[3], greedy[10]]
    for width in (2, 5):
        for penalty in (0, 1, 2):
            expected = reference(hf_model, ids, width, 40, ends=[EOS, *more], length_penalty=float(penalty))
            answer = search(client, ids, width, 40, stop_token_ids=more, length_penalty=penalty)
            assert_answers(answer, expected, tokenizer, [EOS, *more], penalty)
            for choice, (tokens, _) in zip(answer.choices, expected, strict=True):
                assert choice.stop_reason == (tokens[-1] if tokens[-1] in more else None)
    ids = tokenizer.encode(ENDING).ids
    expected = reference(hf_model, ids, 4, 30, ends=None)
    assert_answers(search(client, ids, 4, 30, ignore_eos=True), expected, tokenizer, ends=())
    expected = reference(hf_model, ids, 4, 30, ends=more)
    answer = search(client, ids, 4, 30, ignore_eos=True, stop_token_ids=more)
    assert_answers(answer, expected, tokenizer, ends=more)


def test_early_stopping(client, hf_model, tokenizer):
    ids = tokenizer.encode(CODE).ids
    for penalty in (0, 1, 2):
        late, early = (
            reference(hf_model, ids, 4, 64, length_penalty=float(penalty), early_stopping=stops)
            for stops in (False, True)
        )
        answer = search(client, CODE, 4, 64, length_penalty=penalty, early_stopping=True)
        assert_answers(answer, early, tokenizer, penalty=penalty)
    assert early != late


def test_one_beam_is_greedy(client, hf_model, tokenizer):
    ids = tokenizer.encode(ENDING).ids
    with torch.inference_mode():
        whole = hf_model.generate(torch.tensor([ids]), num_beams=1, do_sample=False, max_new_tokens=30)[0].tolist()
    answer = search(client, ENDING, 1, 30)
    assert answer.choices[0].text == tokenizer.decode(whole[len(ids) :], skip_special_tokens=True)


def test_prompts_side_by_side(client, hf_model, tokenizer):
    """In one request and in many at once, beside requests that draw."""
    expected = [reference(hf_model, tokenizer.encode(p).ids, 4, 32) for p in PROMPTS]
    answer = search(client, PROMPTS, 4, 32)
    flat = [choice for answers in expected for choice in answers]
    assert_answers(answer, flat, tokenizer)
    with concurrent.futures.ThreadPoolExecutor(15) as pool:
        others = [
            pool.submit(client.completions.create, model=NAME, prompt=p, max_tokens=60, seed=i, n=2)
            for i, p in enumerate(PROMPTS)
        ]
        searches = [pool.submit(search, client, p, 4, 32) for p in PROMPTS + PROMPTS]
        for found, answers in zip(searches, expected + expected, strict=True):
            assert_answers(found.result(), answers, tokenizer)
        assert all(len(other.result().choices) == 2 for other in others)


def test_without_prefix_cache(hf_model, tokenizer):
    expected = reference(hf_model, tokenizer.encode(CODE).ids, 4, 32)
    with serving("--no-prefix-cache") as server:
        with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
            assert_answers(search(client, CODE, 4, 32), expected, tokenizer)


def test_chat_and_streams(client, hf_model, tokenizer, server):
    prompt = client.post("/../apply-template", body={"messages": CHAT}, cast_to=object)["prompt"]
    expected = reference(hf_model, tokenizer.encode(prompt).ids, 4, 24, length_penalty=2.0)
    texts = [tokenizer.decode(tokens, skip_special_tokens=True) for tokens, _ in expected]
    ends = ["stop" if tokens[-1] == EOS else "length" for tokens, _ in expected]
    options = {"use_beam_search": True, "length_penalty": 2, "temperature": 1.3, "top_p": 0.5}
    create = client.chat.completions.create
    answer = create(model=NAME, messages=CHAT, n=4, max_tokens=24, logprobs=True, top_logprobs=3, extra_body=options)
    assert [c.message.content for c in answer.choices] == texts
    assert [c.finish_reason for c in answer.choices] == ends
    for choice, (tokens, score) in zip(answer.choices, expected, strict=True):
        content = choice.logprobs.content
        assert [t.token for t in content] == [tokenizer.decode([i], skip_special_tokens=False) for i in tokens]
        assert sum(t.logprob for t in content) / len(tokens) ** 2 == pytest.approx(score, rel=1e-4, abs=1e-5)
        assert all(len(t.top_logprobs) == 3 for t in content)
    streamed = [""] * 4
    reasons = [None] * 4
    for chunk in create(model=NAME, messages=CHAT, n=4, max_tokens=24, stream=True, extra_body=options):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert (streamed, reasons) == (texts, ends)
    prompt_texts = [""] * 4
    stream = client.completions.create(
        model=NAME, prompt=prompt, n=4, max_tokens=24, stream=True, extra_body=options
    )
    for chunk in stream:
        for choice in chunk.choices:
            prompt_texts[choice.index] += choice.text
    assert prompt_texts == texts


def test_who_leaves_is_cancelled(server):
    body = {"prompt": LONG, "n": 16, "use_beam_search": True, "ignore_eos": True, "max_tokens": 2000}
    with pytest.raises(httpx2.TimeoutException):
        httpx2.post(server.url + "/v1/completions", json=body, timeout=0.5)
    server.wait_until_idle(5)


def test_a_full_queue_refuses_no_search_under_way(tokenizer, hf_model):
    """One row a step and one waiting request at most: the steps of the search wait with more than one."""
    expected = reference(hf_model, tokenizer.encode(CODE).ids, 4, 12)
    with serving("--max-sequences", "1", "--max-queue", "1") as server:
        with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=60) as client:
            assert_answers(search(client, CODE, 4, 12), expected, tokenizer)


@pytest.mark.parametrize(
    "field, value", {"stop": "a", "repetition_penalty": 1.1, "min_tokens": 3, "n": 0, "length_penalty": 9}.items()
)
def test_refusals_name_the_field(server, field, value):
    body = {"prompt": "a", "n": 2, "use_beam_search": True, field: value}
    answer = httpx2.post(server.url + "/v1/completions", json=body)
    assert answer.status_code == 400
    assert json.loads(answer.text)["error"]["param"] == field
