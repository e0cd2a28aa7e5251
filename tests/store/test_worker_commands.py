"""The commands of workers and handlers."""

import subprocess
from collections.abc import Iterator

import pytest

from drumline.domain.dispatch.status import WorkerStatus
from drumline.domain.policy import HandlerSpec
from drumline.errors import Conflict, NotFound, WrongUse
from drumline.store.node import handlers, keepers
from drumline.system import processes
from tests.store.stub_gateway import NODE, STRICT, StubGateway
from tests.store.world import REGION, World


def test_workers_are_listed_with_their_status(gateway: StubGateway, world: World) -> None:
    here, there = world.keeper("worker-1"), world.keeper("worker-1", node="far")
    gone = world.keeper("worker-2")
    world.die(gone)
    gateway.workers = (
        WorkerStatus(keeper=here, name="worker-1", state="busy", holds=2, tasks=(7,)),
    )
    found = gateway("worker.list")["workers"]
    assert [(one["keeper"], one["node"], one["state"], one["holds"]) for one in found] == [
        (there, "far", "alive", None),
        (here, NODE, "busy", 2),
    ]
    gateway.reachable = False
    assert {one["state"] for one in gateway("worker.list")["workers"]} == {"alive"}


def test_a_repeated_drain_leaves_the_next_worker_alone(gateway: StubGateway, world: World) -> None:
    first = world.keeper("worker-1")
    gateway.workers = (WorkerStatus(keeper=first, name="worker-1"),)
    gateway("worker.drain", "r1", worker="worker-1")
    assert ("drain", "worker-1", 0) in gateway.requests
    gateway.requests.clear()
    gateway.workers = (WorkerStatus(keeper=first + 1, name="worker-1"),)
    gateway("worker.drain", "r1", worker="worker-1")
    assert gateway.requests == [("workers", "", 0)]


def test_a_worker_of_another_node_or_unknown_is_refused(gateway: StubGateway, world: World) -> None:
    world.keeper("worker-1", node="far")
    for command in ("worker.drain", "worker.kill"):
        with pytest.raises(Conflict, match="on node far"):
            gateway(command, worker="worker-1")
        with pytest.raises(NotFound, match="worker-9"):
            gateway(command, worker="worker-9")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:  # noqa: S607
        yield process
        process.kill()


def test_a_kill_ends_only_the_registered_process(
    gateway: StubGateway, sleeper: subprocess.Popen[bytes]
) -> None:
    born = processes.start_ticks(sleeper.pid)
    assert born is not None

    def register(pid_started: int) -> None:
        gateway.database.write(
            lambda tx: keepers.register(
                tx, name="w", region=REGION, node=NODE, pid=sleeper.pid, pid_started=pid_started
            )
        )

    register(born + 1)  # the pid belongs to another process now
    gateway("worker.kill", worker="w")
    assert sleeper.poll() is None
    register(born)
    assert gateway("worker.kill", worker="w")["pid"] == sleeper.pid
    assert sleeper.wait(5) == -9


def test_handlers_are_shown_as_announced(gateway: StubGateway, world: World) -> None:
    listed = gateway("handlers.list")["handlers"]
    assert [one["type"] for one in listed] == ["strict", "type", "undoes"]
    found = gateway("handlers.show", type="undoes")
    assert (found["captures"], found["rolls_back"], found["timeout"]) == (True, True, 20.0)
    assert gateway("handlers.show", type="strict")["schema"] == STRICT.schema
    with pytest.raises(NotFound, match="handler for nothing"):
        gateway("handlers.show", type="nothing")
    world.announce(HandlerSpec("other", "undoes"))
    with pytest.raises(WrongUse, match="other, target"):
        gateway("handlers.show", type="undoes")
    assert gateway("handlers.show", type="undoes", target_type="other")["rolls_back"] is False
    assert len(gateway.database.read(lambda tx: handlers.known(tx, REGION))) == 4
