"""asynct bench serve against a small server, and what plot.py makes of its files."""

import http.server
import importlib.util
import json
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

from command import BINARY, MODEL, ROOT, CommandTest, require_binary

SCREEN_LINES, SCREEN_COLUMNS = 40, 100
PLOT = ROOT / "bench" / "serve" / "plot.py"
LATENCY_KEYS = ["count", "mean", "p50", "p90", "p99", "max"]

setUpModule = require_binary


class Handler(http.server.BaseHTTPRequestHandler):
    """Streams max_tokens chunks, `delay` seconds apart."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def respond(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/v1/models":
            self.respond(200, {"data": [{"id": "fake"}]})
        elif self.path == "/tokenizer_info" and self.server.vocabulary:
            self.respond(200, {"vocab_size": self.server.vocabulary})
        elif self.path == "/health":
            self.respond(200, {})
        else:
            self.respond(404, {"error": {"message": "no such path"}})

    def event(self, data):
        data = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.seen.append((self.path, request, dict(self.headers)))
            number = len(self.server.seen)
        if self.server.fail_every and number % self.server.fail_every == 0:
            return self.respond(503, {"error": {"message": "busy\x1b[2J"}})
        prompt = request.get("prompt", [])
        usage = {"prompt_tokens": len(prompt), "completion_tokens": request["max_tokens"]}
        if not request["stream"]:
            return self.respond(200, {"choices": [{"text": "a"}], "usage": usage})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for _ in range(request["max_tokens"]):
                time.sleep(self.server.delay)
                choice = {"delta": {"content": "a"}} if "messages" in request else {"text": "a"}
                self.event(json.dumps({"choices": [choice]}))
            self.event(json.dumps({"choices": [], "usage": usage}))
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            with self.server.lock:
                self.server.disconnects += 1
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.seen, self.disconnects = [], 0
        self.vocabulary, self.delay, self.fail_every = 100, 0.0, 0

    def handle_error(self, *_):
        pass


class BenchServeTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.server = Server()
        thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def report(self, *args):
        result = self.succeeds("bench", "serve", self.url, "--json", *args)
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)


class Help(CommandTest):
    def test_fits_a_screen_and_states_defaults(self):
        result = self.succeeds("bench", "serve", "--help")
        self.assertEqual(result.stderr, "")
        lines = result.stdout.splitlines()
        self.assertLessEqual(len(lines), SCREEN_LINES)
        self.assertLessEqual(max(map(len, lines)), SCREEN_COLUMNS)
        text = re.sub(r"\n {20,}", " ", result.stdout)
        options = re.findall(r"(?m)^  (--[a-z-]+) (?=TEXT|INT|UINT|FLOAT)(.*)$", text)
        self.assertGreater(len(options), 15)
        for name, rest in options:
            self.assertRegex(rest, "=|default", name)

    def test_bench_names_it(self):
        self.assertRegex(self.succeeds("bench", "--help").stdout, r"(?m)^  serve ")


class Arguments(CommandTest):
    def fails_with(self, *args, naming):
        self.fails_silently_on_stdout("bench", "serve", *args, naming=naming)

    def test_are_checked_before_anything_is_sent(self):
        url = "http://127.0.0.1:1"
        self.fails_with(naming="URL is required")
        self.fails_with("127.0.0.1:1", naming=["127.0.0.1:1", "http://HOST"])
        self.fails_with("https://127.0.0.1", naming="https is not supported")
        self.fails_with(url, "--frob", naming="--frob")
        self.fails_with(url, "--prompt-tokens", "9..1", naming=["--prompt-tokens", "9..1"])
        self.fails_with(url, "--output-tokens", "0", naming=["--output-tokens", '"0"'])
        self.fails_with(url, "--rate", "0", naming=["--rate", '"0"'])
        self.fails_with(url, "--rate", "1", "--concurrency", "2", naming=["--rate", "--concurrency"])
        self.fails_with(url, "--rate", "inf", "--duration", "1", naming=["--rate inf", "--requests"])
        self.fails_with(url, "--requests", "0", naming="--requests")
        self.fails_with(url, "--cancel-share", "2", naming="--cancel-share")
        self.fails_with(url, "--goodput", "speed:1", naming=["--goodput", "speed:1"])
        self.fails_with(url, "--endpoint", "embeddings", naming=["--endpoint", "embeddings"])
        self.fails_with(url, "--api-key", "a\nb", naming="--api-key")
        self.fails_with(url, "--model", "", naming="--model")
        self.fails_with(url, "--prompts", self.directory / "none", naming=["--prompts", "none"])
        self.fails_with(url, "--output", self.directory / "no" / "file", naming=["no/file"])

    def test_a_model_directory_is_not_for_it(self):
        self.fails_silently_on_stdout("bench", MODEL, "serve", "http://127.0.0.1:1", naming="MODEL")

    def test_no_server(self):
        self.fails_with("http://127.0.0.1:1", naming=["/v1/models", "refused"])
        result = self.fails("bench", "serve", "http://127.0.0.1:1", "--model", "m", "--vocab-size", "9", "--requests", "3",
                            naming="3 of 3 requests failed")
        self.assertIn("3 x connection_refused", result.stdout)

    def test_prompts_file_is_named_with_its_line(self):
        file = self.directory / "prompts.jsonl"
        file.write_text('"good"\n{"prompt": 3}\n')
        self.fails_with("http://127.0.0.1:1", "--prompts", file, naming=[f"{file}, line 2"])


class Runs(BenchServeTest):
    def test_table(self):
        result = self.succeeds("bench", "serve", self.url, "--requests", "5", "--output-tokens", "3", "--health")
        self.assertEqual(result.stderr, "")
        self.assertIn("5 completed, 0 failed", result.stdout)
        self.assertIn("15 out", result.stdout)
        for row in ("time to first token", "time per output token", "inter-token", "end-to-end", "GET /health"):
            self.assertRegex(result.stdout, rf"(?m)^{row}.*( +\d+\.\d\d){{5}}$")
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), SCREEN_COLUMNS)

    def test_json_measures(self):
        self.server.delay = 0.02
        report = self.report("--requests", "6", "--concurrency", "3", "--prompt-tokens", "7", "--output-tokens", "5",
                             "--goodput", "ttft:10000,tpot:10000")
        self.assertEqual((report["completed"], report["failed"], report["errors"]), (6, 0, {}))
        self.assertEqual((report["total_input_tokens"], report["total_output_tokens"]), (42, 30))
        for key, count, least in (("ttft_ms", 6, 19), ("tpot_ms", 6, 0.0), ("itl_ms", 24, 0.0), ("e2el_ms", 6, 95)):
            self.assertEqual(list(report[key]), LATENCY_KEYS)
            self.assertEqual(report[key]["count"], count)
            self.assertGreaterEqual(report[key]["p50"], least)
            self.assertLessEqual(report[key]["p50"], report[key]["p99"])
            self.assertLessEqual(report[key]["p99"], report[key]["max"])
        self.assertAlmostEqual(report["output_throughput"], 30 / report["duration"])
        self.assertAlmostEqual(report["request_goodput"], report["request_throughput"])
        self.assertGreaterEqual(report["duration"], 0.19)  # two rounds of five tokens

    def test_requests_are_what_was_asked_for(self):
        self.report("--requests", "8", "--prompt-tokens", "4..6", "--output-tokens", "2", "--shared-prefix", "10",
                    "--prefixes", "2", "--api-key", "secret", "--temperature", "0.5", "--no-ignore-eos")
        self.assertEqual(len(self.server.seen), 8)
        prefixes = set()
        for path, request, headers in self.server.seen:
            self.assertEqual(path, "/v1/completions")
            self.assertEqual(headers["Authorization"], "Bearer secret")
            self.assertEqual((request["model"], request["temperature"], request["max_tokens"]), ("fake", 0.5, 2))
            self.assertNotIn("ignore_eos", request)
            self.assertIn(len(request["prompt"]), (14, 15, 16))
            self.assertTrue(all(0 <= token < 100 for token in request["prompt"]))
            prefixes.add(tuple(request["prompt"][:10]))
        self.assertEqual(len(prefixes), 2)

    def test_a_seed_repeats_its_prompts(self):
        def prompts(seed):
            self.server.seen.clear()
            self.report("--requests", "4", "--concurrency", "1", "--seed", seed)
            return [request["prompt"] for _, request, _ in self.server.seen]

        first = prompts(1)
        self.assertEqual(prompts(1), first)
        self.assertNotEqual(prompts(2), first)

    def test_chat_and_prompts_file(self):
        file = self.directory / "prompts.jsonl"
        file.write_text('"one"\n{"messages": [{"role": "user", "content": "two"}], "max_tokens": 2}\n')
        report = self.report("--endpoint", "chat", "--prompts", file, "--requests", "4", "--output-tokens", "3",
                             "--concurrency", "1")
        self.assertEqual(report["total_output_tokens"], 10)
        contents = [request["messages"][0]["content"] for _, request, _ in self.server.seen]
        self.assertEqual(contents, ["one", "two"] * 2)

    def test_words_without_a_vocabulary(self):
        self.server.vocabulary = 0
        report = self.report("--requests", "2", "--prompt-tokens", "5")
        self.assertIsNone(report["vocabulary"])
        for _, request, _ in self.server.seen:
            self.assertEqual(len(request["prompt"].split()), 5)

    def test_without_stream(self):
        report = self.report("--requests", "3", "--no-stream")
        self.assertIsNone(report["ttft_ms"])
        self.assertEqual(report["e2el_ms"]["count"], 3)
        self.assertNotIn("stream_options", self.server.seen[0][1])

    def test_open_loop(self):
        report = self.report("--requests", "10", "--rate", "200", "--output-tokens", "2")
        self.assertEqual((report["completed"], report["request_rate"], report["concurrency"]), (10, 200, None))
        self.assertEqual(self.report("--requests", "10", "--rate", "inf")["request_rate"], "inf")

    def test_duration(self):
        report = self.report("--duration", "0.5", "--concurrency", "2", "--output-tokens", "1")
        self.assertGreaterEqual(report["completed"], 2)
        self.assertLess(report["duration"], 10)

    def test_failures(self):
        self.server.fail_every = 3
        output = self.directory / "run.json"
        result = self.fails("bench", "serve", self.url, "--requests", "9", "--output", output,
                            naming="3 of 9 requests failed")
        self.assertIn("6 completed, 3 failed", result.stdout)
        self.assertIn("3 x http_503: busy [2J", result.stdout)  # nothing that a terminal obeys
        self.assertEqual(json.loads(output.read_text())["requests"]["error"].count("http"), 3)

    def test_cancelled_requests_are_no_failures(self):
        self.server.delay = 0.01
        report = self.report("--requests", "20", "--output-tokens", "20", "--cancel-share", "0.5")
        self.assertGreater(report["cancelled"], 2)
        self.assertEqual(report["cancelled"] + report["completed"], 20)
        deadline = time.monotonic() + 10
        while self.server.disconnects == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertGreater(self.server.disconnects, 0)

    def test_timeout(self):
        self.server.delay = 5
        result = self.fails("bench", "serve", self.url, "--requests", "2", "--timeout", "0.2", "--json")
        self.assertEqual(json.loads(result.stdout)["errors"]["timeout"]["count"], 2)

    def test_interrupt_reports_what_is_there(self):
        self.server.delay = 0.01
        output = self.directory / "run.json"
        command = [BINARY, "bench", "serve", self.url, "--requests", "100000", "--output-tokens", "5", "--json",
                   "--output", str(output)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while len(self.server.seen) < 40 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
        self.assertEqual((process.returncode, stderr), (130, ""))
        report = json.loads(stdout)
        self.assertTrue(report["interrupted"])
        self.assertGreater(report["completed"], 10)
        self.assertEqual(report["failed"], 0)
        self.assertEqual(json.loads(output.read_text())["completed"], report["completed"])


class RealServer(CommandTest):
    """Beside `asynct serve`: every count agrees, and leaving clients harm nobody."""

    def test_load(self):
        command = [BINARY, "serve", str(MODEL), "--port", "0", "--threads", "1", "--no-access-log"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
        self.addCleanup(process.communicate)
        self.addCleanup(process.terminate)
        url = process.stdout.readline().removeprefix("ready: ").strip()
        load = ("bench", "serve", url, "--json", "--health", "--requests", "40", "--prompt-tokens", "5..40",
                "--output-tokens", "1..20", "--shared-prefix", "20")
        for mode in ((), ("--no-stream",), ("--rate", "100"), ("--cancel-share", "0.5")):
            with self.subTest(mode):
                report = json.loads(self.succeeds(*load, *mode).stdout)
                self.assertEqual(report["completed"] + report["cancelled"], 40)
                self.assertEqual(report["vocabulary"], 4096)
                self.assertGreaterEqual(report["health"]["latency_ms"]["count"], 1)
                if mode != ("--cancel-share", "0.5"):
                    self.assertEqual(report["cancelled"], 0)
                    self.assertGreater(report["total_output_tokens"], 40)


class Plot(BenchServeTest):
    def plot(self, *args):
        command = [sys.executable, str(PLOT), *map(str, args)]
        return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120)

    def runs(self):
        files = []
        for concurrency in (1, 4):
            files.append(self.directory / f"{concurrency}.json")
            self.report("--requests", "4", "--concurrency", concurrency, "--output", files[-1])
        return files

    def test_output_files_have_each_request(self):
        report = json.loads(self.runs()[0].read_text())
        self.assertEqual({len(values) for values in report["requests"].values()}, {4})
        self.assertEqual(report["requests"]["error"], [None] * 4)
        self.assertEqual(report["requests"]["output_tokens"], [64] * 4)

    def test_series(self):
        spec = importlib.util.spec_from_file_location("plot", PLOT)
        plot = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plot)
        axis, series = plot.read_series(reversed(self.runs()))
        self.assertEqual(axis, "concurrency")
        ((name, runs),) = series.items()
        self.assertEqual(name, (self.url, "fake"))
        self.assertEqual([run["x"] for run in runs], [1, 4])
        self.assertEqual(plot.points(runs, "ttft_ms", "p50")[0], [1, 4])

    def test_bad_files_are_named(self):
        bad = self.directory / "bad.json"
        for content in ("", "{", "[]", "{}", '{"output_throughput": "1"}'):
            bad.write_text(content)
            result = self.plot(bad, "--output", self.directory / "a.png")
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, r"\Aplot.py: [^\n]*bad.json: [^\n]+\n\Z")

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "needs matplotlib")
    def test_png(self):
        output = self.directory / "serve.png"
        result = self.plot(*self.runs(), "--output", output)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(output.read_bytes().startswith(b"\x89PNG"))


if __name__ == "__main__":
    unittest.main()
