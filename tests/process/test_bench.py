"""`bin/bench` from the command line to its JSON, with one figure that a test can afford."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_a_quick_run_measures_prints_and_writes(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    done = bench("P3", "--quick", "--no-peers", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "P3, round 1 of 1: ours; about" in done.stderr
    results = json.loads(file.read_text())
    assert [result["id"] for result in results] == ["P3", "P3b", "P3c"]
    assert all(result["id"] in done.stdout for result in results)
    assert 0 < results[0]["ours"] <= results[1]["ours"]


def test_an_unknown_figure_is_refused_with_the_known_ones() -> None:
    done = bench("P0")
    assert done.returncode == 2
    assert "unknown: P0; known: P1, P2" in done.stderr
