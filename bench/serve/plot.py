#!/usr/bin/env python3
"""Throughput and latency of `asynct bench serve` runs against concurrency or rate, as a PNG.

    python bench/serve/plot.py c1.json c8.json c64.json --output serve.png

Takes files that --output of `asynct bench serve` wrote. Runs of one URL and model make one line; runs with
--concurrency and runs with --rate cannot share a picture. Needs matplotlib (pip install matplotlib).
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

LATENCIES = (
    ("ttft_ms", "time to first token"),
    ("tpot_ms", "time per output token"),
    ("e2el_ms", "end-to-end latency"),
)
PERCENTILES = (("p50", "-"), ("p90", "--"), ("p99", ":"))
NUMBERS = ("output_throughput", "request_throughput", "completed")


class BadFile(Exception):
    pass


def read_run(path):
    """The report in a file, with "x": its concurrency or rate."""
    try:
        run = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}: {error}") from error
    if not isinstance(run, dict) or not all(isinstance(run.get(key), (int, float)) for key in NUMBERS):
        raise BadFile(f"{path}: not an --output file of asynct bench serve")
    run["axis"] = "concurrency" if run.get("request_rate") is None else "request_rate"
    run["x"] = run.get(run["axis"])
    if not isinstance(run["x"], (int, float)):
        raise BadFile(f"{path}: a run with {run['axis']} {run['x']} has no place on the axis")
    return run


def read_series(paths):
    """Axis name and {(url, model): runs in order of x}."""
    runs = [read_run(path) for path in paths]
    axes = {run["axis"] for run in runs}
    if len(axes) > 1:
        raise BadFile("some runs have --concurrency and some --rate; plot them apart")
    series = defaultdict(list)
    for run in sorted(runs, key=lambda run: run["x"]):
        series[run.get("url"), run.get("model")].append(run)
    return axes.pop(), dict(series)


def points(runs, key, percentile):
    """x and y of the runs that measured this latency."""
    measured = [(run["x"], run[key][percentile]) for run in runs if isinstance(run.get(key), dict)]
    return [x for x, _ in measured], [y for _, y in measured]


def label(name, series):
    """What tells this line from the others."""
    url, model = name
    parts = []
    if len({model for _, model in series}) > 1:
        parts.append(Path(str(model)).name)
    if len({url for url, _ in series}) > 1:
        parts.append(str(url))
    return ", ".join(parts)


def draw(axis, series, output):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
    across = "requests at once" if axis == "concurrency" else "requests a second offered"
    colors = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    for number, (name, runs) in enumerate(series.items()):
        color = colors[number % len(colors)]
        who = label(name, series)
        x = [run["x"] for run in runs]
        panels[0][0].plot(x, [run["output_throughput"] for run in runs], "o-", color=color, label=who or None)
        for panel, (key, _) in zip(panels.flat[1:], LATENCIES):
            for percentile, style in PERCENTILES:
                text = f"{who} {percentile}" if who else percentile
                panel.plot(*points(runs, key, percentile), style, marker="o", markersize=3, color=color, label=text)
    panels[0][0].set_title("output tokens a second")
    for panel, (_, title) in zip(panels.flat[1:], LATENCIES):
        panel.set_title(f"{title}, ms")
    for panel in panels.flat:
        panel.set_xlabel(across)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize="small")
    models = sorted({str(model) for _, model in series})
    figure.suptitle(", ".join(Path(model).name for model in models))
    figure.savefig(output, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN.json")
    parser.add_argument("--output", required=True, metavar="FILE.png")
    arguments = parser.parse_args()
    try:
        axis, series = read_series(arguments.runs)
        draw(axis, series, arguments.output)
    except BadFile as error:
        sys.exit(f"plot.py: {error}")
    except ImportError as error:
        sys.exit(f"plot.py: {error}; pip install matplotlib")
    except OSError as error:
        sys.exit(f"plot.py: {arguments.output}: {error}")


if __name__ == "__main__":
    main()
