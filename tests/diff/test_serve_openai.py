"""OpenAI's own client against `asynct serve`, beside the checkpoint's Hugging Face model and `asynct run`."""

import asyncio
import random
import subprocess
import time

import httpx2
import openai
import pytest
import torch
import transformers
from model_comparison import reference_logits
from serving import ASYNCT, MODEL, client_fixture, server_fixture, serving, tokenizer_fixture

PROMPTS = [
    "Question: Which of these is a source of light?\nAnswer:",
    "Question: Tom has 3 apples and buys 4 more. How many apples does he have?\nAnswer:",
    "The",
]
LONG = PROMPTS[2]  # its answer does not end soon
NAME = "asynct-tiny"
CHAT = [{"role": "user", "content": "What is 2 + 3?"}]


server = server_fixture("--max-sequences", "80")
client = client_fixture(timeout=60)
tokenizer = tokenizer_fixture()


@pytest.fixture(scope="module")
def hf_model():
    torch.set_num_threads(2)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, trust_remote_code=True, dtype=torch.float32)
    return model.eval()


def complete(client, prompt=LONG, **options):
    return client.completions.create(model=NAME, prompt=prompt, **{"max_tokens": 16, "temperature": 0, **options})


def text(client, prompt=LONG, **options):
    return complete(client, prompt, **options).choices[0].text


def greedy_ids(model, ids, count):
    with torch.inference_mode():
        return model.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False)[0].tolist()


# --- texts


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_is_that_of_asynct_run_and_transformers(client, hf_model, tokenizer, prompt):
    answer = complete(client, prompt, max_tokens=24)
    run = subprocess.run(
        [ASYNCT, "run", MODEL, "-p", prompt, "-n", "24", "--temperature", "0"], capture_output=True, text=True
    )
    assert answer.choices[0].text == run.stdout.removesuffix("\n"), run.stderr
    ids = tokenizer.encode(prompt).ids
    whole = greedy_ids(hf_model, ids, 24)
    assert answer.choices[0].text == tokenizer.decode(whole[len(ids) :], skip_special_tokens=True)
    assert answer.usage.prompt_tokens == len(ids)
    assert answer.usage.completion_tokens == len(whole) - len(ids)
    assert answer.usage.total_tokens == len(whole)


def test_prompts_of_all_forms(client, tokenizer):
    ids = [tokenizer.encode(p).ids for p in PROMPTS]
    singly = [text(client, p) for p in PROMPTS]
    assert [text(client, i) for i in ids] == singly
    for prompts in (PROMPTS, ids):
        answer = complete(client, prompts)
        assert [c.index for c in answer.choices] == [0, 1, 2]
        assert [c.text for c in answer.choices] == singly
        assert answer.usage.prompt_tokens == sum(map(len, ids))


def test_echo(client):
    assert text(client, echo=True) == LONG + text(client)
    assert text(client, echo=True, max_tokens=0) == LONG


def test_answer_as_a_whole(client, server):
    answer = complete(client, max_tokens=3)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert abs(answer.created - time.time()) < 60
    assert answer.model in (NAME, MODEL)
    assert answer.choices[0].finish_reason == "length" and answer.choices[0].logprobs is None


# --- log-probabilities


@pytest.mark.parametrize("prompt", PROMPTS)
def test_logprobs_of_completions(client, hf_model, tokenizer, prompt):
    answer = complete(client, prompt, max_tokens=12, echo=True, logprobs=3).choices[0]
    lists = answer.logprobs
    ids = greedy_ids(hf_model, tokenizer.encode(prompt).ids, 12)
    count = len(ids)
    assert lists.tokens == [tokenizer.decode([i], skip_special_tokens=False) for i in ids]
    assert count == len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset)
    assert "".join(lists.tokens).removesuffix("<|endoftext|>") == answer.text
    assert lists.text_offset == [len("".join(lists.tokens[:i])) for i in range(count)]
    assert lists.token_logprobs[0] is None and lists.top_logprobs[0] is None
    expected = torch.log_softmax(torch.from_numpy(reference_logits(hf_model, [ids])[0]).double(), -1)
    for i in range(1, count):
        row = expected[i - 1]
        assert abs(lists.token_logprobs[i] - float(row[ids[i]])) < 1e-4
        tops = lists.top_logprobs[i]
        best = {tokenizer.decode([int(t)], skip_special_tokens=False): float(v) for v, t in zip(*row.topk(3))}
        best.setdefault(lists.tokens[i], float(row[ids[i]]))
        assert tops.keys() == best.keys()
        assert all(abs(tops[key] - best[key]) < 1e-4 for key in best)


def test_scoring_needs_no_new_token(client):
    scored = complete(client, echo=True, logprobs=1, max_tokens=0).choices[0].logprobs
    longer = complete(client, echo=True, logprobs=1, max_tokens=1).choices[0].logprobs
    assert scored.token_logprobs == longer.token_logprobs[:-1]


def test_logprobs_of_chat(client):
    answer = client.chat.completions.create(
        model=NAME, messages=CHAT, max_tokens=5, temperature=0, logprobs=True, top_logprobs=4
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens == 5
    assert b"".join(bytes(t.bytes) for t in content).decode() == answer.choices[0].message.content
    for token in content:
        assert len(token.top_logprobs) == 4
        values = [top.logprob for top in token.top_logprobs]
        assert values == sorted(values, reverse=True) and max(values) <= 0
        assert token.logprob == values[0] and token.token == token.top_logprobs[0].token  # greedy
    prompt = client.post("/../apply-template", body={"messages": CHAT}, cast_to=object)["prompt"]
    assert text(client, prompt, max_tokens=5) == answer.choices[0].message.content


# --- sampling


def test_seed(client):
    options = {"temperature": 1, "max_tokens": 24}
    first = text(client, seed=5, **options)
    assert text(client, seed=5, **options) == first
    assert len({text(client, seed=s, **options) for s in range(5)}) > 1
    assert len({text(client, **options) for _ in range(5)}) > 1


def test_n_is_the_seeds_that_follow(client):
    options = {"temperature": 1, "max_tokens": 24}
    for prompt in PROMPTS[:2]:
        together = [c.text for c in complete(client, prompt, n=4, seed=11, **options).choices]
        assert together == [text(client, prompt, seed=11 + i, **options) for i in range(4)]
        assert len(set(together)) > 1


def test_n_of_several_prompts(client):
    choices = complete(client, PROMPTS, n=2, seed=3, temperature=1).choices
    assert [c.index for c in choices] == list(range(6))
    for i, prompt in enumerate(PROMPTS):
        both = complete(client, prompt, n=2, seed=3, temperature=1).choices
        assert [c.text for c in both] == [c.text for c in choices[2 * i : 2 * i + 2]]


def test_stop(client):
    whole = text(client, max_tokens=40)
    words = whole.split()
    for stop in (words[3], [words[5], words[3]], [whole[7:12]]):
        answer = complete(client, max_tokens=40, stop=stop).choices[0]
        first = min(whole.find(s) for s in ([stop] if isinstance(stop, str) else stop))
        assert answer.text == whole[:first] and answer.finish_reason == "stop"
    kept = text(client, max_tokens=40, stop=whole[7:12], extra_body={"include_stop_str_in_output": True})
    assert kept == whole[: whole.find(whole[7:12]) + 5]


def test_stop_token_ids_and_min_tokens(client, tokenizer):
    lists = complete(client, logprobs=0).choices[0].logprobs
    stop = tokenizer.encode("x" + lists.tokens[3]).ids[-1]
    assert tokenizer.decode([stop]) == lists.tokens[3]
    first = lists.tokens.index(lists.tokens[3])
    answer = complete(client, extra_body={"stop_token_ids": [stop]}).choices[0]
    assert answer.finish_reason == "stop" and answer.stop_reason == stop
    assert answer.text == "".join(lists.tokens[:first])
    longer = complete(client, extra_body={"stop_token_ids": [stop], "min_tokens": 10})
    assert longer.usage.completion_tokens >= 10


def test_penalties_and_bias_have_their_effect(client, tokenizer):
    loop = "one two three one two three one two three one two"
    plain = text(client, loop, max_tokens=30)
    for options in (
        {"presence_penalty": 2},
        {"frequency_penalty": 2},
        {"extra_body": {"repetition_penalty": 5.0}},
    ):
        assert text(client, loop, max_tokens=30, **options) != plain
    the = tokenizer.encode(" the").ids
    assert len(the) == 1
    biased = complete(client, logit_bias={str(the[0]): 100}, max_tokens=4, logprobs=1).choices[0]
    assert biased.text == " the" * 4
    assert min(biased.logprobs.token_logprobs) < -1  # the model's own, before the bias
    first = complete(client, logprobs=0, max_tokens=1).choices[0].logprobs.tokens[0]
    banned = tokenizer.encode("x" + first).ids[-1]
    assert complete(client, logit_bias={str(banned): -100}, logprobs=0, max_tokens=1).choices[0].text != first
    assert text(client, max_tokens=3, extra_body={"allowed_token_ids": the}) == " the" * 3


def test_nearly_no_choice_is_greedy(client):
    greedy = text(client)
    for options in ({"extra_body": {"top_k": 1}}, {"top_p": 1e-6}, {"extra_body": {"min_p": 1.0}}):
        assert text(client, temperature=1, seed=1, **options) == greedy


# --- streams


def test_stream_is_the_answer_in_parts(client):
    options = {"max_tokens": 30, "logprobs": 1, "echo": True}
    whole = complete(client, **options)
    events = list(complete(client, stream=True, stream_options={"include_usage": True}, **options))
    assert events[-1].choices == [] and events[-1].usage == whole.usage
    parts = [e.choices[0] for e in events[:-1]]
    assert len(parts) > 3, "it came at once"
    assert "".join(p.text for p in parts) == whole.choices[0].text
    assert [p.finish_reason for p in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1].finish_reason == whole.choices[0].finish_reason
    for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        joined = [x for p in parts for x in getattr(p.logprobs, field)]
        assert joined == getattr(whole.choices[0].logprobs, field)


def test_stream_of_chat(client):
    options = {"model": NAME, "messages": CHAT, "max_tokens": 20, "temperature": 0, "extra_body": {"ignore_eos": True}}
    whole = client.chat.completions.create(**options)
    events = list(client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **options))
    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(e.choices[0].delta.content or "" for e in events[:-1]) == whole.choices[0].message.content
    assert events[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert events[-1].usage == whole.usage
    assert whole.choices[0].message.role == "assistant" and whole.object == "chat.completion"
    assert {e.object for e in events} == {"chat.completion.chunk"} and len({e.id for e in events}) == 1


def test_chat_of_several_turns_and_parts(client):
    turns = [{"role": "system", "content": "Short."}, *CHAT, {"role": "assistant", "content": "5"}, *CHAT]
    parts = [{**t, "content": [{"type": "text", "text": t["content"]}]} for t in turns]
    texts = [
        client.chat.completions.create(model=NAME, messages=m, max_completion_tokens=8, temperature=0)
        .choices[0]
        .message.content
        for m in (turns, parts)
    ]
    assert texts[0] == texts[1] != ""


def test_choices_of_a_stream(client):
    options = {"n": 3, "seed": 4, "temperature": 1}
    texts = ["", "", ""]
    for event in complete(client, stream=True, **options):
        for choice in event.choices:
            texts[choice.index] += choice.text
    assert texts == [c.text for c in complete(client, **options).choices]


def test_client_that_leaves_a_stream(client, server):
    stream = complete(client, stream=True, max_tokens=1900, extra_body={"ignore_eos": True})
    next(iter(stream))
    assert server.metrics()["vllm:num_requests_running"] == 1
    aborted = server.metrics()["vllm:request_success_total{finished_reason=\"abort\"}"]
    stream.close()
    server.wait_until_idle(1)
    assert server.metrics()["vllm:request_success_total{finished_reason=\"abort\"}"] == aborted + 1


def test_client_that_gives_up(client, server):
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).completions.create(
            model=NAME, prompt="a", max_tokens=1900, extra_body={"ignore_eos": True}
        )
    server.wait_until_idle(1)


def test_streams_at_once(client, server):
    """64 streams of the asynchronous client: each gets its own text, and they do run together."""
    prompts = [f"Question: What is {i} + {i % 7}?\nAnswer:" for i in range(64)]

    async def one(client, prompt):
        stream = await client.completions.create(
            model=NAME, prompt=prompt, max_tokens=24, temperature=0, stream=True, extra_body={"ignore_eos": True}
        )
        return "".join([event.choices[0].text async for event in stream])

    async def all_at_once():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
            return await asyncio.gather(*(one(client, p) for p in prompts))

    steps = server.metrics()["asynct:steps_total"]
    texts = asyncio.run(all_at_once())
    assert server.metrics()["asynct:steps_total"] - steps < 64 * 24 / 2
    singly = complete(client, prompts, max_tokens=24, extra_body={"ignore_eos": True})
    assert texts == [c.text for c in singly.choices]
    assert len(set(texts)) > 10


def test_clients_that_come_and_go(client, server):
    """Streams and whole answers, scored prompts and several choices, most of them given up; nothing is left behind."""
    rng = random.Random(1)
    before = complete(client, max_tokens=24).choices[0].text

    async def one(client, number):
        options = {"prompt": [f"{number} " * rng.randrange(1, 300)] * rng.randrange(1, 4), "n": rng.randrange(1, 5)}
        options |= {"max_tokens": rng.randrange(1, 200), "stream": rng.random() < 0.5}
        options |= rng.choice([{}, {"echo": True, "logprobs": 2}, {"logprobs": 5}])
        await asyncio.sleep(rng.random())
        try:
            async with asyncio.timeout(rng.choice([0.01, 0.1, 0.5, None])):
                answer = await client.completions.create(model=NAME, temperature=1, **options)
                if options["stream"]:
                    async for _ in answer:
                        pass
        except TimeoutError:
            return False
        return True

    async def all_at_once():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
            return await asyncio.gather(*(one(client, i) for i in range(48)))

    ended = asyncio.run(all_at_once())
    server.wait_until_idle(5)
    assert True in ended and False in ended
    assert complete(client, max_tokens=24).choices[0].text == before


def test_asynchronous_client(server):
    async def both():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="any") as client:
            models = [m.id async for m in client.models.list()]
            chat = await client.chat.completions.create(model=models[0], messages=CHAT, max_tokens=4)
            return models, chat.choices[0].message.content

    models, content = asyncio.run(both())
    assert models == [MODEL, NAME] and content


@pytest.mark.parametrize(("seconds", "tokens"), [(20, 300)])  # the cut after 0 seconds: see docs/known-gaps.md
def test_stop_amid_a_stream(seconds, tokens):
    """It ends by itself while the time for that lasts, and is cut off after it."""
    with serving("--drain-seconds", str(seconds)) as server:
        with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
            options = {"max_tokens": tokens, "stream": True, "extra_body": {"ignore_eos": True}}
            parts = iter(complete(client, **options))
            next(parts)
            server.stop()
            if seconds > 0:
                assert [p.choices[0].finish_reason for p in parts][-1] == "length"
            else:
                with pytest.raises((openai.APIError, httpx2.TransportError)):
                    list(parts)


# --- errors


def test_models(client):
    listed = client.models.list().data
    assert [m.id for m in listed] == [MODEL, NAME]
    assert all(m.object == "model" and m.max_model_len == 2048 for m in listed)
    assert [client.models.retrieve(m.id) for m in listed] == listed  # the first has slashes
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("gpt-9/a b")
    assert error.value.code == "model_not_found" and "gpt-9/a b" in str(error.value)


def test_unknown_model(client):
    for create in (
        lambda: client.completions.create(model="gpt-9", prompt="a"),
        lambda: client.chat.completions.create(model="gpt-9", messages=CHAT),
    ):
        with pytest.raises(openai.NotFoundError) as error:
            create()
        assert error.value.code == "model_not_found" and error.value.param == "model"
        assert "gpt-9" in str(error.value)


def test_errors_name_the_field(client):
    for field, value in {"temperature": -1, "top_p": 0, "max_tokens": -5, "n": 0, "logprobs": 99}.items():
        with pytest.raises(openai.BadRequestError) as error:
            complete(client, **{field: value})
        assert error.value.param == field and error.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=NAME, messages=[])
    assert error.value.param == "messages"


def test_context_too_long(client):
    for create in (
        lambda: complete(client, [1] * 2049),
        lambda: complete(client, [1] * 2040, max_tokens=9),
        lambda: client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "a b " * 4000}]),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            create()
        assert error.value.code == "context_length_exceeded"
    assert complete(client, [1] * 2040, max_tokens=8, extra_body={"ignore_eos": True}).usage.total_tokens == 2048


def test_keys_and_names():
    """Without a chat template, with keys and another name."""
    with serving("--api-key", "one", "--api-key", "two", "--served-model-name", "mine", keyed=True) as server:
        url = server.url + "/v1"
        for key in ("one", "two"):
            client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
            assert [m.id for m in client.models.list().data] == ["mine"]
            assert client.completions.create(model="mine", prompt="a", max_tokens=2).model == "mine"
        for key in ("three", "on", "onetwo"):
            with pytest.raises(openai.AuthenticationError) as error:
                openai.OpenAI(base_url=url, api_key=key, max_retries=0).models.list()
            assert error.value.code == "invalid_api_key"
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model=NAME, prompt="a")
        with pytest.raises(openai.BadRequestError, match="chat-template") as error:
            client.chat.completions.create(model="mine", messages=CHAT)
        assert error.value.param == "messages"
        assert server.get("/health") == '{"status":"ok"}'
