"""The clients that README.md shows, as they stand there, on a running server."""

import json
import re
import shlex
import subprocess
import sys

from serving import ASYNCT, ROOT, serving

LM_EVAL = "import local_datasets; local_datasets.install(); from lm_eval.__main__ import cli_evaluate; cli_evaluate()"


def shown():
    block = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    return block[1].splitlines()


def run(command):
    return subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=300,
                          env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "tests/diff"), "HF_HUB_OFFLINE": "1"})


def test_the_clients_of_the_readme():
    client, evaluation = shown()
    python = shlex.quote(sys.executable)
    with serving("--served-model-name", "models/asynct-tiny") as server:
        answer = run(client.replace("http://127.0.0.1:8000", server.url).replace("python3", python, 1))
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.startswith(" there was"), answer.stdout
        # Its data sets come from data/, not from the hub.
        evaluation = evaluation.replace("http://127.0.0.1:8000", server.url)
        table = run(evaluation.replace("lm_eval", f"{python} -c {shlex.quote(LM_EVAL)}", 1))
        assert table.returncode == 0, table.stderr[-2000:]
        expected = run(f"{ASYNCT} eval models/asynct-tiny --tasks arc_easy --limit 100 --json")
        scores = json.loads(expected.stdout)["results"]["arc_easy"]
        for metric in ("acc", "acc_norm"):
            shown_score = re.search(rf"\|{metric}\s*\|[^|]*\|\s*([0-9.]+)\|", table.stdout)
            assert float(shown_score[1]) == round(scores[f"{metric},none"], 4), table.stdout
        assert "<title>" in server.get("/")
