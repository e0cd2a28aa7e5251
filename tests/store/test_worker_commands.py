"""Workers and what they can run: listed, drained, killed, and shown as they announced it."""

import subprocess
from collections.abc import Iterator

import pytest

from drumline.domain.dispatch.status import WorkerStatus
from drumline.domain.policy import HandlerSpec
from drumline.errors import Conflict, NotFound, WrongUse
from drumline.store.node import handlers, keepers
from drumline.system import processes
from tests.store.desk import NODE, STRICT, Desk
from tests.store.world import REGION, World


def test_workers_are_listed_with_what_the_dispatcher_knows(desk: Desk, world: World) -> None:
    here, there = world.keeper("worker-1"), world.keeper("worker-1", node="far")
    gone = world.keeper("worker-2")
    world.die(gone)
    desk.workers = (WorkerStatus(keeper=here, name="worker-1", state="busy", holds=2, tasks=(7,)),)
    found = desk("worker.list")["workers"]
    assert [(one["keeper"], one["node"], one["state"], one["holds"]) for one in found] == [
        (there, "far", "alive", None),
        (here, NODE, "busy", 2),
    ]
    desk.reachable = False
    assert {one["state"] for one in desk("worker.list")["workers"]} == {"alive"}


def test_a_worker_is_drained_and_not_the_one_that_comes_after_it(desk: Desk, world: World) -> None:
    first = world.keeper("worker-1")
    desk.workers = (WorkerStatus(keeper=first, name="worker-1"),)
    desk("worker.drain", "r1", worker="worker-1")
    assert ("drain", "worker-1", 0) in desk.asked
    desk.asked.clear()
    desk.workers = (WorkerStatus(keeper=first + 1, name="worker-1"),)
    desk("worker.drain", "r1", worker="worker-1")
    assert desk.asked == [("workers", "", 0)]


def test_a_worker_elsewhere_or_nowhere_is_refused(desk: Desk, world: World) -> None:
    world.keeper("worker-1", node="far")
    for command in ("worker.drain", "worker.kill"):
        with pytest.raises(Conflict, match="on node far"):
            desk(command, worker="worker-1")
        with pytest.raises(NotFound, match="worker-9"):
            desk(command, worker="worker-9")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:  # noqa: S607
        yield process
        process.kill()


def test_a_kill_ends_the_very_process_that_was_meant(
    desk: Desk, sleeper: subprocess.Popen[bytes]
) -> None:
    born = processes.start_ticks(sleeper.pid)
    assert born is not None

    def register(pid_started: int) -> None:
        desk.database.write(
            lambda tx: keepers.register(
                tx, name="w", region=REGION, node=NODE, pid=sleeper.pid, pid_started=pid_started
            )
        )

    register(born + 1)  # the pid has come to another process since
    desk("worker.kill", worker="w")
    assert sleeper.poll() is None
    register(born)
    assert desk("worker.kill", worker="w")["pid"] == sleeper.pid
    assert sleeper.wait(5) == -9


def test_handlers_are_shown_as_they_were_announced(desk: Desk, world: World) -> None:
    listed = desk("handlers.list")["handlers"]
    assert [one["type"] for one in listed] == ["strict", "type", "undoes"]
    found = desk("handlers.show", type="undoes")
    assert (found["captures"], found["rolls_back"], found["timeout"]) == (True, True, 20.0)
    assert desk("handlers.show", type="strict")["schema"] == STRICT.schema
    with pytest.raises(NotFound, match="handler for nothing"):
        desk("handlers.show", type="nothing")
    world.announce(HandlerSpec("other", "undoes"))
    with pytest.raises(WrongUse, match="other, target"):
        desk("handlers.show", type="undoes")
    assert desk("handlers.show", type="undoes", target_type="other")["rolls_back"] is False
    assert len(desk.database.read(lambda tx: handlers.known(tx, REGION))) == 4
