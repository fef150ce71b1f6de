#!/usr/bin/env python3
"""Tables and a roofline of what peers.py and `asynct bench kernels --json` measured.

    python3 bench/kernels/report.py FILE.json... [--output bench/results/kernels_h200]

Writes OUTPUT.md and OUTPUT.png. Of candidates that differ in a setting only ("FA-3 paged, 4 splits") the fastest in
bursts is shown. The files' own ceilings are the roofs: the first that has one counts.
"""

import argparse
import dataclasses
import json
import pathlib
import re

from names import BASELINES, OURS, READ, family, is_ours

REGIMES = ("bursts", "sustained")
MOST_COLUMNS = 8
UNITS = {"decode": "us", "mixed": "us", "linear": "us", "prefill": "TFLOP/s"}
TITLES = {
    "decode": "Decode, one token, paged (16)",
    "prefill": "Prefill, causal",
    "mixed": "Mixed batch: chunks of prefill (count, rows, keys) and decodes (count, keys)",
    "linear": "Products with weights (rows, outputs, inputs)",
}

OTHERS = {
    "best peer": lambda name: not name.startswith((OURS, "read")) and not re.search("part|program", name),
    "best baseline": lambda name: name in BASELINES,
}


@dataclasses.dataclass
class Entry:
    kind: str
    shape: str
    name: str
    floor: dict  # bytes, flops
    regimes: dict  # bursts, sustained: seconds, p10, p90, sm_mhz, watts

    def seconds(self, regime="bursts"):
        return self.regimes[regime]["seconds"] if regime in self.regimes else None

    def rate(self, regime="bursts"):
        return self.floor["flops"] / self.seconds(regime)


def entries_of(report: dict):
    """Of either program's file."""
    for group in report.get("groups", []):
        for name, result in group.get("results", {}).items():
            if "bursts" in result:
                regimes = {regime: result[regime] for regime in REGIMES if regime in result}
                shape = ", ".join(map(str, group["shape"]))
                yield Entry(group["kind"], shape, name, result["floor"], regimes)
    for result in report.get("results", []):
        if "bursts" in result:
            regimes = {regime: result[regime] for regime in REGIMES if regime in result}
            floor = {"bytes": result["floor_bytes"], "flops": result["floor_flops"]}
            variant = result["variant"]
            foreign = variant.startswith(("read", "cuBLAS"))
            name = f"{variant} (program)" if foreign else f"{OURS}, {variant} (program)"
            yield Entry(result["kernel"], result["shape"].replace(",", ", "), name, floor, regimes)


def fastest(entries) -> list[Entry]:
    """One of each kind, shape and family; its name is the family's."""
    best = {}
    for entry in entries:
        key = (entry.kind, entry.shape, family(entry.name))
        if key not in best or entry.seconds() < best[key].seconds():
            best[key] = entry
    return [dataclasses.replace(entry, name=key[2]) for key, entry in best.items()]


def unique(values) -> list:
    return list(dict.fromkeys(values))


def cell(entry: Entry | None, regime: str, unit: str, read_seconds: float | None) -> str:
    if entry is None or entry.seconds(regime) is None:
        return "-"
    timing = entry.regimes[regime]
    if unit == "TFLOP/s":
        low, high = (entry.floor["flops"] / timing[at] / 1e12 for at in ("p90", "p10"))
        text = f"{entry.rate(regime) / 1e12:.0f} [{low:.0f}, {high:.0f}]"
        return text + (f" @{timing['sm_mhz']:.0f}" if timing.get("sm_mhz") else "")
    text = f"{timing['seconds'] * 1e6:.1f} [{timing['p10'] * 1e6:.1f}, {timing['p90'] * 1e6:.1f}]"
    return text + (f" {read_seconds / timing['seconds']:.2f}" if read_seconds else "")


def table(rows: list[list[str]]) -> str:
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body]) + "\n"


def ratio_row(label: str, is_other, found: dict, names: list, shapes: list, regime: str) -> list[str]:
    """Our best time's advantage over the best of others of one sort."""

    def best(shape, wanted):
        seconds = [found[n, shape].seconds(regime) for n in names if (n, shape) in found and wanted(n)]
        return min((s for s in seconds if s is not None), default=None)

    cells = []
    for shape in shapes:
        # Data that makes less work, parts, and other processes have their own rows.
        ours = best(shape, lambda n: is_ours(n) and not re.search(r"density|0\.30|part|program", n))
        other = best(shape, is_other)
        cells.append(f"{other / ours:.2f}" if ours and other else "-")
    return [f"**{label}'s time / ours**", *cells]


def section(kind: str, entries: list[Entry]) -> str:
    unit = UNITS.get(kind, "us")
    shapes, names = unique(e.shape for e in entries), unique(e.name for e in entries)
    names.sort(key=lambda n: (not n.startswith("read"), not is_ours(n), n not in BASELINES))
    found = {(e.name, e.shape): e for e in entries}
    text = f"## {TITLES.get(kind, kind)}\n\n"
    for regime in REGIMES:
        rows = [[f"{regime}: {unit} [p10, p90]" + (", part of the read rate" if kind == "decode" else ""), *shapes]]
        for name in names:
            cells = []
            for shape in shapes:
                read = found.get((READ, shape))
                in_reads = read.seconds(regime) if read and kind == "decode" else None
                cells.append(cell(found.get((name, shape)), regime, unit, in_reads))
            if any(c != "-" for c in cells):
                rows.append([name, *cells])
        for label, is_other in OTHERS.items():
            ratios = ratio_row(label, is_other, found, names, shapes, regime)
            if any(c != "-" for c in ratios[1:]):
                rows.append(ratios)
        if len(rows) > 1:
            # A screen is not wide enough for many shapes: they go down then.
            text += table(rows if len(shapes) <= MOST_COLUMNS else [list(column) for column in zip(*rows)]) + "\n"
    return text


def ceilings_of(reports: list[dict]) -> dict:
    merged = {}
    for report in reports:
        for name, value in report.get("ceilings", {}).items():
            if value:
                merged.setdefault(name, value)
    return merged


def heading(reports: list[dict], ceilings: dict) -> str:
    device = next(report["device"] for report in reports if report.get("device"))
    versions = next((report["versions"] for report in reports if report.get("versions")), {})
    text = f"# {device['name']}: kernels and peers\n\n"
    if versions:
        text += ", ".join(f"{name} {value}" for name, value in versions.items()) + "\n\n"
    labels = {
        "read_bytes_per_second": ("read", 1e12, "TB/s"),
        "copy_bytes_per_second": ("copy", 1e12, "TB/s"),
        "product_flops_per_second": ("bf16 product", 1e12, "TFLOP/s"),
        "product_sustained_flops_per_second": ("sustained", 1e12, "TFLOP/s"),
        "launch_seconds": ("smallest kernel", 1e-6, "us"),
    }
    known = [f"{label} {ceilings[key] / scale:.4g} {unit}" for key, (label, scale, unit) in labels.items() if key in ceilings]
    return text + ", ".join(known) + ".\n\n" + "Shapes: B, T, H, Hk, D. Bursts: an idle gap before each; sustained: alone, without a pause.\n\n"


@dataclasses.dataclass
class Style:
    label: str
    colour: str
    marker: str
    shift: float = 1  # sideways, so that points of one shape do not hide each other


def style(name: str) -> Style:
    if name in BASELINES:
        return Style("baselines", "0.5", "v", 1.2)
    if name.startswith(OURS):
        return Style(OURS, "tab:red", "o")
    for start, colour, marker, shift in (("FA-3", "tab:blue", "s", 1.1), ("FA-2", "tab:cyan", "s", 1.1),
                                         ("cuDNN", "tab:green", "^", 0.9), ("cuBLAS", "tab:orange", "D", 1)):  # fmt: skip
        if name.startswith(start):
            return Style(start, colour, marker, shift)
    return Style("others", "tab:purple", "x")


def roofline(entries: list[Entry], ceilings: dict, device: str, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points = [e for e in entries if e.floor["flops"] > 0]
    if not points:
        return
    figure, axes = plt.subplots(figsize=(11, 7))
    intensities = [e.floor["flops"] / e.floor["bytes"] for e in points]
    left, right = min(intensities) / 2, max(intensities) * 2
    read, product = ceilings.get("read_bytes_per_second"), ceilings.get("product_flops_per_second")
    sustained = ceilings.get("product_sustained_flops_per_second")
    if read and product:
        knee = product / read
        axes.plot([left, knee, max(right, knee)], [read * left / 1e12, product / 1e12, product / 1e12], "k-", lw=1.2,
                  label=f"read {read / 1e12:.2f} TB/s, product {product / 1e12:.0f} TFLOP/s")  # fmt: skip
    if sustained:
        axes.axhline(sustained / 1e12, color="k", ls=":", lw=1, label=f"product, sustained: {sustained / 1e12:.0f}")
    seen = set()
    for entry in points:
        look = style(entry.name)
        axes.plot(look.shift * entry.floor["flops"] / entry.floor["bytes"], entry.rate() / 1e12, look.marker, color=look.colour,
                  ms=6, alpha=0.7, label=None if look.label in seen else look.label)  # fmt: skip
        seen.add(look.label)
    for kind in unique(e.kind for e in points):
        last = max((e for e in points if e.kind == kind), key=lambda e: (e.rate(), e.floor["flops"]))
        axes.annotate(kind, (last.floor["flops"] / last.floor["bytes"], last.rate() / 1e12), (0, 9), ha="center", fontsize=8,
                      textcoords="offset points")  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="FLOP a byte that must be moved", ylabel="TFLOP/s in bursts",
             title=f"{device}: each kernel and shape")  # fmt: skip
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("bench/results/kernels_h200"))
    arguments = parser.parse_args()
    reports = [json.loads(path.read_text()) for path in arguments.files]
    ceilings = ceilings_of(reports)
    entries = fastest(entry for report in reports for entry in entries_of(report))
    text = heading(reports, ceilings)
    for kind in unique(e.kind for e in entries):
        text += section(kind, [e for e in entries if e.kind == kind])
    arguments.output.with_suffix(".md").write_text(text.rstrip() + "\n")
    roofline(entries, ceilings, reports[0]["device"]["name"], arguments.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
