"""Requests that schemathesis makes of /openapi.json, valid ones and broken ones: no 5xx, answers as the document says.

The document is narrowed to the served model (its names, its vocabulary); answers are kept short.
"""

import json

import jsonschema_rs
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from serving import MODEL, ROOT, server_fixture

DOCUMENT = json.loads((ROOT / "src/asynct/serve/openapi.json").read_text(encoding="utf-8"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
MOST_TOKENS = 3
MOST_CHOICES = 4
SEEN = set()  # (path, whether it was answered)
STREAMS = set()  # paths


def narrowed(document):
    document = json.loads(json.dumps(document))
    schemas = document["components"]["schemas"]
    schemas["Token"]["maximum"] = 4095
    schemas["ModelName"] = {"enum": [MODEL, "asynct-tiny", None]}
    document["paths"]["/v1/models/{id}"]["get"]["parameters"][0]["schema"] = {"enum": [MODEL, "asynct-tiny"]}
    return document


def shorten(body):
    """Of a request that is valid only what it costs."""
    if not isinstance(body, dict):
        return
    for name, most in (("max_tokens", MOST_TOKENS), ("max_completion_tokens", MOST_TOKENS), ("n", MOST_CHOICES)):
        if type(body.get(name)) is int and most < body[name] < 2**31:
            body[name] = most
    if body.get("max_tokens") is None:
        body["max_tokens"] = MOST_TOKENS


def check_events(path, text):
    """OpenAPI 3.1 has no word for what an event holds, so the document has one of its own."""
    media = DOCUMENT["paths"][path]["post"]["responses"]["200"]["content"]["text/event-stream"]
    validator = jsonschema_rs.validator_for({**media["x-event-schema"], "components": DOCUMENT["components"]})
    *events, done, end = text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    assert events
    for event in events:
        validator.validate(json.loads(event.removeprefix("data: ")))


schema = schemathesis.openapi.from_dict(narrowed(DOCUMENT))
server = server_fixture()


def test_document_is_the_one_served(server):
    served = json.loads(server.get("/openapi.json"))
    assert served["info"].pop("version") == json.loads(server.get("/version"))["version"]
    assert served == {**DOCUMENT, "info": {k: v for k, v in DOCUMENT["info"].items() if k != "version"}}


@schema.parametrize()
@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_documented(case, server):
    if "completions" in case.path:
        shorten(case.body)
    answer = case.call(base_url=server.url, timeout=60)
    if case.method.upper() == case.operation.method.upper():
        SEEN.add((case.operation.path, answer.status_code == 200))
    case.validate_response(answer, checks=CHECKS)
    if "text/event-stream" in answer.headers.get("content-type", []):
        STREAMS.add(case.operation.path)
        check_events(case.operation.path, answer.text)


def test_both_kinds_were_made():
    """Requests that are answered on each route, and refused ones on those that take something."""
    for path, operations in DOCUMENT["paths"].items():
        assert (path, True) in SEEN
        assert "requestBody" not in operations.get("post", {}) or (path, False) in SEEN
    assert STREAMS == {"/v1/completions", "/v1/chat/completions"}
