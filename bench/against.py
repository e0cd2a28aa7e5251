"""Another checkout of Drumline as a contestant (`--against`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.catalogue import AGAINST
from bench.figure import OTHER_CHECKOUT, OURS, Benchmark, Contestant

ROOT = Path(__file__).parents[1]
GIT = shutil.which("git") or "git"


@contextmanager
def checkout(path_or_revision: str) -> Iterator[Path]:
    """The folder of a checkout with an up-to-date .venv; a revision gets a worktree meanwhile."""
    if Path(path_or_revision).is_dir():
        folder = Path(path_or_revision).resolve()
        _install(folder)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bench-against-") as temporary:
        folder = Path(temporary) / "checkout"
        _git("worktree", "add", "--quiet", "--detach", str(folder), path_or_revision)
        try:
            _install(folder)
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(folder))


def with_checkout(benchmarks: list[Benchmark], folder: Path, quick: bool) -> list[Benchmark]:
    """The benchmarks, with the other checkout measured right after ours where it can be."""
    return [_with_other(benchmark, folder, quick) for benchmark in benchmarks]


def _with_other(benchmark: Benchmark, folder: Path, quick: bool) -> Benchmark:
    name = benchmark.figures[0].id
    ours, *rest = benchmark.contestants
    assert ours.name == OURS
    if name not in AGAINST:
        return benchmark
    other = Contestant(OTHER_CHECKOUT, ours.seconds + 2, lambda: _sample(folder, name, quick))
    return benchmark._replace(contestants=(ours, other, *rest))


def _sample(folder: Path, name: str, quick: bool) -> dict[str, float]:
    """One sample, taken by the other checkout's Python with our `bench` and `tests`."""
    with tempfile.TemporaryDirectory(prefix="bench-path-") as path:
        for package in ("bench", "tests"):
            (Path(path) / package).symlink_to(ROOT / package)
        done = subprocess.run(
            [folder / ".venv/bin/python", "-m", "bench.sample", name, *["--quick"] * quick],
            cwd=path,
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            check=True,
        )
    return msgspec.json.decode(done.stdout, type=dict[str, float])


def _install(folder: Path) -> None:
    subprocess.run(["/bin/bash", "-ec", "source bin/_venv run"], cwd=folder, check=True)


def _git(*arguments: str) -> None:
    subprocess.run([GIT, *arguments], cwd=ROOT, check=True)
