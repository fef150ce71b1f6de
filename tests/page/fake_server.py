"""Stands in for `asynct serve`: sends the page and answers what it asks with made-up tokens and numbers.

    python3 tests/page/fake_server.py PAGE_DIR [--port 8080]

PAGE_DIR holds index.html and csp.txt as embed_page.cmake writes them. A prompt's first word may ask for trouble:
REFUSE (an error of 400), BREAK (an error amid the stream), CUT (the connection ends amid the stream).
"""

import argparse
import http.server
import json
import math
import pathlib
import random
import threading
import time

# A character in two tokens, markup, line breaks, quotes.
TEXT = [" there", " was", " a", " small", " fox", " who", " said", ":", " \"", "Hi", "\"", ",", " \ufffd", "\ufffd",
        " and", " ate", " <b", ">", "cake", "</b", ">", " <img", " src=x", " onerror=alert(1)>", ".", "\n\n"]
SHOWN = {12: "", 13: " \U0001f98a"}  # what the text gains with a token, where that is not the token
BOUNDS = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80]
MODEL_INFO = {
    "name": "models/fake-tiny", "architecture": "asynct", "attention": "asynci", "parameters": 7340032, "layers": 8,
    "heads": 4, "kv_heads": 2, "head_dim": 64, "hidden_size": 256, "intermediate_size": 768, "vocabulary": 4096,
    "max_length": 2048, "dtype": "bf16", "device": "cpu", "kernels": "avx512bf16", "threads": 4,
    "kv_bytes_per_token": 4096,
    "head_classes": [{"layer": i, "skip_safe": 3 - i % 3, "dead": i % 2, "dense": 1 + i % 3 - i % 2}
                     for i in range(8)],
    "zero_shares": [0.71, 0.8, 0.83, 0.9, 0.92, None, 0.88, 0.64],
}


def answer(count, seed=None):
    """Of each token: its text, what the answer's text gains, its log-probability, five alternatives."""
    rng = random.Random(seed)
    for i in range(count):
        at = i % len(TEXT)
        share = rng.uniform(0.02, 0.98)
        tops = {TEXT[at]: math.log(share)}
        for k, other in enumerate((" one", " the", " it", " that")):
            tops[other] = math.log((1 - share) / 2 ** (k + 1))
        yield TEXT[at], SHOWN.get(at, TEXT[at]), tops[TEXT[at]], tops


def text_of(count):
    return "".join(shown for _, shown, _, _ in answer(count))


class State:
    """What tests set and look at. Counters are under the lock."""

    def __init__(self, page_dir):
        page_dir = pathlib.Path(page_dir)
        self.page = (page_dir / "index.html").read_bytes()
        self.policy = (page_dir / "csp.txt").read_text().strip()
        self.lock = threading.Lock()
        self.api_key = None
        self.chat_template = "{{ messages }}"
        self.model_info = MODEL_INFO
        self.metrics_status = 200
        self.delay = 0.01  # seconds a token
        self.may_cut = threading.Event()  # when the page has shown what came before
        self.requests = []  # (path, headers, body)
        self.running = self.generated = self.prompted = self.queries = self.hits = self.broken = 0
        self.times = {"time_to_first_token": [], "inter_token_latency": []}

    def count(self, path):
        with self.lock:
            return sum(1 for found, _, _ in self.requests if found == path)

    def last_body(self):
        with self.lock:
            return next(json.loads(body) for _, _, body in reversed(self.requests) if body)

    def metrics(self):
        lines = []
        with self.lock:
            for name, value in (("num_requests_running", self.running), ("num_requests_waiting", 0),
                                ("kv_cache_usage_perc", min(1, 0.02 + 0.1 * self.running)),
                                ("prefix_cache_queries_total", self.queries),
                                ("prefix_cache_hits_total", self.hits), ("prompt_tokens_total", self.prompted),
                                ("generation_tokens_total", self.generated)):
                lines += [f"# HELP vllm:{name} text", f"# TYPE vllm:{name} gauge",
                          f'vllm:{name}{{model_name="fake \\"quoted\\""}} {value}']
            for name, times in self.times.items():
                name = f"vllm:{name}_seconds"
                for bound in BOUNDS + [math.inf]:
                    le = "+Inf" if bound == math.inf else f"{bound:g}"
                    below = sum(1 for seconds in times if seconds <= bound)
                    lines.append(f'{name}_bucket{{model_name="fake",le="{le}"}} {below}')
                lines.append(f'{name}_count{{model_name="fake"}} {len(times)}')
        return "\n".join(lines) + "\n"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, *_):
        pass

    def send(self, status, body, kind="application/json", headers=()):
        data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def fail(self, status, message):
        self.send(status, {"error": {"message": message, "type": "invalid_request_error", "param": None,
                                     "code": None}})

    def taken(self, body):
        """Writes the request down; False, and answered, without the key."""
        state = self.state
        with state.lock:
            state.requests.append((self.path, dict(self.headers), body))
        if state.api_key is None or self.path == "/" or self.headers["Authorization"] == f"Bearer {state.api_key}":
            return True
        self.fail(401, "Wrong or missing API key")
        return False

    def do_GET(self):
        state = self.state
        if not self.taken(None):
            return
        if self.path == "/":
            self.send(200, state.page, "text/html; charset=utf-8", [("Content-Security-Policy", state.policy)])
        elif self.path == "/metrics" and state.metrics_status == 200:
            self.send(200, state.metrics(), "text/plain; version=0.0.4; charset=utf-8")
        elif self.path == "/model_info" and state.model_info is not None:
            self.send(200, state.model_info)
        elif self.path == "/tokenizer_info":
            self.send(200, {"chat_template": state.chat_template, "eos_token": "<|endoftext|>"})
        else:
            self.fail(404, f"No such path: {self.path}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if not self.taken(body):
            return
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            self.fail(404, f"No such path: {self.path}")
            return
        request = json.loads(body)
        prompt = request["messages"][-1]["content"] if chat else request["prompt"]
        if prompt.startswith("REFUSE"):
            self.fail(400, "max_tokens: 5000, expected at most <b>2048</b>")
            return
        state = self.state
        with state.lock:
            words = len(prompt.split())
            state.running += 1
            state.prompted += words
            state.queries += words
            state.hits += words // 2
        try:
            self.stream(request, prompt, chat)
        except OSError:
            with state.lock:
                state.broken += 1
            self.close_connection = True
        finally:
            with state.lock:
                state.running -= 1

    def event(self, data):
        data = f"data: {data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)}\n\n".encode()
        # In two pieces, the first of which ends inside of the event's first character of several bytes.
        cut = next((i + 1 for i, byte in enumerate(data) if byte >= 0x80), len(data) // 2)
        for piece in (data[:cut], data[cut:]):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            if not data.isascii():
                time.sleep(0.005)  # or they arrive as one

    def stream(self, request, prompt, chat):
        state = self.state
        begin = time.monotonic()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if chat:
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None,
                                     "finish_reason": None}]})
        count = request["max_tokens"]
        stops = request.get("stop", [])
        for i, (token, shown, logprob, tops) in enumerate(answer(count, request.get("seed"))):
            time.sleep(state.delay)
            if i == 5 and prompt.startswith("BREAK"):
                self.event({"error": {"message": "the engine <i>failed</i>"}})
                break
            if i == 5 and prompt.startswith("CUT"):
                state.may_cut.wait(10)
                self.close_connection = True
                return
            with state.lock:
                state.generated += 1
                kind = "inter_token_latency" if i else "time_to_first_token"
                state.times[kind].append(time.monotonic() - begin if i == 0 else state.delay)
            stopped = next((stop for stop in stops if stop in shown), None)
            last = stopped is not None or i + 1 == count
            reason = ("stop" if stopped is not None else "length") if last else None
            self.event(self.chunk(request, chat, token, "" if stopped else shown, logprob, tops, reason, stopped))
            if last:
                if request.get("stream_options", {}).get("include_usage"):
                    self.event({"choices": [], "usage": {"prompt_tokens": len(prompt.split()),
                                                         "completion_tokens": i + 1}})
                break
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    @staticmethod
    def chunk(request, chat, token, shown, logprob, tops, reason, stopped):
        if chat:
            logprobs = {"content": [{"token": token, "logprob": logprob, "bytes": [], "top_logprobs": [
                {"token": text, "logprob": value} for text, value in tops.items()]}]}
            choice = {"index": 0, "delta": {"content": shown},
                      "logprobs": logprobs if request.get("logprobs") else None}
        else:
            logprobs = {"tokens": [token], "token_logprobs": [logprob], "top_logprobs": [tops], "text_offset": [0]}
            choice = {"index": 0, "text": shown, "logprobs": logprobs if "logprobs" in request else None}
        return {"choices": [{**choice, "finish_reason": reason, "stop_reason": stopped}]}


class FakeServer:
    def __init__(self, page_dir, port=0):
        self.state = State(page_dir)
        handler = type("BoundHandler", (Handler,), {"state": self.state})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page_dir")
    parser.add_argument("--port", type=int, default=8080)
    args = parser.parse_args()
    print(FakeServer(args.page_dir, args.port).url, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
