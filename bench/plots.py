"""Draws the plots of docs/benchmarks.md: `.venv-bench/bin/python -m bench.plots RESULTS FOLDER`.

It runs in the peers' virtual environment, which has matplotlib.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "drumline"  # equal results give equal files

from matplotlib import pyplot  # noqa: E402 (after the backend is chosen)

OURS, OTHERS, LIMIT = "#1f5fa8", "#9aa5b1", "#d9a441"


def main() -> None:
    results = {result["id"]: result for result in json.loads(Path(sys.argv[1]).read_text())}
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    if "P1" in results:
        bars(results["P1"], "Throughput, tasks/s (more is better)", folder / "throughput")
    if "P3" in results:
        bars(results["P3"], "Submit to start, median, ms (less is better)", folder / "latency")


def bars(result: dict[str, Any], title: str, file: Path) -> None:
    """One bar a contestant: its median, and a line from the lowest to the highest sample."""
    values = values_of(result)
    names = list(values)
    spreads = [result["spread"][key_of(name)] for name in names]
    low = [values[name] - spread[0] for name, spread in zip(names, spreads, strict=True)]
    high = [spread[1] - values[name] for name, spread in zip(names, spreads, strict=True)]
    figure, axes = pyplot.subplots(figsize=(7, 0.6 + 0.4 * len(names)), layout="constrained")
    axes.barh(names, list(values.values()), color=colours_of(names), xerr=[low, high], capsize=3)
    for position, name in enumerate(names):
        axes.annotate(
            f" {values[name]:,.3g}" if values[name] < 100 else f" {values[name]:,.0f}",
            (spreads[position][1], position),
            va="center",
        )
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(title, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(file.with_suffix(".png"), dpi=110)
    pyplot.close(figure)


def values_of(result: dict[str, Any]) -> dict[str, float]:
    values: dict[str, float] = {"Drumline": result["ours"]}
    if result["limit"] is not None:
        values["the limit"] = result["limit"]
    values.update(result["peers"])
    return values


def key_of(name: str) -> str:
    """The name under which a bar's contestant is in the results."""
    return {"Drumline": "ours", "the limit": "limit"}.get(name, name)


def colours_of(names: Sequence[str]) -> list[str]:
    return [{"Drumline": OURS, "the limit": LIMIT}.get(name, OTHERS) for name in names]


if __name__ == "__main__":
    main()
