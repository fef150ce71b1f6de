"""`asynct serve` by curl on every route, beside tokenizers and transformers, and with what no client should send.

Whatever is sent, the answer is 200 or 4xx in OpenAI's error shape that names the field, and the server lives on.
"""

import json
import pathlib
import subprocess

import httpx
import pytest
import transformers
from serving import ASYNCT, CHATML, MODEL, ROOT, server_fixture, tokenizer_fixture

TEXTS = [
    "Hello, world!",
    " two  spaces\tand\nlines\r\n",
    "Zażółć gęślą jaźń, 東京 \U0001f9ea e\u0301",
    "<|endoftext|> in a text <|endoftext|>",
    "3.14159 + 2,718 = \\frac{1}{2}",
    "\x00\x01\x7f",
]
ENOUGH = {"max_tokens": 2}


server = server_fixture()
tokenizer = tokenizer_fixture()


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def post(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def assert_refused(answer, status, field=None):
    """OpenAI's error shape, and the field by name."""
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"] and isinstance(error["type"], str)
    if field is not None:
        assert error["param"] == field, error
        assert field in error["message"], error


# --- curl, as in a README


def curl(server, path, *arguments):
    command = ["curl", "-sS", "--fail-with-body", "-m", "60", server.url + path, *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


GETS = {
    "/": "<!doctype html>",
    "/health": '"ok"',
    "/ping": '"ok"',
    "/version": '"version"',
    "/v1/models": '"asynct-tiny"',
    "/v1/models/{id}": '"id":"asynct-tiny"',
    "/model_info": '"asynci"',
    "/tokenizer_info": '"eos_token":"<|endoftext|>"',
    "/metrics": "vllm:num_requests_running",
    "/openapi.json": '"3.1.0"',
}
POSTS = {
    "/v1/completions": ('{"model": "asynct-tiny", "prompt": "Once", "max_tokens": 4}', '"text_completion"'),
    "/v1/chat/completions": ('{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}', '"assistant"'),
    "/v1/score": ('{"context": "A cat", "continuations": [" sat", " flew"]}', '"greedy"'),
    "/tokenize": ('{"prompt": "Hello"}', '"tokens":['),
    "/detokenize": ('{"tokens": [50, 51]}', '"prompt"'),
    "/apply-template": ('{"messages": [{"role": "user", "content": "Hi"}]}', "<|im_start|>user"),
    "/reset_prefix_cache": ("", "{}"),
}


@pytest.mark.parametrize("path", GETS)
def test_curl_get(server, path):
    assert GETS[path] in curl(server, path.replace("{id}", "asynct-tiny"))


@pytest.mark.parametrize("path", POSTS)
def test_curl_post(server, path):
    body, expected = POSTS[path]
    server.wait_until_idle(5)
    assert expected in curl(server, path, "-H", "Content-Type: application/json", "-d", body)


def test_curl_stream(server):
    body = '{"prompt": "Once", "max_tokens": 4, "stream": true}'
    lines = curl(server, "/v1/completions", "-N", "-d", body).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    assert all(json.loads(line.removeprefix("data: "))["object"] == "text_completion" for line in lines[:-2])


def test_document_lists_all_routes(client):
    """...and each listed one is there."""
    document = client.get("/openapi.json").json()
    assert document["paths"].keys() == GETS.keys() | POSTS.keys()
    for path, operations in document["paths"].items():
        allowed = client.options(path).headers["allow"]
        assert {m.strip() for m in allowed.split(",")} - {"HEAD", "OPTIONS"} == {m.upper() for m in operations}


# --- beside other libraries


@pytest.mark.parametrize("text", TEXTS)
def test_tokenize_and_detokenize(client, tokenizer, text):
    for special in (True, False):
        expected = tokenizer.encode(text, add_special_tokens=special)
        found = post(client, "/tokenize", prompt=text, add_special_tokens=special, return_token_strs=True)
        assert found["tokens"] == expected.ids
        assert found["count"] == len(expected.ids) == len(found["token_strs"]) and found["max_model_len"] == 2048
    again = post(client, "/detokenize", tokens=found["tokens"])["prompt"]
    assert again == tokenizer.decode(found["tokens"], skip_special_tokens=False) == text


def test_detokenize_any_ids(client, tokenizer):
    for ids in ([], [0], [4095], list(range(256)), list(range(4095, 3000, -7))):
        expected = tokenizer.decode(ids, skip_special_tokens=False)
        assert post(client, "/detokenize", tokens=ids)["prompt"] == expected


def test_template_of_transformers(client):
    library = transformers.AutoTokenizer.from_pretrained(MODEL)
    library.chat_template = CHATML.read_text()
    conversation = [
        {"role": "system", "content": "Be <b>short</b> & \"kind\"."},
        {"role": "user", "content": " Zażółć\n"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Again?"},
    ]
    for generation in (True, False):
        expected = library.apply_chat_template(conversation, tokenize=False, add_generation_prompt=generation)
        body = {"messages": conversation, "add_generation_prompt": generation}
        assert post(client, "/apply-template", **body)["prompt"] == expected
        ids = library(expected, add_special_tokens=False)["input_ids"]
        assert post(client, "/tokenize", **body)["tokens"] == ids


@pytest.fixture(scope="module")
def arc_samples(tmp_path_factory):
    samples: pathlib.Path = tmp_path_factory.mktemp("arc") / "samples.jsonl"
    command = [ASYNCT, "eval", MODEL, "--tasks", "arc_easy", "--limit", "20", "--data", ROOT / "data", "--threads", "2"]
    subprocess.run([*command, "--log-samples", samples], check=True, capture_output=True)
    return [json.loads(line) for line in samples.read_text(encoding="utf-8").split("\n") if line]


def test_score_is_that_of_asynct_eval(client, tokenizer, arc_samples):
    """To the last digit: it is the same sum of the same numbers."""
    assert len(arc_samples) == 20
    for sample in arc_samples:
        pairs = [(a["arg_0"], a["arg_1"]) for a in sample["arguments"].values()]
        context = pairs[0][0]
        found = post(client, "/v1/score", context=context, continuations=[c for _, c in pairs])
        assert [d["index"] for d in found["data"]] == list(range(len(pairs)))
        answers = [r[0] for r in sample["resps"]]
        assert [d["logprob"] for d in found["data"]] == [float(a[0]) for a in answers]
        assert [str(d["greedy"]) for d in found["data"]] == [a[1] for a in answers]
        whole = [tokenizer.encode(c + t).ids for c, t in pairs]
        head = len(tokenizer.encode(context).ids)
        by_ids = post(client, "/v1/score", context=whole[0][:head], continuations=[w[head:] for w in whole])
        assert by_ids["data"] == found["data"] and by_ids["usage"] == found["usage"]


def test_score_is_that_of_echo(client, tokenizer):
    context, continuations = "The sun is", [" a star", " made of cheese", " hot. It"]
    found = post(client, "/v1/score", context=context, continuations=continuations)["data"]
    head = len(tokenizer.encode(context).ids)
    for data, continuation in zip(found, continuations, strict=True):
        ids = tokenizer.encode(context + continuation).ids
        answer = post(client, "/v1/completions", prompt=ids, echo=True, logprobs=1, max_tokens=0)
        logprobs = answer["choices"][0]["logprobs"]["token_logprobs"][head:]
        assert data["tokens"] == len(logprobs)
        assert abs(sum(logprobs) - data["logprob"]) < 1e-5


# --- what no client should send

COMPLETION_FIELDS = {
    # field: values that must be refused with its name
    "model": [5, [], {}, True],
    "prompt": [None, 5, {}, True, [], [None], [5, "a"], ["a", 5], [-1], [4096], [2**63], [1.5], [[1, "a"]], [[[1]]],
               ["a"] * 257],
    "max_tokens": [-1, 0, 2**31, 2**64, 1e300, 1.5, "5", [], {}, True],
    "n": [0, -1, 129, 2**64, 1.5, "1", [], True],
    "best_of": [0, 2, -1, 2**64, "1", []],
    "temperature": [-0.1, 101, 1e300, "1", [], {}, True],
    "top_k": [-2, 2**31, 1.5, "1", []],
    "top_p": [0, -0.1, 1.1, 1e-300, "1", []],
    "min_p": [-0.1, 1.1, "0", []],
    "repetition_penalty": [0, -1, 1e7, 1e-300, "1", []],
    "presence_penalty": [-2.1, 2.1, 1e300, "0", []],
    "frequency_penalty": [-2.1, 2.1, 1e300, "0", []],
    "min_tokens": [-1, 2**31, 1.5, "0", []],
    "logit_bias": [5, [], "a", {"x": 1}, {"-1": 1}, {"4096": 1}, {"1": "a"}, {"1": 101}, {"1": 1e300}, {"1": None}, {"": 1},
                   {"99999999999999999999": 1}, {str(i): 0 for i in range(1025)}],
    "allowed_token_ids": [5, "a", {}, ["a"], [-1], [4096], [1.5], [2**64], [None]],
    "use_beam_search": [0, 1, "true", [], {}],
    "length_penalty": [-5.1, 5.1, 1e300, "1", [], {}, True],
    "early_stopping": [0, 1, "never", [], {}],
    "seed": [1.5, 1e300, "1", [], True],
    "stop": [5, {}, True, [5], [None], [["a"]], "a" * 257, ["a" * 257], ["a"] * 17],
    "stop_token_ids": [5, "a", {}, ["a"], [-1], [4096], [1] * 129],
    "ignore_eos": [0, 1, "true", [], {}],
    "include_stop_str_in_output": [0, "true", []],
    "skip_special_tokens": [0, "true", []],
    "echo": [0, 1, "true", []],
    "stream": [0, 1, "true", []],
    "stream_options": [5, "a", [], {}, {"include_usage": True}],  # without stream
    "logprobs": [-1, 21, 2**64, 1.5, "1", [], True],
    "priority": [2**31, -(2**31) - 1, 1.5, "1", []],
    "cache_salt": [5, [], {}, "a" * 257],
    "add_special_tokens": [0, "true", []],
    "suffix": ["a", 5],
    "truncate_prompt_tokens": [2, -1],
    "prompt_logprobs": [0, 1],
    "prompt_embeds": ["a"],
    "logits_processors": [["a"]],
    "chat_template": ["{{ messages }}"],
    "detokenize": [False, 1],
    "return_tokens_as_token_ids": [True, 0],
    "continue_final_message": [True, 0],
    "tool_choice": ["required", {"type": "function"}, 5],
    "response_format": [{"type": 5}, {"type": None}, {"type": []}, {"a": 1}, {}, "json", 5, {"type": "json_schema"},
                        {"type": "json_schema", "json_schema": {"name": "a"}},
                        {"type": "json_schema", "json_schema": {"schema": 5}}],
    "structured_outputs": [5, "a", [], {}, {"regex": None}, {"regex": 5}, {"regex": "("}, {"choice": []}, {"choice": "a"},
                           {"json": "{"}, {"json": 5}, {"grammar": "a"}, {"json_object": 1}, {"regex": "a", "choice": ["a"]},
                           {"structural_tag": {}}, {"regex": "a", "disable_any_whitespace": 1},
                           {"json": {}, "whitespace_pattern": " "}, {"json": {}, "disable_additional_properties": True}],
    "guided_json": [5, False, [], "", "a", {"type": "a"}, {"type": "object", "not": {}}, {"$ref": "#"},
                    {"type": "object", "required": ["a"]}],
    "guided_whitespace_pattern": [" ", 5],
    "guided_regex": [5, {}, "(", "[", "a{2,1}", "\\1", "(?=a)", "a" * 2**17],
    "guided_choice": [5, "a", {}, [], [5], [""], ["a"] * 1025],
    "guided_grammar": [5, {}, "", "root ::= root", "root ::= a", 'x ::= "a"', "start: /a/"],
    "tools": [[{}], 5, "a"],
    "functions": [[{}], 5],
}  # fmt: skip
CHAT_FIELDS = {
    "messages": [None, 5, "a", {}, [], [5], [None], [[]], [{}], [{"content": "a"}], [{"role": 5}], [{"role": "user", "content": 5}],
                 [{"role": "user", "content": {}}], [{"role": "user", "content": [5]}],
                 [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"type": "text", "text": 5}]}],
                 [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}], [{"role": "user"}] * 4097],
    "max_completion_tokens": [0, -1, 2**31, 2**64, 1.5, "1", []],
    "max_tokens": [0, -1, 2**31, 1.5, "1", []],
    "logprobs": [0, 1, "true", []],
    "top_logprobs": [-1, 21, 5, 1.5, "1", []],  # 5: without logprobs
    "add_generation_prompt": [0, "true", []],
    "echo": [True, 0],
    "chat_template_kwargs": [5, "a", []],
    "temperature": [-1, "1"],
    "model": [5, []],
}  # fmt: skip
SCORE_FIELDS = {
    "model": [5, []],
    "context": [None, 5, {}, True, [-1], [4096], ["a"], [1.5]],
    "continuations": [None, 5, {}, "a", [], [5], [""], [None], [[1]], [" a"] * 1025],
    "priority": [2**31, "1"],
    "cache_salt": [5, "a" * 257],
}
TOKENIZE_FIELDS = {
    "model": [5],
    "prompt": [None, 5, [], {}, True, [1]],
    "add_special_tokens": [0, "a"],
    "return_token_strs": [0, "a"],
}
DETOKENIZE_FIELDS = {"model": [5], "tokens": [None, 5, "a", {}, ["a"], [-1], [4096], [2**64], [1.5], [[1]]]}
BODIES = {
    "/v1/completions": {"prompt": "a", **ENOUGH},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], **ENOUGH},
    "/v1/score": {"context": "a", "continuations": [" b"]},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1]},
    "/apply-template": {"messages": [{"role": "user", "content": "a"}]},
}
FIELDS = {
    "/v1/completions": COMPLETION_FIELDS,
    "/v1/chat/completions": CHAT_FIELDS,
    "/v1/score": SCORE_FIELDS,
    "/tokenize": TOKENIZE_FIELDS,
    "/detokenize": DETOKENIZE_FIELDS,
    "/apply-template": {k: CHAT_FIELDS[k] for k in ("messages", "add_generation_prompt", "chat_template_kwargs")},
}
CASES = [(path, field) for path, fields in FIELDS.items() for field in fields]


@pytest.mark.parametrize(("path", "field"), CASES)
def test_wrong_values_are_refused_by_name(client, server, path, field):
    for value in FIELDS[path][field]:
        answer = client.post(path, json={**BODIES[path], field: value})
        assert answer.status_code == 400, (value, answer.text[:300])
        assert_refused(answer, 400, field)
    # What JSON does not have; Python's json and others write it.
    for word in ("NaN", "Infinity", "-Infinity", "nul", "+1", "01", "'a'"):
        body = json.dumps({**BODIES[path], field: "@"}).replace('"@"', word)
        assert_refused(client.post(path, content=body), 400)
    assert server.alive()


@pytest.mark.parametrize(("path", "field"), CASES)
def test_null_counts_as_absent(client, path, field):
    required = {"prompt", "messages", "context", "continuations", "tokens"}
    answer = client.post(path, json={**BODIES[path], field: None})
    assert answer.status_code == (400 if field in required else 200), answer.text


def test_nothing_to_begin_with_is_the_token_that_begins_a_text(client):
    for empty in ("", [""], [[]]):
        greedy = {**ENOUGH, "temperature": 0}
        assert post(client, "/v1/completions", prompt=empty, **greedy)["choices"] == post(
            client, "/v1/completions", prompt=[0], **greedy
        )["choices"]
    empty, zero = (post(client, "/v1/score", context=c, continuations=t) for c, t in (("", ["a"]), ([0], [[66]])))
    assert empty["usage"] == zero["usage"]
    assert_refused(client.post("/v1/score", json={"context": [], "continuations": [[66]]}), 400, "context")


def test_values_that_some_clients_send(client):
    """A whole number with a point, no tools, the default by its name, limits of the type."""
    for field, value in [
        ("max_tokens", 2.0),
        ("top_k", -1),
        ("seed", -(2**63)),
        ("seed", 2**63 - 1),
        ("tools", []),
        ("response_format", {"type": "text"}),
        ("stop", []),
        ("stop", ["", ""]),
        ("logit_bias", {}),
        ("best_of", 1),
        ("model", "asynct-tiny"),
    ]:
        assert post(client, "/v1/completions", **{"prompt": "a", **ENOUGH, field: value})["usage"]["total_tokens"] <= 3


def test_unknown_fields_are_ignored(client):
    post(client, "/v1/completions", prompt="a", **ENOUGH, user="me", metadata={"a": [1]}, service_tier="auto")


NO_OBJECTS = [b"", b" ", b"null", b"5", b"[]", b'"a"', b"{", b"}", b'{"prompt":}', b'{"prompt":"a"} x', b"{'prompt': 'a'}",
              b'\xef\xbb\xbf[]', b"\x00", b"prompt=a", b'{"prompt":"a",}']  # fmt: skip
NO_TEXT = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80b"]


@pytest.mark.parametrize("path", BODIES)
def test_bodies_that_are_no_object(client, path):
    for body in NO_OBJECTS:
        assert_refused(client.post(path, content=body), 400)


@pytest.mark.parametrize("path", BODIES)
def test_invalid_utf8(client, path):
    field = next(iter(BODIES[path]))
    for bad in NO_TEXT:
        for where in (b'{"%s": "%s"}' % (field.encode(), bad), b'{"%s": "a"}' % bad, b"{}" + bad):
            assert_refused(client.post(path, content=where), 400)
    lone = client.post(path, content=b'{"%s": "\\ud800"}' % field.encode())  # half a surrogate pair, escaped
    assert lone.status_code in (200, 400)


def test_stop_strings_count_after_min_tokens(client):
    body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8, "stop": ["there", "a"]}
    short = post(client, "/v1/completions", **body)
    assert (short["choices"][0]["text"], short["usage"]["completion_tokens"]) == (" ", 1)
    long = post(client, "/v1/completions", **body, min_tokens=2)
    assert long["choices"][0]["text"].startswith(" there was")
    assert long["usage"]["completion_tokens"] > 2


def test_many_stop_strings(client):
    stops = [str(i) for i in range(10_000)]
    assert_refused(client.post("/v1/completions", json={"prompt": "a", "stop": stops}), 400, "stop")


def test_huge_body(client):
    large = "a " * (9 << 20)  # above the server's 16 MiB
    try:
        answer = client.post("/v1/completions", json={"prompt": large})
        assert_refused(answer, 413)
    except httpx.TransportError:  # answered and closed while the body was still being sent
        pass
    assert_refused(client.post("/v1/completions", json={"prompt": large[: 9 << 20]}), 400, "prompt")
    long = client.post("/v1/completions", json={"prompt": large[: 1 << 20]})
    assert_refused(long, 400, "prompt")
    assert long.json()["error"]["code"] == "context_length_exceeded"
    assert_refused(client.post("/detokenize", json={"tokens": "a" * (1 << 20)}), 400, "tokens")
    assert_refused(client.post("/v1/completions", json={"prompt": [1] * (1 << 20)}), 400, "prompt")


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_deep_json(client, opening):
    closing = {"[": "]", '{"a":': "}", '[{"a":': "}]"}[opening]
    for depth in (40, 10_000, 1_000_000):
        nested = opening * depth + "1" + closing * depth
        assert_refused(client.post("/v1/completions", content=f'{{"prompt": "a", "metadata": {nested}}}'), 400)
        assert_refused(client.post("/v1/chat/completions", content=opening * depth), 400)


def test_routes_that_are_not_there(client):
    for path in ("/v1", "/v1/completions/", "/v2/completions", "/%00", "/../etc/passwd", "/v1//completions"):
        assert_refused(client.get(path), 404)
    for path in BODIES:
        answer = client.get(path)
        assert_refused(answer, 405)
        assert "POST" in answer.headers["allow"]
    assert_refused(client.post("/health", content="{}"), 405)


def test_answers_carry_the_requests_id(client):
    answer = client.post("/v1/completions", json={"prompt": "a", **ENOUGH}, headers={"X-Request-Id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1" and answer.json()["id"] == "cmpl-mine-1"


def test_conflict_while_requests_run(client, server):
    body = {"prompt": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as stream:
        lines = stream.iter_lines()  # kept: the stream ends with its iterator
        next(lines)
        assert_refused(client.post("/reset_prefix_cache"), 409)
    server.wait_until_idle(2)
    assert client.post("/reset_prefix_cache").status_code == 200
