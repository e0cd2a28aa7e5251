"""`bin/bench --docs`: writes the table and the plots of docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.peers.setup import ROOT, VENV
from bench.report import markdown_table, write_json
from bench.results import Result

PAGE = ROOT / "docs" / "benchmarks.md"
PLOTS = ROOT / "docs" / "benchmarks"
BEGIN, END = "<!-- begin of the results -->", "<!-- end of the results -->"
PLOT_TITLES = {"throughput": "Throughput", "latency": "Latency"}


def write_docs(results: Sequence[Result]) -> None:
    """Replace the results in the page, and draw the plots anew."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        write_json(results, file)
        subprocess.run(
            [VENV / "bin" / "python", "-m", "bench.plots", file, PLOTS], cwd=ROOT, check=True
        )
    PAGE.write_text(with_results(PAGE.read_text(), results_text(results)))


def with_results(page: str, text: str) -> str:
    """The page with this text between the marks."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def results_text(results: Sequence[Result]) -> str:
    """The machine, the plots and the table."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        f"Measured on {datetime.now(UTC):%Y-%m-%d} on {os.cpu_count()} cores of "
        f"{platform.machine()} with {memory:.0f} GB of memory, Python "
        f"{platform.python_version()}.\n",
        *(
            f"![{title}](benchmarks/{name}.svg)\n"
            for name, title in PLOT_TITLES.items()
            if (PLOTS / f"{name}.svg").exists()
        ),
        markdown_table(results),
    ]
    missed = [result.id for result in results if result.met is False]
    if missed:
        parts.append(f"Targets that are not met: {', '.join(missed)}.\n")
    return "\n".join(parts)
