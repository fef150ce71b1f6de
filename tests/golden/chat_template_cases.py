"""Templates and variables that the golden and differential tests of chat templates share, and what renders them."""

import datetime
from pathlib import Path

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

TEMPLATES = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "chat_templates").glob("*.jinja"))}
NOW = 1719835200  # what strftime_now reads: 2024-07-01 12:00 UTC


def strftime_now(format):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(format)


def render(template, variables):
    """{"text"} or {"error", "at"}, at "load" or "render", by transformers' own environment."""
    try:
        compiled = _compile_jinja_template(template)
    except (jinja2.TemplateError, SyntaxError, RecursionError) as error:
        return {"error": str(error), "at": "load"}
    try:
        return {"text": compiled.render(strftime_now=strftime_now, **variables)}
    except Exception as error:  # a template raises whatever Python raises
        return {"error": str(error), "at": "render"}


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place.\nToday's.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town & its country, e.g. \"Zürich, CH\" <small>"},
                "days": {"type": ["integer", "null"], "minimum": 1},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["place"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}

SYSTEM = {"role": "system", "content": "Be brief.\n"}
HELLO = {"role": "user", "content": " Hello, wörld! 你好 🙂 "}
ANSWER = {"role": "assistant", "content": "Hi.\nHow are you?  "}
NEXT = {"role": "user", "content": "Fine \"thanks\" & <you>?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"place": "Bern", "days": 2}}}]}
CALLS = {"role": "assistant", "content": "I look.", "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"place": "Bern"}}},
    {"id": "jklmnopqr", "type": "function", "function": {"name": "clock", "arguments": {}}}]}
RESULT = {"role": "tool", "content": "{\"sky\": \"grey\"}", "tool_call_id": "abcdefghi"}
RESULT_MAP = {"role": "tool", "content": {"content": "12:00"}, "tool_call_id": "jklmnopqr"}
THOUGHT = {"role": "assistant", "content": "<think>\nHm, a greeting.\n</think>\n\nHi again."}
REASONED = {"role": "assistant", "content": "Hello.", "reasoning_content": "\nthey greet\n"}
PARTS = {"role": "user", "content": [{"type": "text", "text": " What is "}, {"type": "image"}, {"type": "text", "text": "this?"}]}

CONVERSATIONS = {
    "question": [HELLO],
    "system": [SYSTEM, HELLO],
    "turns": [SYSTEM, HELLO, ANSWER, NEXT],
    "no_system": [HELLO, ANSWER, NEXT, ANSWER],
    "wrong_order": [HELLO, NEXT],
    "assistant_first": [ANSWER, HELLO],
    "call": [HELLO, CALL, RESULT],
    "calls": [SYSTEM, HELLO, CALLS, RESULT, RESULT_MAP, ANSWER, NEXT],
    "thinking": [HELLO, THOUGHT, NEXT, REASONED],
    "thinking_last": [SYSTEM, HELLO, REASONED, NEXT, THOUGHT],
    "parts": [PARTS],
    "unknown_role": [{"role": "critic", "content": "?"}],
    "no_content": [{"role": "user"}],
    "empty": [],
}


def conversations():
    """(name, variables) over conversations and options."""
    for name, messages in CONVERSATIONS.items():
        for tools in ((None, [WEATHER, CLOCK]) if "call" in name or name in ("question", "turns") else (None,)):
            for prompt in (False, True):
                variables = {"messages": messages, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
                if tools is not None:
                    variables["tools"] = tools
                yield f"{name}{'+tools' if tools else ''}{'+prompt' if prompt else ''}", variables
    yield "no_thinking", {"messages": [HELLO], "add_generation_prompt": True, "enable_thinking": False,
                          "bos_token": "<s>", "eos_token": "</s>", "tools": None, "date_string": "1 Jan 2020",
                          "tools_in_user_message": False}


VARIABLES = {
    "s": "Hello wörld", "e": "", "n": 7, "m": -3, "f": 2.5, "t": True, "u": None, "l": [3, 1, 2], "w": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": [1, None], "C": "x", "keys": 5}, "ms": [SYSTEM, HELLO, ANSWER], "ws": " \n\tab c\u00a0\u3000\n",
    "nested": {"x": {"y": [{"z": 1}, {"z": 2}]}},
}

# Each is a template over VARIABLES.
SMALL = [
    # white space
    "a\n  {% if t %}\n  b\n  {% endif %}\nc\n", "a {%- if t -%} b {%- endif -%} c", "  {%+ if t %}x{% endif +%}\ny",
    "{{ s }}\n{{ n }}\n\n", "a\r\nb\r{% if t %}\r\nc{% endif %}", "{# c #}\n x {#- d -#} y\n  {# e #}\nz",
    "{% raw %} {{ a }} {% if %} {% endraw %} b", "x\n  {%- raw -%}  {# #}  {%- endraw -%}  y", "  {% raw %}\na{% endraw %}\nb",
    "\n\n{{- s -}}\n\n", "{%- set a = 1 -%}\n\n x", "{{ '{{' }}{{ '%}' }}", "{ {{ n }} } {% if t %}%{% endif %} #}", "{{+n}}",
    "{% if t -%}\n\n\n a\n{%- endif %}", "a\n\t {#- x -#} \n b", "{{ n }}  \n  {# x +#}\n y",
    # literals
    r"{{ 'a\n\t\\\'\"\x41\u00e9\U0001F600\101\q' }}", '{{ "it\'s" \'joined\' }}', "{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }}",
    "{{ 1.5e3 }} {{ 1e-7 }} {{ 1e16 }} {{ 123456789.0 }} {{ 0.1 + 0.2 }} {{ 1E5 }} {{ 5e-324 }} {{ 1.0 }}",
    "{{ [1, 'a', none, true, 2.0, [], {}, ()] }}", "{{ {'a': 1, 2: 'b', none: (1,), true: false} }}", "{{ (1, 2) }} {{ 1, 2 }} {{ () }}",
    "{{ True }} {{ true }} {{ None }} {{ none }} {{ False }}", "{{ {1: 'a', true: 'b', 1.0: 'c'} }}", "{{ [1, 2,] }}{{ {'a': 1,} }}",
    r"{{ ['a\'b', 'a\"b', 'a\'\"b', '\\', '\n\r\t\x00\x7f\u200b\u00e9\u3000\U0001F600'] }}", r"{{ '\é' }}",
    # operators
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 3 }}",
    "{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}",
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 'a' * 3 }} {{ 2 * [1] }} {{ (1,) * 2 }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }}",
    "{{ 1 ~ 'a' ~ none ~ 1.5 ~ [1] }} {{ 1 + 2 ~ 3 + 4 }} {{ true + true }} {{ -true }} {{ +n }} {{ --n }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}",
    "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ none + 1 }}", "{{ [1] + (1,) }}", "{{ 'a' - 'b' }}", "{{ 0 ** -1 }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 1 != 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ true == 1 }} {{ '1' == 1 }}",
    "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ 'Z' < 'a' }} {{ 'é' > 'z' }} {{ '\U0001F600' > '\uffff' }} {{ (1, 2) == [1, 2] }}",
    "{{ 'a' in 'abc' }} {{ 'd' not in 'abc' }} {{ 1 in [1, 2] }} {{ 'b' in d }} {{ 3 in range(5) }} {{ 5 in (1, 2) }} {{ u in [none] }}",
    "{{ 1 in 'a' }}", "{{ 1 in 5 }}", "{{ [] in d }}", "{{ not t }} {{ not t and t }} {{ not (t and u) }} {{ t or u }} {{ e or 'x' }} {{ n and s }}",
    "{{ u or e or 0 or [] }} {{ 1 and 2 and 3 }} {{ not n == 7 }} {{ not u is none }}", "{{ 'y' if t else 'n' }} {{ 'y' if u }}|{{ 1 if u else 2 if e else 3 }}",
    "{{ ('y' if u).x }}", "{{ 1 if t else 2 + 3 }}", "{{ -n|abs }} {{ 2 ** m|abs }} {{ n + m|abs }} {{ n is odd and m is odd }}",
    "{{ 9007199254740993 == 9007199254740992.0 }} {{ 10 // 3.0 }} {{ -0.0 }} {{ 0.0 * -1 }} {{ 1e308 * 10 }} {{ -5 // 5 }}",
    # access
    "{{ d.b }} {{ d['b'] }} {{ d.a[0] }} {{ d['a'].0 }} {{ l[-1] }} {{ l[5] }}|{{ s[0] }}{{ s[-1] }}{{ s[7] }} {{ nested.x.y[1].z }}",
    "{{ d.nope }}|{{ d['nope'] }}|{{ l.nope }}|{{ none.x }}|{{ (5).x }}|{{ s.nope }}", "{{ nope.x }}", "{{ nope['x'] }}", "{{ d.nope.x }}", "{{ nope() }}",
    "{{ nope }} {{ nope is defined }} {{ [nope] }} {{ nope == nope2 }} {{ nope ~ 'x' }} {{ nope + 1 }}", "{{ nope < 1 }}", "{{ -nope }}", "{{ nope[1:] }}",
    "{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[-3:] }} {{ (1, 2, 3)[1:] }} {{ l[5:] }} {{ l[2:0:-1] }} {{ l[none:2] }}",
    "{{ l[::0] }}", "{{ n[1:] }}", "{{ u[1:] }}", "{{ d[1:] }}", "{{ l['x'] }}|{{ d[1] }}|{{ d[[]] }}|{{ l[1.0] }}|{{ l[true] }}",
    "{{ d.keys() | list }} {{ d['keys'] }} {{ d.keys is callable }} {{ d.items() | list }} {{ d.values() | list }} {{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 3) }}",
    "{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d.items() | length }}", "{{ range(3) }} {{ range(1, 10, 3) | list }} {{ range(5)[1:3] }} {{ range(5)[-1] }} {{ range(5, 0, -2) | list }}",
    "{{ range(0, 10, 3)[::2] }} {{ range(3) == range(0, 3, 1) }} {{ range(0) | list }}", "{{ range(1, 2, 0) }}", "{{ range(1.5) }}", "{{ range() }}", "{{ range(1000000) }}",
    "{{ l.append(4) }}", "{{ l.append }}|{{ d.update }}|{{ l.append is defined }}", "{{ d.pop('b') }}", "{{ s.upper.x }}", "{{ d.items.x }}", "{{ s._x }}|{{ d._x }}",
    # statements
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}", "{% if u %}a{% elif n %}b{% else %}c{% endif %}", "{% if nope %}a{% endif %}x", "{% if n > 5: %}a{% endif %}",
    "{% for x in l %}{{ x }}{{ ',' if not loop.last }}{% endfor %}", "{% for x in [] %}a{% else %}b{% endfor %}", "{% for x in nope %}a{% else %}b{% endfor %}", "{% for x in u %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in s %}{{ c }}.{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {{ loop.previtem is defined }}{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}", "{% for x in l if x > 10 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in l %}{% for y in w %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}", "{% for x in l %}{% break %}{% else %}e{% endfor %}", "{% for x in l %}{% continue %}{% else %}e{% endfor %}",
    "{% break %}", "{% for x in l %}{% set y %}a{% if x == 1 %}{% break %}{% endif %}{% endset %}{{ y }}{% endfor %}", "{% for x in [] %}{% else %}{% break %}{% endfor %}", "{% for x in l %}{% for y in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% set x = 1 %}{% for y in l %}{% set x = x + y %}{{ x }} {% endfor %}{{ x }}", "{% set ns = namespace(x=0) %}{% for y in l %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns['a'] }}", "{% set d.x = 1 %}", "{% set nope.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set (a, b) = l[:2] %}{{ a }}{{ b }}", "{% set a, b = 1 %}", "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}", "{% set x %}a{{ n }}b{% endset %}[{{ x }}]{{ x | length }}",
    "{% if t %}{% set z = 1 %}{% endif %}{{ z }}", "{% if u %}{% set s = 1 %}{% endif %}{{ s }}", "{% for x in l %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}", "{% for x in l %}{{ s }}{% endfor %}{% if t %}{% set s = 1 %}{% endif %}{{ s }}", "{{ s }}{% for x in l %}{{ s }}{% set s = x %}{{ s }}{% endfor %}{{ s }}", "{% set q = q %}{{ q is defined }}",
    "{% set s %}{{ s }}!{% endset %}{{ s }}", "{% for x in l %}{% set s = 1 %}{% for y in [0] %}{{ s }}{% endfor %}{% endfor %}{{ s }}", "{% for x in l %}{% for y in [0] %}{{ s }}{% endfor %}{% set s = 1 %}{% endfor %}", "{% macro m() %}{{ s }}{% endmacro %}{{ m() }}{% set s = 2 %}{{ m() }}",
    "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m() }}{{ m(b=1, a=2) }}{{ m(1, 2, 3) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=1) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}", "{% macro m(a=b, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% set x = 2 %}{{ m() }}", "{% macro m() %} a {% endmacro %}{{ m() | trim | upper }}{{ m() | length }}", "{% macro m(x) %}{% for y in x %}{{ y }}{% endfor %}{% endmacro %}{% for z in [l, w] %}{{ m(z) }};{% endfor %}", "{{ m() }}{% macro m() %}a{% endmacro %}",
    "a{% generation %}b{{ n }}{% endgeneration %}c", "{% generation %}{% set x = 1 %}{% endgeneration %}{{ x }}", "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{{ raise_exception('no: ' ~ n) }}", "{{ strftime_now('%d %b %Y, %H:%M %%') }}|{{ strftime_now('') }}",
    "{% for m in ms %}{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}", "{% for x in l if x is odd %}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{% endfor %}", "{% for x in l %}{{ x }}{% endfor %}{{ x }}{{ loop }}", "{% set loop = 1 %}{{ loop }}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% for x in l|map('string') %}{{ loop.length }}{{ loop.last }}{{ x }}{% endfor %}", "{% for x in d.items() %}{{ x }}{{ x[0] }}{% endfor %}",
    # filters
    "[{{ ws | trim }}][{{ ws | length }}][{{ 'xxaxx' | trim('x') }}][{{ 5 | trim }}]", "{{ 'straße ǆ ﬁ ΑΣ' | upper }} {{ 'ÀÉ İ ΑΣ ΑΣΑ' | lower }} {{ 'hello wORLD-foo (bar) x.y' | title }} {{ 'hELLO' | capitalize }} {{ none | upper }}", "{{ 'they\\'re bill\\'s ǆ'.title() }} {{ 'ﬁne'.capitalize() }} {{ 'ß'.title() }}",
    "{{ l | length }} {{ d | count }} {{ s | length }} {{ nope | length }} {{ '🙂' | length }}", "{{ n | length }}", "{{ l | map('string') | length }}", "{{ l | first }} {{ l | last }} {{ s | first }} {{ s | last }} {{ [] | first }} {{ [] | last is defined }} {{ d | first }} {{ d | last }}", "{{ l | map('string') | last }}", "{{ u | first }}",
    "{{ l | join }} {{ l | join(', ') }} {{ ms | join('|', attribute='role') }} {{ ms | map(attribute='role') | join('|') }} {{ 'abc' | join('-') }} {{ [1, none, 'x', 2.0] | join(',') }} {{ nope | join }}", "{{ n | join }}",
    "{{ 'aXbXc' | replace('X', '--') }} {{ 'aXbXc' | replace('X', '-', 1) }} {{ 'abc' | replace('', '.') }} {{ 121 | replace(1, 3) }} {{ 'aaa'.replace('a', 'b', 2) }}", "{{ nope | default('x') }} {{ u | default('x') }} {{ u | default('x', true) }} {{ e | d('x', boolean=true) }} {{ nope | d }}|{{ n | default('x') }}",
    "{{ d | tojson }} {{ s | tojson }} {{ [1.0, 1e20, true, none] | tojson }} {{ (1, 2) | tojson }} {{ 'a\"\\\\\\n\\u0001\\x7f</é🙂' | tojson }} {{ 'é🙂\\x7f' | tojson(ensure_ascii=true) }}", "{{ d | tojson(indent=2) }} {{ [] | tojson(indent=2) }} {{ {'a': {}, 'b': [[]]} | tojson(indent=1) }} {{ [1, 2] | tojson(indent='--') }} {{ [1] | tojson(indent=0) }}", "{{ d | tojson(separators=(',', ':')) }} {{ d | tojson(sort_keys=true) }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }} {{ d | tojson(false, 4) }}",
    "{{ nope | tojson }}", "{{ range(3) | tojson }}", "{{ d.items() | tojson }}", "{{ {(1, 2): 3} | tojson }}", "{{ {1: 1, 'a': 2} | tojson(sort_keys=true) }}", "{{ ms | tojson }}",
    "{{ '42' | int }} {{ ' 4_2 ' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '3.9' | int }} {{ 3.9 | int }} {{ -3.9 | int }} {{ none | int }} {{ true | int }} {{ '0x1f' | int(0, 16) }} {{ '1e3' | int }} {{ 'inf' | int }} {{ [] | int(2) }} {{ '-7' | int }}", "{{ nope | int }}", "{{ '1.5' | float }} {{ 'x' | float }} {{ 'x' | float(2.5) }} {{ 3 | float }} {{ none | float }} {{ '1e400' | float }} {{ 'nan' | float }} {{ ' -inf ' | float }}",
    "{{ n | string }}{{ [1, 'a'] | string }} {{ 'abc' | list }} {{ d | list }} {{ d | items | list }} {{ nope | items | list }} {{ (1, 2) | list }}", "{{ n | items | list }}", "{{ n | list }}", "{{ d | dictsort }} {{ d | dictsort(true) }} {{ {'a': 3, 'b': 1} | dictsort(by='value') }} {{ {'a': 1, 'b': 2} | dictsort(reverse=true) }}", "{{ d | dictsort(by='value') }}", "{{ l | dictsort }}",
    "{{ w | map('upper') | list }} {{ ms | map(attribute='role') | list }} {{ ms | map(attribute='nope', default='x') | list }} {{ ms | map(attribute='content.0') | list }} {{ [[1, 2]] | map('join', '-') | list }} {{ w | map('replace', 'a', 'x') | list }} {{ l | map('string') | map('int') | sum }}", "{{ ms | map(attribute='a.b') | list }}", "{{ l | map | list }}", "{{ n | map('string') | list }}",
    "{{ l | select | list }} {{ l | select('odd') | list }} {{ l | select('divisibleby', 2) | list }} {{ l | reject('odd') | list }} {{ l | select('greaterthan', 1) | list }} {{ l | select('in', [1, 2]) | list }} {{ l | select('==', 1) | list }} {{ [0, 1, '', 'a', none] | reject | list }}", "{{ ms | selectattr('role', 'equalto', 'user') | list | length }} {{ ms | rejectattr('role', 'eq', 'user') | map(attribute='role') | list }} {{ ms | selectattr('role') | list | length }} {{ ms | selectattr('nope', 'defined') | list }} {{ ms | selectattr('role', 'in', ['user']) | map(attribute='role') | first }}", "{{ ms | selectattr | list }}",
    "{{ l | sort }} {{ w | sort }} {{ w | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ ms | sort(attribute='role') | map(attribute='role') | list }} {{ [{'a': 1, 'b': 2}, {'a': 1, 'b': 1}] | sort(attribute='a,b') }} {{ 'bca' | sort }}", "{{ [1, 'a'] | sort }}", "{{ [[1, 2], [1]] | sort }} {{ [none] | sort }}", "{{ ['a', 'A', 'b', 1, 1.0, true] | unique | list }} {{ ['a', 'A'] | unique(true) | list }} {{ ms | unique(attribute='role') | map(attribute='role') | list }}", "{{ [[1], [1]] | unique | list }}",
    "{{ l | reverse | list }} {{ s | reverse }} {{ l | map('string') | reverse }} {{ d | reverse | list }}", "{{ n | reverse }}", "{{ 2.5 | round }} {{ 3.5 | round }} {{ 42.55 | round(1) }} {{ 2.675 | round(2) }} {{ 42.55 | round(1, 'floor') }} {{ 42.55 | round(1, 'ceil') }} {{ 7 | round }} {{ 1234 | round(-2) }} {{ 1250 | round(-2) }} {{ -2.5 | round | int }} {{ 1e22 | round(2) }} {{ 0.5 | round }} {{ 5 | round(0, 'ceil') }}", "{{ 's' | round }}", "{{ 1.5 | round(0, 'x') }}",
    "{{ -5 | abs }} {{ -2.5 | abs }} {{ true | abs }}", "{{ 'a' | abs }}", "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, blank=true) }}|{{ 'a\\nb' | indent('> ') }}|{{ '' | indent }}|{{ 'a\\r\\nb\\x0bc\\u2028d\\n' | indent(1) }}", "{{ n | indent }}", "{{ '<a>&\"\\'' | escape }} {{ '<a>' | e | e }} {{ '<b>' | safe }} {{ ('<b>' | safe) + '<c>' }} {{ ('<b>' | safe) ~ '<c>' }} {{ ['<b>' | safe] }} {{ ('<b>' | safe).upper() }} {{ 5 | e }}",
    "{{ l | min }} {{ l | max }} {{ w | min }} {{ w | max }} {{ [] | min }}|{{ ms | max(attribute='role') | tojson }} {{ l | sum }} {{ [] | sum }} {{ [1.5, 2] | sum }} {{ [{'a': 1}, {'a': 2}] | sum(attribute='a') }} {{ [[1], [2]] | sum(start=[]) }}", "{{ w | sum }}", "{{ [1, 'a'] | max }}", "{{ l | batch(2) | list }} {{ l | batch(2, 0) | list }} {{ [] | batch(2) | list }} {{ l | batch(0) | list }}", "{{ l | batch }}",
    "{{ l | join(',', 'x', 'y') }}", "{{ l | join(foo=1) }}", "{{ l | first(1) }}", "{% set g = l | map('string') %}{{ g | join }}|{{ g | join }}", "{% set g = l | select('odd') %}{{ g | first }}{{ g | list }}{{ g | list }}", "{{ 3 in l | map('abs') }} {{ (l | map('abs')) is iterable }} {{ (l | map('abs')) is sequence }}",
    # tests
    "{{ [s, n, f, t, u, l, d, nope, (1,), range(2)] | map('string') | length }} {% for x in [s, n, f, t, u, l, d, nope, (1,), range(2), d.keys(), namespace(), raise_exception] %}{{ [x is defined, x is undefined, x is none, x is string, x is number, x is integer, x is float, x is boolean, x is true, x is false, x is mapping, x is sequence, x is iterable, x is callable] | map('int') | join }} {% endfor %}",
    "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 'a' is in 'abc' }} {{ 1 is in [1] }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'Ab' is lower }} {{ '1' is lower }} {{ 1 is not none }} {{ 2.5 is odd }} {{ 'ª' is lower }}", "{{ u is odd }}", "{{ n is divisibleby 0 }}", "{{ n is defined(1) }}", "{{ n is in }}", "{{ n is eq }}",
    # methods
    "[{{ ws.strip() }}][{{ ws.lstrip() }}][{{ ws.rstrip() }}][{{ 'xyaxy'.strip('xy') }}][{{ 'xya'.lstrip('x') }}][{{ 'aé'.rstrip('é') }}][{{ 'a'.strip(none) }}]", "{{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b c '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a'.split('b') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(maxsplit=1) }} {{ 'a--b'.split(sep='--') }}", "{{ 'a'.split('') }}", "{{ 'a'.split(1) }}",
    "{{ s.startswith('He') }} {{ s.endswith(('x', 'd')) }} {{ s.startswith('l', 2) }} {{ s.endswith('o', 0, 5) }} {{ s.startswith('', 99) }} {{ s.find('w') }} {{ s.find('ö') }} {{ s.find('l', 4) }} {{ s.find('zz') }} {{ s.rfind('l') }} {{ s.count('l') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }} {{ s.index('w') }} {{ s.find('', 99) }} {{ s.find('', 11) }} {{ s.find('l', -3, -1) }}", "{{ s.index('zz') }}", "{{ s.startswith(1) }}",
    "{{ s.upper() }} {{ s.lower() }} {{ 'hello world'.title() }} {{ 'HELLO'.capitalize() }} {{ '-'.join(w) }} {{ 'abc'.replace('b', 'x') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'a\\nb\\r\\nc'.splitlines() }} {{ 'a\\nb'.splitlines(true) }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ ' '.isspace() }} {{ 'a'.islower() }}", "{{ '-'.join(l) }}", "{{ s.upper(1) }}", "{{ s.strip(chars='x') }}", "{{ d.get() }}", "{{ d.get([]) }}", "{{ l.count(1) }} {{ l.index(2) }} {{ (1, 1).count(1) }}",
    # syntax errors
    "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ 1 ) }}", "{% for x l %}{% endfor %}", "{% for x in l %}{% endif %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% set x %}", "{% foo %}", "{{ 'a }}", "{{ a", "{# a", "{% raw %}", "{{ x | }}", "{{ x | nofilter }}", "{{ x is notest }}", "{{ a b }}", "{{ 1 $ 2 }}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ {1} }}", "{{ a.'b' }}", "{% if t %}{% else %}{% elif t %}{% endif %}", "{{ 007 }}", "{{ 'a' is string is string }}", "{{ x.y. }}", "{% set x = %}", "{{ '\\x4' }}",
]


def cases():
    """(name, template or the name of a file of chat_templates/, variables)."""
    for i, template in enumerate(SMALL):
        yield f"small {i}", template, VARIABLES
    for name in TEMPLATES:
        for conversation, variables in conversations():
            yield f"{name} {conversation}", name, variables
