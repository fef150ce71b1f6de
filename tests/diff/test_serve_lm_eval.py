"""lm-evaluation-harness as a client of `asynct serve`: its scores are those of `asynct eval`.

lm-eval's `local-completions` runs unchanged, over HTTP, with its own tokenizer or the server's, with ids or texts,
one request or many at a time. Texts must be equal. Sums of log-probabilities may differ by what a decimal number of 9
digits loses of an fp32 one: the client adds decimal numbers.
"""

import json
import math
import pathlib
import shutil
import subprocess

import local_datasets
import pytest
from serving import ASYNCT, MODEL, ROOT, serving

local_datasets.install()

import lm_eval  # noqa: E402  (after install)
import lm_eval.tasks  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402

CLIENT_LENGTH = 2048  # the client's default; it sends one token less, and asks for one
LIMITS = {"arc_easy": 200, "gsm8k": 20, "wikitext": 5}

# task, requests at once, prompts a request, ids instead of texts, whose tokenizer. wikitext's windows may begin amid a
# character, so the client cannot send them as texts.
RUNS = [
    ("arc_easy", 1, 1, True, "remote"),
    ("arc_easy", 1, 16, False, "huggingface"),
    ("arc_easy", 8, 1, False, "remote"),
    ("arc_easy", 8, 16, True, "huggingface"),
    ("gsm8k", 1, 1, True, "remote"),
    ("gsm8k", 8, 1, True, "huggingface"),
    ("gsm8k", 8, 16, False, "remote"),
    ("wikitext", 1, 1, True, "huggingface"),
    ("wikitext", 8, 16, True, "remote"),
]


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Results and samples of `asynct eval`. Its windows on wikitext are as long as the client's: a token short of what
    the client keeps, which is a token short of its max_length."""
    short = tmp_path_factory.mktemp("short")
    shutil.copytree(MODEL, short, dirs_exist_ok=True)
    config = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CLIENT_LENGTH - 2}))
    models = {"arc_easy": MODEL, "gsm8k": MODEL, "wikitext": short}
    return {task: asynct_eval(task, models[task], tmp_path_factory.mktemp(task)) for task in LIMITS}


def asynct_eval(task, model, folder: pathlib.Path):
    command = [ASYNCT, "eval", model, "--tasks", task, "--limit", str(LIMITS[task]), "--data", ROOT / "data"]
    command += ["--threads", "2", "--output", folder / "out.json", "--log-samples", folder / "samples.jsonl"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    lines = (folder / "samples.jsonl").read_text(encoding="utf-8").split("\n")
    return json.loads((folder / "out.json").read_text())["results"][task], [json.loads(s) for s in lines if s]


@pytest.fixture(scope="module")
def task_manager():
    """Knows these tasks only: to read the list of all takes longer than to run them."""
    folder = pathlib.Path(lm_eval.tasks.__file__).parent
    paths = [str(folder / name) for name in ("arc", "gsm8k", "wikitext")]
    return lm_eval.tasks.TaskManager(include_path=paths, include_defaults=False)


def client_results(server, task_manager, task, concurrent, batch, tokenized, backend):
    name = MODEL if backend == "huggingface" else "asynct-tiny"
    client = LocalCompletionsAPI(
        model=name,
        base_url=server.url + "/v1/completions",
        tokenizer_backend=backend,
        num_concurrent=concurrent,
        batch_size=batch,
        tokenized_requests=tokenized,
        max_length=CLIENT_LENGTH,
        trust_remote_code=True,
        max_retries=1,
    )
    return lm_eval.simple_evaluate(
        model=client, tasks=[task], limit=LIMITS[task], log_samples=True, task_manager=task_manager
    )


def check_answer(where, found, wanted):
    """An answer as lm-eval logs it: a text, (sum, greedy), or a rolling sum; asynct's numbers are texts."""
    if isinstance(found, str):
        assert found == wanted, where
    elif isinstance(found, tuple):
        assert math.isclose(found[0], float(wanted[0]), rel_tol=1e-7), where
        assert str(found[1]) == wanted[1], where
    else:
        assert math.isclose(found, float(wanted), rel_tol=1e-7), where


def check_scores(found, wanted):
    for key, value in wanted.items():
        if "," not in key:
            continue
        if isinstance(value, float) and ("perplexity" in key or "bits_per_byte" in key):
            assert math.isclose(found[key], value, rel_tol=1e-6), key
        else:
            assert found[key] == value, key


@pytest.mark.parametrize(("task", "concurrent", "batch", "tokenized", "backend"), RUNS)
def test_scores_of_asynct_eval(server, expected, task_manager, task, concurrent, batch, tokenized, backend):
    server.reset_prefix_cache()
    before = server.metrics()
    results = client_results(server, task_manager, task, concurrent, batch, tokenized, backend)
    after = server.metrics()

    scores, samples = expected[task]
    check_scores(results["results"][task], scores)
    by_key = {(s["doc_id"], s["filter"]): s for s in samples}
    assert len(by_key) == len(results["samples"][task])
    for sample in results["samples"][task]:
        wanted = by_key[sample["doc_id"], sample["filter"]]
        assert sample["prompt_hash"] == wanted["prompt_hash"]
        for found, answer in zip(sample["resps"], wanted["resps"], strict=True):
            check_answer((task, sample["doc_id"], found, answer), found[0], answer[0])

    prompt_tokens, rows = (after[n] - before[n] for n in ("vllm:prompt_tokens_total", "asynct:rows_total"))
    assert prompt_tokens > 0
    if task == "arc_easy":
        # The context of one question is computed once, also when its answers start in the same step: it takes 41 %
        # with one request at a time as with 128.
        assert rows < 0.45 * prompt_tokens
