"""`bin/chaos`: runs a node under a workload and faults, and checks what happened."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from chaos import laws, mutations, plan, report
from chaos.faults import EXTRA_IMPORT, Injector, run_plan
from chaos.handlers import FOLDER_VARIABLE, TARGETS_VARIABLE
from chaos.history import History, Recorder
from chaos.observe import Observer
from chaos.proxy import Proxy
from chaos.workload import Receiver, Workload
from tests.mariadb import MariaDB
from tests.stack import Stack

DRAIN_SECONDS = 90.0
SETTINGS: dict[str, Any] = {
    "upkeep_interval": 1.0,
    "stall_rounds": 4,
    "drain_seconds": 4.0,
    "http_allow_loopback": "true",
}
"""Short intervals, so that a run of minutes meets what a node meets in days."""


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of workload and faults.")
@click.option(
    "--seconds", type=float, default=60.0, show_default=True, help="Length of the workload."
)
@click.option("--database", type=click.Choice(plan.DATABASES), default="sqlite", show_default=True)
@click.option(
    "--only", multiple=True, type=click.Choice(sorted(plan.KINDS)),
    help="Inject only faults of this kind; may be repeated.",
)  # fmt: skip
@click.option(
    "--mutate", type=click.Choice(sorted(mutations.MUTATIONS)),
    help="Weaken the node in this way; the checker must find it.",
)  # fmt: skip
@click.option("--workers", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Copy history and logs to this folder."
)
def main(
    seed: int,
    seconds: float,
    database: str,
    only: tuple[str, ...],
    mutate: str | None,
    workers: int,
    keep: Path | None,
) -> None:
    """Run a node under a mixed workload and planned faults, then check its history.

    Exits with 1 if a law was broken.
    """
    history = run(seed, seconds, database, only, workers, keep, mutate)
    violations = laws.check(history)
    words = [f"--seed {seed}", f"--seconds {seconds:g}", f"--database {database}"]
    words += [f"--only {kind}" for kind in only]
    words += [f"--mutate {mutate}"] if mutate is not None else []
    click.echo(report.page(history, violations, f"bin/chaos {' '.join(words)}"))
    sys.exit(1 if violations else 0)


def run(
    seed: int,
    seconds: float,
    database: str,
    only: tuple[str, ...] = (),
    workers: int = 3,
    keep: Path | None = None,
    mutation: str | None = None,
) -> History:
    """One run: workload and faults, then the recovery, then the snapshot."""
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        (folder / "targets").mkdir()
        recorder = Recorder(folder / "history")
        mariadb = cleanup.enter_context(_server()) if database == "mariadb" else None
        url = mariadb.create_database("chaos") if mariadb is not None else ""
        proxy = None if mariadb is None else Proxy(mariadb.port, seed)
        if proxy is not None:
            cleanup.callback(proxy.close)
        node_url = url if proxy is None else proxy.url(url)
        stack = Stack(
            node_url, workers=workers, imports=("chaos.handlers", EXTRA_IMPORT), **SETTINGS
        )
        stack.environment[FOLDER_VARIABLE] = str(folder / "history")
        stack.environment[TARGETS_VARIABLE] = str(folder / "targets")
        stack.environment["PYTHONPATH"] = root = str(Path(__file__).parents[1])
        if mutation is not None:
            stack.environment |= mutations.environment(mutation, root)
        cleanup.enter_context(stack)
        url = url or f"sqlite:///{stack.run_path / 'drumline.db'}"
        receiver = Receiver(recorder)
        cleanup.callback(receiver.close)
        endpoint = f"ipc://{stack.run_path / 'control.sock'}"
        workload = Workload(endpoint, recorder, seed, receiver.url)
        cleanup.callback(workload.client.close)
        injector = Injector(stack, recorder, seed, mariadb, url, workload, proxy)
        observer = Observer(stack, url, recorder, injector.unserved)
        cleanup.callback(observer.close)
        workload.prepare(seconds)
        _run_together(
            seconds,
            workload.run,
            observer.sample,
            lambda stop: run_plan(injector, plan.plan(seed, seconds, database, only), stop),
        )
        workload.end()
        _wait_until_finished(observer)
        observer.snapshot()
        if keep is not None:
            shutil.copytree(folder / "history", keep / "history")
            shutil.copytree(stack.run_path / "log", keep / "log")
        return History.read(folder / "history")


def _run_together(seconds: float, *parts: Callable[[threading.Event], None]) -> None:
    """Run the parts in threads for this long. A fault that has begun is waited for."""
    stop = threading.Event()
    threads = [threading.Thread(target=part, args=(stop,)) for part in parts]
    for thread in threads:
        thread.start()
    try:
        stop.wait(seconds)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _wait_until_finished(observer: Observer) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS
    while observer.unfinished() != 0 and time.monotonic() < deadline:
        time.sleep(0.5)


@contextmanager
def _server() -> Iterator[MariaDB]:
    server = MariaDB()
    server.start()
    try:
        yield server
    finally:
        server.close()


if __name__ == "__main__":
    main()
