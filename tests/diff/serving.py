"""`asynct serve` on a free port, for tests by clients that others wrote.

    server = server_fixture("--max-sequences", "80")
    client = client_fixture(timeout=60)

or, for a part of a test, `with serving() as server`.

The server must end as it should: idle, with an empty KV cache, and by SIGTERM with status 0.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request

import openai
import pytest
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
ASYNCT = os.environ.get("ASYNCT", str(ROOT / "build/asynct"))
MODEL = os.environ.get("ASYNCT_MODEL", str(ROOT / "models/asynct-tiny"))
CHATML = ROOT / "tests/golden/chat_templates/chatml.jinja"
START_SECONDS = 60
STOP_SECONDS = 30


class Server:
    """A running server. `url` has no slash at its end."""

    def __init__(self, process, url):
        self.process = process
        self.url = url
        self.stopped = False

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        self.stopped = True
        self.process.send_signal(signal.SIGTERM)

    def wait_until_stopped(self):
        assert self.process.wait(STOP_SECONDS) == 0

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return answer.read().decode("utf-8")

    def metrics(self):
        """Values of /metrics by name; with labels other than the model's, by name and labels."""
        values = {}
        for line in self.get("/metrics").splitlines():
            found = re.fullmatch(r'([\w:]+)\{model_name="[^"]*",?([^}]*)\} (\S+)', line)
            if found:
                name, labels, value = found.groups()
                values[f"{name}{{{labels}}}" if labels else name] = float(value)
        return values

    def busy(self):
        """What is left of requests: empty when there is nothing."""
        metrics = self.metrics()
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        return {name: metrics[name] for name in names if metrics[name] != 0}

    def wait_until_idle(self, seconds):
        deadline = time.monotonic() + seconds
        while (left := self.busy()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not left, f"after {seconds} seconds: {left}"

    def reset_prefix_cache(self):
        self.wait_until_idle(10)
        request = urllib.request.Request(self.url + "/reset_prefix_cache", data=b"", method="POST")
        urllib.request.urlopen(request, timeout=30).close()


def wait_for_ready(process, log):
    """The line "ready: URL" of standard output."""
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    if not line.startswith("ready: http://"):
        process.kill()
        process.wait()
        log.seek(0)
        raise AssertionError(f"the server said {line!r}; its log: {log.read()[-2000:]}")
    return line.removeprefix("ready: ").strip()


@contextlib.contextmanager
def serving(*options, model=MODEL, keyed=False, kv_memory="256M"):
    """With `keyed` (an --api-key is among the options) /metrics cannot be asked at the end."""
    command = [ASYNCT, "serve", str(model), "--port", "0", "--threads", "2", "--kv-memory", kv_memory, *options]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            server = Server(process, wait_for_ready(process, log))
            yield server
            if not server.stopped:
                assert server.alive(), f"the server ended with {process.returncode}"
                if not keyed:
                    server.wait_until_idle(5)
                server.stop()
            server.wait_until_stopped()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def server_fixture(*options):
    """A server of a module's tests, with a chat template."""

    @pytest.fixture(scope="module")
    def server():
        with serving("--chat-template", str(CHATML), *options) as server:
            yield server

    return server


def client_fixture(timeout):
    """OpenAI's client of the module's `server`."""

    @pytest.fixture(scope="module")
    def client(server):
        with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=timeout) as client:
            yield client

    return client


def tokenizer_fixture():
    """Hugging Face's tokenizer of the checkpoint."""

    @pytest.fixture(scope="module")
    def tokenizer():
        return Tokenizer.from_file(f"{MODEL}/tokenizer.json")

    return tokenizer
