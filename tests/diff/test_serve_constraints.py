"""Constrained texts of `asynct serve`: whatever the model would like to say, they parse, validate, match.

The validator (jsonschema-rs), the regular expressions (Python's) and the client (OpenAI's) are others' than the server's.
"""

import concurrent.futures
import enum
import json
import random
import re

import jsonschema_rs
import openai
import pydantic
import pytest
import tokenizers
from serving import MODEL, client_fixture, server_fixture, serving

NAME = "asynct-tiny"
SEEDS = range(6)
MESSAGES = [{"role": "user", "content": "Say something."}]

# Each of them has an end that the tiny model finds before its context ends: what may be long is bounded.
SCHEMAS = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "email": {"type": "string", "pattern": "^[a-z]{1,8}@[a-z]{1,8}\\.(com|org)$"},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c\"\\\n\u00e9"]}, "minItems": 1, "maxItems": 3},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    },
    "recursive": {
        "$defs": {
            "list": {
                "anyOf": [
                    {"type": "null"},
                    {
                        "type": "object",
                        "properties": {"value": {"type": "boolean"}, "next": {"$ref": "#/$defs/list"}},
                        "required": ["value", "next"],
                    },
                ]
            }
        },
        "type": "object",
        "properties": {"list": {"$ref": "#/$defs/list"}},
        "required": ["list"],
    },
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "integer", "minimum": -3, "maximum": 3}, {"const": "x"}, {"type": ["boolean", "null"]}],
        "minItems": 3,
        "maxItems": 3,
    },
    "numbers": {"type": "array", "items": {"type": "number", "minimum": -1, "maximum": 1}, "minItems": 2, "maxItems": 2},
    "formats": {
        "type": "object",
        "properties": {"id": {"type": "string", "format": "uuid"}, "other": {"type": "string", "format": "uuid"}},
        "required": ["id"],
    },
    "scalar": {"enum": ["red", 7, None, True, {"a": [1, 2]}]},
}
REGEXES = {
    "phone": r"\(?[0-9]{3}\)?[- ][0-9]{4}",
    "words": r"([A-Z][a-z]{1,6} ){2,5}end\.",
    "alternatives": r"(yes|no|maybe (later|never))!{1,3}",
    "unicode": r"[à-ü]{3}[^\x00-\x7f]{1,2}\t?",
    "lazy": r"^a+?b*?c$",
    "escapes": r"[\x01b]{5}\x41b\.[\t\n]{2}",
}
EBNF = """
root ::= expression
expression ::= term (" " [-+*] " " term){0,3}
term ::= number | "(" number " / " number ")"
number ::= [1-9] [0-9]{0,2}
"""


server = server_fixture("--max-sequences", "16")
client = client_fixture(timeout=120)


@pytest.fixture(scope="module", autouse=True)
def grammars(client):
    """xgrammar's package may be out of reach where this was built (docs/dependencies.md)."""
    try:
        complete(client, 0, {"guided_choice": ["a"]})
    except openai.BadRequestError as error:
        if "built without constrained decoding" not in str(error):
            raise
        pytest.skip("built without a grammar engine")


def complete(client, seed, constraint, **options):
    options = {"max_tokens": 1200, "temperature": 1, "n": 2, **options}
    answer = client.completions.create(model=NAME, prompt="The", seed=seed, extra_body=constraint, **options)
    return [(choice.text, choice.finish_reason) for choice in answer.choices]


def chat(client, seed, **options):
    options = {"max_tokens": 1200, "temperature": 1, "n": 2, **options}
    answer = client.chat.completions.create(model=NAME, messages=MESSAGES, seed=seed, **options)
    return [(choice.message.content, choice.finish_reason) for choice in answer.choices]


@pytest.mark.parametrize("name", SCHEMAS)
def test_texts_validate(client, name):
    schema = SCHEMAS[name]
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    seen = set()
    for seed in SEEDS:
        for texts in (
            complete(client, 2 * seed, {"structured_outputs": {"json": schema}}),
            complete(client, 2 * seed, {"guided_json": json.dumps(schema)}),
            chat(client, 2 * seed, response_format={"type": "json_schema", "json_schema": {"name": name, "schema": schema}}),
        ):
            for text, reason in texts:
                assert reason == "stop", text
                validator.validate(json.loads(text))
                seen.add(text)
    assert len(seen) > 2


def test_one_line_when_asked(client):
    constraint = {"structured_outputs": {"json": SCHEMAS["person"], "disable_any_whitespace": True}}
    for seed in SEEDS:
        for text, _ in complete(client, seed, constraint):
            assert text == json.dumps(json.loads(text), ensure_ascii=False)


def test_json_object(client):
    """Any object: long ones may be cut by max_tokens, and are the beginning of one then."""
    ended = 0
    for seed in SEEDS:
        for text, reason in chat(client, seed, response_format={"type": "json_object"}, max_tokens=300):
            assert text.startswith("{")
            if reason == "stop":
                assert isinstance(json.loads(text), dict)
                ended += 1
    assert ended > 0


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(pydantic.BaseModel):
    colour: Colour
    count: int = pydantic.Field(ge=0, le=1000)


class Thing(pydantic.BaseModel):
    """A schema as OpenAI's client makes it of a class."""

    title: str = pydantic.Field(max_length=10)
    parts: list[Part] = pydantic.Field(max_length=2)
    note: Colour | None


def test_the_clients_own_parser(client):
    for seed in SEEDS:
        answer = client.chat.completions.parse(
            model=NAME, messages=MESSAGES, seed=seed, temperature=1, max_tokens=1200, response_format=Thing
        )
        assert isinstance(answer.choices[0].message.parsed, Thing)


@pytest.mark.parametrize("name", REGEXES)
def test_texts_match(client, name):
    for seed in SEEDS:
        for field in ({"guided_regex": REGEXES[name]}, {"structured_outputs": {"regex": REGEXES[name]}}):
            for text, reason in complete(client, seed, field):
                assert reason == "stop"
                assert re.fullmatch(REGEXES[name], text), text


def test_texts_are_among_the_choices(client):
    choices = ["yes", "no", "no way", 'a "quoted"\\ one\nand \u00e9\U0001f600', "\t\x01", "0"]
    seen = set()
    for seed in range(12):
        for field in ({"guided_choice": choices}, {"structured_outputs": {"choice": choices}}):
            for text, reason in complete(client, 2 * seed, field):
                assert reason == "stop"
                assert text in choices
                seen.add(text)
    assert len(seen) > 2


def test_texts_follow_a_grammar(client):
    shape = re.compile(r"(N|\(N / N\))( [-+*] (N|\(N / N\))){0,3}".replace("N", "[1-9][0-9]{0,2}"))
    for seed in SEEDS:
        for text, reason in complete(client, seed, {"guided_grammar": EBNF}):
            assert reason == "stop"
            assert shape.fullmatch(text), text


def test_greedy_and_processors(client):
    """Penalties, a bias and few tokens to choose from move what is said, not what may be."""
    schema = SCHEMAS["person"]
    for options in (
        {"temperature": 0, "n": 1},
        {"extra": {"top_k": 1}},
        {"top_p": 0.1},
        {"extra": {"min_p": 0.9}},
        {"frequency_penalty": 2, "presence_penalty": 2},
        {"logit_bias": {"0": 100}},  # the end of a text
        {"extra": {"min_tokens": 1000}},
        {"extra": {"ignore_eos": True}},
        {"logprobs": 5},
    ):
        extra = options.pop("extra", {})
        for text, reason in complete(client, 3, {"guided_json": schema, **extra}, **options):
            assert reason == "stop", text
            jsonschema_rs.validate(schema, json.loads(text))


def test_stop_strings_and_lengths_still_hold(client):
    (text, reason), *_ = complete(client, 1, {"guided_regex": "[a-z]{3,}xyz"}, max_tokens=5)
    assert reason == "length" and re.fullmatch("[a-z]*", text)
    (text, reason), *_ = complete(client, 1, {"guided_choice": ["one two three"]}, stop=[" th"])
    assert (text, reason) == ("one two", "stop")


def test_min_tokens_where_the_text_may_go_on(client):
    for text, reason in complete(client, 1, {"guided_regex": "[a-z ]{1,400}", "min_tokens": 30}, max_tokens=100):
        assert reason in ("stop", "length") and len(text) >= 30


def test_logprobs_are_the_models_own(client):
    """Before the constraint, as before penalties: what was not allowed is listed with its own value."""
    answer = client.completions.create(
        model=NAME, prompt="The", max_tokens=1, temperature=0, logprobs=3, extra_body={"guided_regex": "[0-9]+"}
    )
    free = client.completions.create(model=NAME, prompt="The", max_tokens=1, temperature=0, logprobs=3)
    assert re.fullmatch("[0-9]+", answer.choices[0].text)
    best = free.choices[0].logprobs.top_logprobs[0]
    assert best.items() <= answer.choices[0].logprobs.top_logprobs[0].items()


def test_streams(client):
    for seed in SEEDS:
        events = client.completions.create(
            model=NAME, prompt="The", max_tokens=1200, temperature=1, seed=seed, stream=True, extra_body={"guided_json": SCHEMAS["tuple"]}
        )
        text = "".join(event.choices[0].text for event in events if event.choices)
        assert text == complete(client, seed, {"guided_json": SCHEMAS["tuple"]}, n=1)[0][0]
        jsonschema_rs.validate(SCHEMAS["tuple"], json.loads(text))


def test_texts_do_not_depend_on_the_batch(client, server):
    """Constrained and free requests at once, and each alone."""
    requests = [(seed, {"guided_json": SCHEMAS[name]}) for seed in range(3) for name in ("person", "recursive", "tuple")]
    requests += [(seed, {"guided_regex": REGEXES["words"]}) for seed in range(3)] + [(seed, {}) for seed in range(3)]

    def run(request):
        return complete(client, *request, max_tokens=400 if request[1] else 40)

    alone = []
    for request in requests:
        server.reset_prefix_cache()
        alone.append(run(request))
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        assert list(pool.map(run, requests)) == alone


def test_preemption_keeps_the_place_in_the_grammar():
    with serving("--max-sequences", "16", kv_memory="6M") as server:
        with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=120) as client:
            regex = "([a-z]{3} [0-9]{3} ){40}"
            for text, reason in complete(client, 5, {"guided_regex": regex}, n=12, max_tokens=600):
                assert reason == "stop"
                assert re.fullmatch(regex, text)
            assert server.metrics()["vllm:num_preemptions_total"] > 0


def keywords(draw, probability, **values):
    """Some of them, each with one of its values."""
    return {name: draw.choice(choices)() for name, choices in values.items() if draw.random() < probability}


def value_of(*values):
    return [lambda value=value: value for value in values]


def random_schema(draw, depth=0):
    """Small, of all keywords that one may try, together or not; what is refused need not make sense."""

    def below():
        return random_schema(draw, depth + 1)

    def named(*among):
        return lambda: {name: below() for name in draw.sample(among, draw.randint(1, 3))}

    def string():
        return {"type": "string"} | keywords(
            draw, 0.25, minLength=value_of(0, 1, 2), maxLength=value_of(1, 3), pattern=value_of("^a+$", "[^a]{1,3}", "a|b.?"),
            format=value_of("date", "ipv4", "uuid"),
        )  # fmt: skip

    def number():
        return {"type": draw.choice(["integer", "number"])} | keywords(
            draw, 0.3, minimum=value_of(-7, 0, 3), maximum=value_of(0, 8, 120), exclusiveMinimum=value_of(-1, 2),
            exclusiveMaximum=value_of(5, 100), **({"multipleOf": value_of(3)} if draw.random() < 0.1 else {}),
        )  # fmt: skip

    def array():
        return {"type": "array"} | keywords(
            draw, 0.5, items=[below, lambda: False], prefixItems=[lambda: [below()], lambda: [below(), below()]],
            minItems=value_of(0, 1, 2), maxItems=value_of(1, 2, 3), unevaluatedItems=[below, lambda: False],
        )  # fmt: skip

    def objects():
        extra = keywords(
            draw, 0.15, additionalProperties=[below, lambda: True, lambda: False],
            minProperties=value_of(1, 2), maxProperties=value_of(1, 2),
            patternProperties=[named("^a", "b$", "[xy]")], unevaluatedProperties=[below, lambda: False],
            propertyNames=value_of({"type": "string", "maxLength": 2}, {"enum": ["a", "x"]}, {"type": "string", "pattern": "a|b"}, {}),
        )  # fmt: skip
        usual = keywords(draw, 0.7, properties=[named("a", "b", "ab", "x/", "\u00e9")])
        declared = list(usual.get("properties", {}))
        if draw.random() < 0.5:
            usual["required"] = draw.sample(declared, draw.randint(0, len(declared))) + ["y"] * (draw.random() < 0.1)
        return {"type": "object"} | usual | extra

    def other():
        return draw.choice(
            [
                lambda: {"enum": draw.sample(["a", 1, None, 2.5, True, "x\n", [1]], 2)},
                lambda: {"const": draw.choice(["a", 0, {"a": [None]}])},
                lambda: {"type": draw.choice(["boolean", "null"])},
                lambda: {"anyOf": [below() for _ in range(draw.randint(1, 2))]},
                lambda: {"oneOf": [below(), below()]},
                lambda: {"allOf": [below()]},
                lambda: {"$ref": "#/$defs/d"},
                lambda: {"type": draw.sample(["string", "integer", "null", "object"], draw.randint(0, 2)), "maxLength": 3, "minimum": 4},
            ]
        )()

    kinds = [string, number, other] if depth > 1 else [array, objects, objects, objects, string, number, other]
    return draw.choice(kinds)()


# Names, escapes and ends of what has begun, so that texts try what they may and come to an end.
LIKELY = '"}],:\\u0061abxy/123- \u00e9'


@pytest.mark.parametrize("part", range(6))
def test_texts_of_random_schemas_validate(client, part):
    """Refused, or held to: texts drawn nearly evenly among what is allowed, by others' validator."""
    tokenizer = tokenizers.Tokenizer.from_file(f"{MODEL}/tokenizer.json")
    bias = {token: 40 for character in LIKELY for token in tokenizer.encode(character, add_special_tokens=False).ids}
    draw = random.Random(part)
    schemas = [random_schema(draw) | {"$defs": {"d": random_schema(draw, 2)}} for _ in range(80)]

    def texts(schema):
        try:
            return complete(client, part, {"guided_json": schema}, n=8, max_tokens=120, temperature=5, logit_bias=bias)
        except openai.BadRequestError as error:
            assert "guided_json: " in error.body["message"]
            return []

    ended = 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for schema, drawn in zip(schemas, pool.map(texts, schemas)):
            for text, reason in drawn:
                if reason == "stop":
                    value = json.loads(text)
                    assert jsonschema_rs.Draft202012Validator(schema).is_valid(value), (schema, text)
                    ended += 1
    assert ended > 80


HOSTILE = {
    "deep regex": {"guided_regex": "(" * 20000 + "a" + ")" * 20000},
    "ambiguous regex": {"guided_regex": "(.{0,1000}|[a-z]{0,900}|\\w{3,777})*" * 50},
    "huge regex": {"guided_regex": "a" * 100000},
    "ambiguous grammar": {"guided_grammar": 'root ::= e\ne ::= e e | e "a" e | "a" e | e "a" | [a-z]'},
    "left recursion": {"guided_grammar": 'root ::= root "a"'},
    "dead end": {"guided_grammar": 'root ::= "a" x\nx ::= x'},
    "many properties": {
        "guided_json": {
            "type": "object",
            "properties": {f"p{i}": {"type": "string"} for i in range(200)},
            "minProperties": 100,
            "maxProperties": 150,
        }
    },
    "many patterns": {"guided_json": {"anyOf": [{"type": "string", "pattern": f"(x{{1,{900 + i}}}){{1,1000}}y"} for i in range(500)]}},
    "circle": {"guided_json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}},
    "elsewhere": {"guided_json": {"$ref": "https://example.com/schema.json"}},
    "nothing": {"guided_json": {"type": "array", "items": False, "minItems": 1}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_grammars(client, server, name):
    """Answered, or refused with a reason, in seconds; the server goes on."""
    try:
        complete(client, 1, HOSTILE[name], max_tokens=200)
    except openai.BadRequestError as error:
        assert len(error.body["message"]) > 20
    assert server.alive()
    assert complete(client, 1, {"guided_choice": ["a"]}, n=1) == [("a", "stop")]
