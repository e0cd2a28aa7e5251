"""The peers: which module of `bench.peers.apps` each has, its server, and its worker commands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from bench.peers import services

APPS = "bench.peers.apps"


class PeerSystem(NamedTuple):
    """One task queue with its server."""

    name: str
    app: str
    server: str
    """The program that must be installed."""
    service: Callable[[], AbstractContextManager[str]]
    commands: Callable[[int], list[list[str]]]
    """The worker commands for this number of worker processes."""
    seconds: float
    """Expected duration of 10,000 tasks."""


def _celery(workers: int) -> list[list[str]]:
    return [
        [
            *("celery", "-A", f"{APPS}.celery_app", "worker", "--pool", "prefork"),
            *("--concurrency", str(workers), "--loglevel", "ERROR"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]
    ]


def _dramatiq(workers: int) -> list[list[str]]:
    return [["dramatiq", f"{APPS}.dramatiq_app", "--processes", str(workers), "--threads", "8"]]


def _huey(workers: int) -> list[list[str]]:
    return [
        ["huey_consumer", f"{APPS}.huey_app.huey", "-w", str(workers), "-k", "process", "--quiet"]
    ]


def _arq(workers: int) -> list[list[str]]:
    return [["arq", f"{APPS}.arq_app.WorkerSettings"]] * workers


def _rq(workers: int) -> list[list[str]]:
    worker = ["rq", "worker", "-w", "rq.worker.SimpleWorker", "--quiet", "-u", "{url}", "default"]
    return [worker] * workers


def _procrastinate(workers: int) -> list[list[str]]:
    app = f"--app={APPS}.procrastinate_app.app"
    return [["procrastinate", app, "worker", "--concurrency", "10"]] * workers


PEERS = (
    PeerSystem("Celery + Redis", "celery_app", "redis-server", services.redis, _celery, 60),
    PeerSystem("Dramatiq + Redis", "dramatiq_app", "redis-server", services.redis, _dramatiq, 20),
    PeerSystem("Huey + Redis", "huey_app", "redis-server", services.redis, _huey, 20),
    PeerSystem("arq + Redis", "arq_app", "redis-server", services.redis, _arq, 30),
    PeerSystem("RQ + Redis", "rq_app", "redis-server", services.redis, _rq, 60),
    PeerSystem(
        "Procrastinate + PostgreSQL",
        "procrastinate_app",
        "postgres",
        services.postgres,
        _procrastinate,
        80,
    ),
)
