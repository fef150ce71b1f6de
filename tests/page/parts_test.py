"""The parts of the page's script that know no document, called by themselves."""

import math
import unittest

from page_harness import SOURCE, Shared

setUpModule, tearDownModule = Shared.start, Shared.stop


class PartsTest(unittest.TestCase):
    def setUp(self):
        self.page = Shared.browser.new_page()
        self.addCleanup(self.page.close)
        for name in ("api.js", "format.js", "tokens.js", "prometheus.js", "charts.js"):
            self.page.add_script_tag(content=(SOURCE / name).read_text())

    def call(self, body, argument=None):
        return self.page.evaluate(f"(argument) => {{ {body} }}", argument)


class Events(PartsTest):
    def split(self, pieces):
        return self.call("const s = new EventSplitter(); return argument.flatMap((piece) => s.push(piece));", pieces)

    def test_any_pieces(self):
        text = 'data: {"a":1}\n\ndata:b\r\n\r\n: a comment\nevent: x\ndata: one\ndata:  two\n\ndata\n\ndata: unfinished\n'
        expected = ['{"a":1}', "b", "one\n two"]
        self.assertEqual(self.split([text]), expected)
        self.assertEqual(self.split(list(text)), expected)
        for size in (2, 3, 7):
            self.assertEqual(self.split([text[i:i + size] for i in range(0, len(text), size)]), expected)


class Aligner(PartsTest):
    def align(self, *steps):
        """Steps are (text, [token texts]); returns [(text, number of tokens)], the settled ones and the last."""
        settled, rest = self.call("""
            const aligner = new TokenAligner();
            const flat = (pieces) => pieces.map((piece) => [piece.text, piece.tokens.length]);
            const settled = argument.flatMap(([text, tokens]) =>
              flat(aligner.push(text, tokens.map((text) => ({ text, logprob: -1, tops: [] })))));
            return [settled, flat(aligner.finish())];""", [list(step) for step in steps])
        pieces = settled + rest
        self.assertEqual("".join(text for text, _ in pieces), "".join(text for text, _ in steps))
        return [tuple(piece) for piece in settled], [tuple(piece) for piece in rest]

    def test_token_by_token_and_at_once(self):
        self.assertEqual(self.align(("a", ["a"]), (" b", [" b"])), ([("a", 1), (" b", 1)], []))
        self.assertEqual(self.align(("a b", ["a", " b"])), ([("a", 1), (" b", 1)], []))

    def test_a_character_of_several_tokens(self):
        bad = "\ufffd"
        self.assertEqual(self.align(("x", ["x"]), ("", [bad]), ("", [bad]), ("\u2581", [bad]), ("y", ["y"])),
                         ([("x", 1), ("\u2581", 3), ("y", 1)], []))
        self.assertEqual(self.align(("\u2581", [bad, bad])), ([], [("\u2581", 2)]))
        # The space comes at once, the rest of its token later.
        self.assertEqual(self.align((" ", [" " + bad]), ("\u2581", [bad]), ("y", ["y"])),
                         ([(" \u2581", 2), ("y", 1)], []))
        # Bytes that never became a character are U+FFFD in the text too.
        self.assertEqual(self.align((bad, [bad]), ("y", ["y"])), ([(bad, 1), ("y", 1)], []))

    def test_text_held_back_and_cut_by_a_stop_string(self):
        self.assertEqual(self.align(("a", ["a"]), ("", ["E"]), ("ENO", ["NO"])), ([("a", 1), ("E", 1), ("NO", 1)], []))
        self.assertEqual(self.align(("a", ["a"]), (" x", [" xEN"]), ("", ["D"])), ([("a", 1)], [(" x", 1)]))

    def test_special_tokens_that_do_not_show(self):
        self.assertEqual(self.align(("", ["<|s|>"]), ("a", ["a"]), ("", ["<|e|>"])), ([("a", 1)], []))
        self.assertEqual(self.align(("ab", ["a", "", "b"])), ([("a", 1), ("b", 1)], []))

    def test_the_first_space_dropped(self):
        self.assertEqual(self.align(("Hello", [" Hello"]), (" x", [" x"])), ([("Hello", 1), (" x", 1)], []))

    def test_nonsense_ends(self):
        settled, rest = self.align(("abc" * 40, ["zzz"] * 100))
        self.assertLessEqual(len(settled) + len(rest), 5)
        self.assertEqual(self.align(("text", [])), ([], [("text", 0)]))


class Metrics(PartsTest):
    TEXT = """# HELP vllm:x text
vllm:x{model_name="a \\"le=\\"} b"} 3
vllm:x{model_name="c"} 4e1
plain 1.5 1700000000
t_bucket{le="0.1",m="a"} 1
t_bucket{m="a",le="0.5"} 3
t_bucket{m="a",le="+Inf"} 4
t_bucket{m="b",le="0.5"} 10
broken{ 1
nothing NaN
"""

    def test_parse(self):
        found = self.call("""
            const metrics = parsePrometheus(argument);
            return [[...metrics].map(([name, metric]) => [name, metric.value]),
                    [...metrics.get("t_bucket").buckets].map(([le, count]) => [String(le), count])];""", self.TEXT)
        self.assertEqual(found[0], [["vllm:x", 43], ["plain", 1.5], ["t_bucket", 18]])
        self.assertEqual(found[1], [["0.1", 1], ["0.5", 13], ["Infinity", 4]])

    def quantile(self, q, before, after):
        return self.call("""
            const map = (pairs) => new Map(pairs.map(([le, count]) => [le ?? Infinity, count]));
            const [q, before, after] = argument;
            return quantile(q, map(before), map(after));""", [q, before, after])

    def test_quantile(self):
        after = [[0.1, 10], [0.2, 20], [0.4, 20], [None, 20]]
        self.assertAlmostEqual(self.quantile(0.5, [], after), 0.1)
        self.assertAlmostEqual(self.quantile(0.75, [], after), 0.15)
        self.assertAlmostEqual(self.quantile(0.25, [], after), 0.05)
        before = [[0.1, 10], [0.2, 10], [0.4, 10], [None, 10]]  # then all of the gain lies in (0.1, 0.2]
        self.assertAlmostEqual(self.quantile(0.5, before, after), 0.15)
        self.assertIsNone(self.quantile(0.5, after, after))
        self.assertIsNone(self.quantile(0.5, [], []))
        self.assertEqual(self.quantile(0.99, [], [[0.1, 1], [None, 5]]), 0.1)

    def test_rates_gaps_and_restarts(self):
        rates = self.call("""
            const history = new MetricHistory();
            return argument.map(([time, value]) => {
              history.add(time, parsePrometheus(`c ${value}`));
              return history.rate("c");
            });""", [[0, 100], [1, 110], [2, 150], [7, 200], [8, 5], [9, 6]])
        self.assertEqual(rates, [None, 10, 40, 10, None, 1])
        kept = self.call("""
            const history = new MetricHistory();
            for (let i = 0; i < 1000; ++i) history.add(i, parsePrometheus(`c ${i}`));
            return [history.gain("c", 60), history.gain("c", 1e9)];""")
        self.assertEqual(kept, [{"by": 60, "seconds": 60}, {"by": 125, "seconds": 125}])


class Formats(PartsTest):
    def test_numbers(self):
        for function, cases in {
            "shortNumber": {0: "0", 0.01234: "0.0123", 4.5678: "4.57", 78.94: "78.9", 1234.4: "1,234",
                            9999: "9,999", 12345: "12.3 k", 1e6: "1 M", 7340032: "7.34 M", 2.5e9: "2.5 G"},
            "shortTime": {0: "0 s", 2e-6: "2 \u00b5s", 0.0123: "12.3 ms", 1.5: "1.5 s", 75: "75 s"},
            "percent": {0: "0 %", 1: "100 %", 0.5: "50 %", 0.1234: "12.3 %", 0.01234: "1.2 %", 0.00001: "<0.01 %"},
            "bytes": {512: "512 bytes", 4096: "4 KiB", 1572864: "1.5 MiB"},
            "roundUp": {0: 1, 0.03: 0.05, 1: 1, 1.01: 2, 3: 5, 7: 10, 110: 200, 1000: 1000},
        }.items():
            for value, text in cases.items():
                with self.subTest(function, value=value):
                    found = self.call(f"return {function}(argument)", value)
                    if isinstance(text, str):
                        self.assertEqual(found, text)
                    else:
                        self.assertTrue(math.isclose(found, text), found)

    def test_alternatives_hold_the_token_drawn(self):
        token = {"text": "z", "logprob": -9, "tops": [{"text": t, "logprob": -i} for i, t in enumerate("fabcde")]}
        rows = self.call("return alternatives(argument)", token)
        self.assertEqual([row["text"] for row in rows], ["f", "a", "b", "c", "d", "z"])
        self.assertEqual([row["drawn"] for row in rows], [False] * 5 + [True])
        token["text"] = "b"
        rows = self.call("return alternatives(argument)", token)
        self.assertEqual([row["text"] for row in rows if row["drawn"]], ["b"])
        self.assertEqual(len(rows), 5)
