"""`drumline actor NAME`: run one of the processes in the foreground."""

from __future__ import annotations

import importlib
import os
import signal

import structlog

from drumline import config
from drumline.errors import DrumlineError, WrongUse
from drumline.telemetry import logs

MODULES = {
    "scanner": "actors.scanner",
    "dispatcher": "actors.dispatcher.dispatcher",
    "worker": "actors.worker.keeper",
    "ticker": "actors.ticker",
    "reaper": "actors.reaper",
    "gateway": "actors.gateway.gateway",
}


def main(name: str) -> None:
    """Run an actor. Workers are named worker-1, worker-2 …, the others after their kind."""
    kind = name.partition("-")[0]
    if kind not in MODULES:
        raise WrongUse(reason=f"there is no actor {name!r}; known: {', '.join(MODULES)}")
    settings = config.load()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process
    metrics_dir = settings.run_path / "metrics"
    metrics_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics_dir)  # read when metrics are imported
    logs.configure(name, settings.log_level)
    log = structlog.get_logger()
    actor = importlib.import_module(MODULES[kind])
    try:
        actor.run(settings, name) if kind == "worker" else actor.run(settings)
    except DrumlineError as error:
        log.error("Process failed", action="process_failed", error=str(error))
        raise SystemExit(error.exit_code) from None
