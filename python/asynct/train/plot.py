"""The loss curve as a PNG."""

import json
from pathlib import Path


def draw(runs: dict, path) -> None:
    """runs: label -> directory with history.json."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5))
    for label, directory in runs.items():
        data = json.loads((Path(directory) / "history.json").read_text())
        train, held = data["train"], data["held_out"]
        line = axes.plot([r["tokens"] / 1e6 for r in train], [r["loss"] for r in train], lw=0.6, label=f"{label}, train mix")
        for source, style in (("stories", "--"), ("science", ":")):
            points = [(r["tokens"] / 1e6, r[source]) for r in held if source in r]
            if points:
                axes.plot(*zip(*points), style, color=line[0].get_color(), label=f"{label}, held-out {source}")
    axes.set_xlabel("tokens (millions)")
    axes.set_ylabel("loss (nats a token)")
    axes.set_ylim(top=6)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)
