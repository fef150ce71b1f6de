"""Random templates over the supported subset of Jinja, and random variables for them. Types are followed loosely, so
that most templates render and some fail; whatever jinja2 then does is what is expected."""

import random

STRINGS = ["", "a", "b", "Hello", "x y", " pad ", "a,b,c", "line\\nline\\n", "é🙂", "<b>", "it\\'s", "\\\"q\\\"", "ABC", "abc", "10", "-3", "2.5", "user", "\\t"]
NAMES = ["s", "t", "n", "m", "f", "flag", "off", "none_", "l", "words", "d", "messages", "nope", "a", "b", "c", "ns"]
STRING_FILTERS = ["trim", "upper", "lower", "title", "capitalize", "string", "e", "indent", "indent(2, true)", "replace('a', 'b')", "replace('l', '', 1)",
                  "default('z')", "d('z', true)", "trim('a')", "safe|string", "tojson", "first", "last", "reverse", "int", "float", "length", "list", "escape"]
LIST_FILTERS = ["list", "length", "first", "last", "join", "join(',')", "sort", "sort(reverse=true)", "reverse|list", "unique|list", "map('string')|list",
                "map('upper')|join('-')", "select|list", "reject|list", "select('string')|list", "select('number')|list", "min", "max", "sum",
                "map(attribute='role')|list", "selectattr('role', 'eq', 'user')|list", "selectattr('role', 'defined')|list", "rejectattr('role')|list",
                "tojson", "tojson(indent=2)", "batch(2)|list", "map('length')|list", "string", "count", "map(attribute='role', default='?')|join('|')",
                "map('default', 'q')|list", "select('in', [1, 'a'])|list", "unique(true)|list", "sort(case_sensitive=true)", "map('tojson')|list", "map('trim')"]
DICT_FILTERS = ["tojson", "items|list", "dictsort", "length", "list", "dictsort(by='value')", "tojson(sort_keys=true)", "string", "dictsort(reverse=true)", "map('upper')|list", "first"]
NUMBER_FILTERS = ["abs", "round", "int", "float", "string", "round(1)", "tojson", "default(1)", "round(0, 'floor')", "round(1, 'ceil')", "upper"]
STRING_METHODS = ["strip()", "lstrip()", "rstrip('a')", "split()", "split(',')", "split(',', 1)", "upper()", "lower()", "title()", "capitalize()", "startswith('a')",
                  "endswith(('c', 'd'))", "replace('a', 'x')", "replace('', '-', 2)", "find('b')", "rsplit(',', 1)", "splitlines()", "count('a')", "join(words)",
                  "partition(',')", "removeprefix('a')", "strip('ac')", "split('a')[-1]", "rfind('a')", "isspace()"]
DICT_METHODS = ["items()|list", "keys()|list", "values()|list", "get('a')", "get('zz', 1)", "items()|length", "items()", "keys()", "get(n)"]
LIST_METHODS = ["count(1)", "index(1)", "append(1)"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "sequence", "iterable", "callable", "odd", "even",
         "divisibleby(2)", "divisibleby 3", "eq 1", "equalto('a')", "in [1, 'a']", "lower", "upper", "ne 2", "lt 3", "gt 0", "ge 1", "in 'abc'"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
SPACES = ["", "", "", " ", "\n", "\n\n", "  \n  ", "text", " x ", "\t", "a\n", "\r\n", "é"]


class Grammar:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.loops = 0
        self.macros = []

    def pick(self, *choices):
        return self.random.choice(choices)

    # expressions

    def string(self, depth):
        choice = self.random.randrange(8) if depth > 0 else self.random.randrange(2)
        if choice == 0:
            return f"'{self.random.choice(STRINGS)}'"
        if choice == 1:
            return self.pick("s", "t", "words[0]", "messages[0].role", "messages[-1]['content']", "'lit'")
        if choice == 2:
            return f"({self.string(depth - 1)} + {self.string(depth - 1)})"
        if choice == 3:
            return f"({self.expression(depth - 1)} ~ {self.expression(depth - 1)})"
        if choice == 4:
            return f"{self.string(depth - 1)}|{self.random.choice(STRING_FILTERS)}"
        if choice == 5:
            return f"({self.string(depth - 1)}).{self.random.choice(STRING_METHODS)}"
        if choice == 6:
            return f"({self.string(depth - 1)})[{self.slice()}]"
        return f"({self.string(depth - 1)} * {self.random.randrange(-1, 4)})"

    def slice(self):
        part = lambda: self.pick("", "", "0", "1", "-1", "2", "n", "-3", "none")  # noqa: E731
        return self.pick(part() + ":" + part(), part() + ":" + part() + ":" + self.pick("", "1", "-1", "2", "-2"))

    def number(self, depth):
        choice = self.random.randrange(6) if depth > 0 else self.random.randrange(2)
        if choice == 0:
            return self.pick("0", "1", "2", "-3", "7", "10", "2.5", "-0.5", "1e3", "100", "true")
        if choice == 1:
            return self.pick("n", "m", "f", "l[0]", "loop.index" if self.loops else "n", "loop.revindex0" if self.loops else "m", "l|length")
        if choice == 2:
            return f"({self.number(depth - 1)} {self.pick('+', '-', '*', '/', '//', '%')} {self.number(depth - 1)})"
        if choice == 3:
            return f"{self.number(depth - 1)}|{self.random.choice(NUMBER_FILTERS)}"
        if choice == 4:
            return f"(-{self.number(depth - 1)})"
        return f"({self.number(depth - 1)} ** {self.pick('2', '0', '1', '3', '-1', '0.5')})"

    def list(self, depth):
        choice = self.random.randrange(7) if depth > 0 else self.random.randrange(2)
        if choice == 0:
            return self.pick("l", "words", "messages", "[]", "(1, 2)", "range(3)", "mixed")
        if choice == 1:
            return "[" + ", ".join(self.expression(depth - 2) for _ in range(self.random.randrange(4))) + "]"
        if choice == 2:
            return f"({self.list(depth - 1)} + {self.list(depth - 1)})"
        if choice == 3:
            return f"({self.list(depth - 1)})[{self.slice()}]"
        if choice == 4:
            return f"({self.list(depth - 1)}|{self.random.choice(LIST_FILTERS)})"
        if choice == 5:
            return f"({self.list(depth - 1)}).{self.random.choice(LIST_METHODS)}"
        return "(" + ", ".join(self.expression(depth - 2) for _ in range(self.random.randrange(2, 4))) + ")"

    def dict(self, depth):
        choice = self.random.randrange(5) if depth > 0 else 0
        if choice == 0:
            return self.pick("d", "messages[0]", "{}", "d.sub", "{'k': n}")
        if choice == 1:
            key = lambda: self.pick("'a'", "'b'", "'items'", "1", "s", "none", "true", "2.0")  # noqa: E731
            return "{" + ", ".join(f"{key()}: {self.expression(depth - 2)}" for _ in range(self.random.randrange(4))) + "}"
        if choice == 2:
            return f"({self.dict(depth - 1)}|{self.random.choice(DICT_FILTERS)})"
        if choice == 3:
            return f"({self.dict(depth - 1)}).{self.random.choice(DICT_METHODS)}"
        return f"({self.dict(depth - 1)})[{self.pick(repr('a'), repr('sub'), 'n', 's')}]"

    def boolean(self, depth):
        choice = self.random.randrange(7) if depth > 0 else 0
        if choice == 0:
            return self.pick("flag", "off", "true", "false", "nope", "none_", "loop.first" if self.loops else "flag", "loop.last" if self.loops else "off")
        if choice == 1:
            return f"{self.expression(depth - 1)} is {self.pick('', 'not ')}{self.random.choice(TESTS)}"
        if choice == 2:
            return f"({self.boolean(depth - 1)} {self.pick('and', 'or')} {self.boolean(depth - 1)})"
        if choice == 3:
            return f"not {self.boolean(depth - 1)}"
        if choice == 4:
            return f"({self.number(depth - 1)} {self.pick('<', '<=', '>', '>=', '==', '!=')} {self.number(depth - 1)})"
        if choice == 5:
            return f"({self.string(depth - 1)} {self.pick('in', 'not in', '==', '<')} {self.pick(self.string(depth - 1), self.list(depth - 1))})"
        return f"({self.number(depth - 1)} < {self.number(depth - 1)} <= {self.number(depth - 1)})"

    def expression(self, depth):
        if depth <= 0:
            return self.random.choice(NAMES + ["1", "'x'", "none", "true"])
        choice = self.random.randrange(14)
        if choice < 3:
            return self.string(depth)
        if choice < 5:
            return self.number(depth)
        if choice < 7:
            return self.list(depth)
        if choice < 8:
            return self.dict(depth)
        if choice < 9:
            return f"({self.boolean(depth)})"
        if choice == 9:
            return f"({self.expression(depth - 1)} if {self.boolean(depth - 1)}{self.pick('', ' else ' + self.expression(depth - 1))})"
        if choice == 10:
            return f"({self.expression(depth - 1)} {self.random.choice(OPERATORS)} {self.expression(depth - 1)})"
        if choice == 11:
            return f"({self.expression(depth - 1)}).{self.pick('a', 'role', 'content', 'items', 'nope', '0', 'x')}"
        if choice == 12 and self.macros:
            return f"{self.random.choice(self.macros)}({self.pick('', self.expression(depth - 1), 'q=' + self.expression(depth - 1))})"
        return f"({self.expression(depth - 1)}|{self.random.choice(STRING_FILTERS + LIST_FILTERS + DICT_FILTERS)})"

    # statements

    def tag(self, body):
        return "{%" + self.pick("", "", "-", "-", "+") + " " + body + " " + self.pick("", "", "-", "-", "+") + "%}"

    def block(self, depth):
        return "".join(self.random.choice(SPACES) + self.statement(depth) for _ in range(self.random.randrange(1, 4))) + self.random.choice(SPACES)

    def statement(self, depth):
        choice = self.random.randrange(20) if depth > 0 else self.random.randrange(5)
        if choice < 5:
            return "{{" + self.pick("", "-") + " " + self.expression(self.random.randrange(1, 4)) + " " + self.pick("", "-") + "}}"
        if choice < 8:
            middle = "".join(self.tag(f"elif {self.boolean(2)}") + self.block(depth - 1) for _ in range(self.random.randrange(2)))
            end = self.pick("", self.tag("else") + self.block(depth - 1))
            return self.tag(f"if {self.boolean(2)}") + self.block(depth - 1) + middle + end + self.tag("endif")
        if choice < 12:
            return self.loop(depth)
        if choice < 14:
            target = self.pick("a", "b", "c", "s", "n", "a, b", "ns.v", "nope")
            value = "n, s" if target == "a, b" else self.expression(2)
            return self.tag(f"set {target} = {value}")
        if choice == 14:
            return self.tag(f"set {self.pick('a', 'b', 's')}") + self.block(depth - 1) + self.tag("endset")
        if choice == 15:
            return self.macro(depth)
        if choice == 16:
            loops, self.loops = self.loops, 0
            body = self.tag("generation") + self.block(depth - 1) + self.tag("endgeneration")
            self.loops = loops
            return body
        if choice == 17:
            return "{#" + self.pick("", "-") + " c " + self.pick("", "-", "+") + "#}"
        if choice == 18 and self.loops:
            return self.tag(f"if {self.boolean(1)}") + self.tag(self.pick("break", "continue")) + self.tag("endif")
        if choice == 19 and self.random.random() < 0.3:
            return self.tag("raw").replace("+%}", "%}") + " {{ x }} \n" + self.tag("endraw")
        return self.tag(f"set ns = namespace(v={self.expression(1)})")

    def loop(self, depth):
        target, source = self.pick(("x", self.list(2)), ("x", self.list(2)), ("k, v", "d.items()"), ("a", self.expression(2)), ("m", "messages"),
                                   ("c", "s"), ("k, v", "d|dictsort"), ("x", "words|map('upper')"), ("i", "range(n)"))
        condition = self.pick("", "", "", f" if {self.boolean(2)}", " if x is defined")
        head = self.tag(f"for {target} in {source}{condition}")
        self.loops += 1
        body = self.block(depth - 1) + self.pick("", "{{ loop.index }}{{ ',' if not loop.last }}", "{{ x }}", "{{ loop.length }}", "{{ loop.previtem }}{{ loop.nextitem }}")
        self.loops -= 1
        end = self.pick("", "", self.tag("else") + self.block(depth - 1))
        return head + body + end + self.tag("endfor")

    def macro(self, depth):
        name = f"macro{len(self.macros)}"
        loops, self.loops = self.loops, 0
        body = self.block(depth - 1)
        self.loops = loops
        self.macros.append(name)
        return self.tag(f"macro {name}({self.pick('p', 'p, q=2', 'p=n, q=s', 'p=1, q=p')})") + "{{ p }}" + body + self.tag("endmacro")

    def template(self):
        self.loops, self.macros = 0, []
        return self.block(3) + self.block(2) + self.random.choice(SPACES)

    def variables(self):
        value = lambda: self.pick(1, -2, "a", "", 2.5, None, True, [1, "b"], {"a": 1}, "é")  # noqa: E731
        return {
            "s": self.pick("Hello wörld", "a,b,c", " x\n", ""), "t": self.pick("text", "a", "A-b c"), "n": self.random.randrange(-2, 5),
            "m": self.pick(0, 3, -7), "f": self.pick(0.5, -2.25, 1e20, 3.0), "flag": True, "off": False, "none_": None,
            "l": self.random.sample(range(-3, 9), self.random.randrange(1, 5)), "words": self.random.choices(["b", "A", "c", "a", "Zz", "é"], k=self.random.randrange(1, 5)),
            "mixed": [value() for _ in range(self.random.randrange(4))],
            "d": {"b": value(), "a": value(), "items": value(), "sub": {"x": value()}},
            "messages": [{"role": role, "content": value()} for role in ["system", "user", "assistant"][: self.random.randrange(1, 4)]],
        }
