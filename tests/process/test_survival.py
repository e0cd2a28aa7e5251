"""No task is lost or runs twice at a time when processes are killed, suspended or restarted."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drumline.system import processes
from tests.mariadb import MariaDB
from tests.process.witness import Witness, WitnessStack
from tests.stack import Stack, shared_by_tests


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path)


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest,
    shared_database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WitnessStack]:
    """A stack for tests after which all its processes run again."""
    witness = Witness(tmp_path_factory.mktemp("witness"))
    stack = WitnessStack(witness, shared_database_url, workers=2)
    with shared_by_tests(stack, request):
        yield stack


def submit(stack: Stack, type: str, count: int, **more: object) -> int:
    batch_id: int = stack.call(
        "batch.submit", batch_name="survival", type=type, count=count, **more
    )["batch_id"]
    return batch_id


def test_ten_thousand_tasks_run_once_each(shared: WitnessStack) -> None:
    stack, witness = shared, shared.witness
    batch = stack.cli("batch", "submit", "many", "--type", "demo.noop", "--count", "10000")
    shown = stack.wait_batch(batch["batch_id"])
    assert (shown["status"], shown["counts"]) == ("success", {"success": 10000})
    witness.forget()
    first = submit(stack, "witness.short", 1000, param={"seconds": 0})
    assert stack.wait_batch(first)["counts"] == {"success": 1000}
    counts = witness.counts("end")
    assert len(counts) == 1000 and set(counts.values()) == {1}


@pytest.mark.parametrize("kind", ["scanner", "dispatcher", "worker", "runner", "reaper", "gateway"])
def test_batch_survives_a_kill_of(kind: str, shared: WitnessStack) -> None:
    stack, witness = shared, shared.witness
    witness.forget()
    batch_id = submit(stack, "witness.short", 2000)
    stack.wait_for(lambda: len(witness.lines("end")) > 200, what="a tenth of the work")
    killed = stack.kill(kind)
    shown = stack.wait_batch(batch_id)
    assert (shown["status"], shown["counts"]) == ("success", {"success": 2000})
    assert len(witness.counts("end")) == 2000
    assert witness.overlaps() == []
    if kind not in ("worker", "runner"):
        assert set(witness.counts("begin").values()) == {1}
    stack.wait_restart(kind, killed)


def test_timeouts_are_enforced_without_a_dispatcher(witness: Witness) -> None:
    with WitnessStack(witness, workers=2, kill_grace=1) as stack:
        batch_id = submit(stack, "demo.sleep", 1, param={"seconds": 60}, timeout=2)
        stack.wait_for(lambda: stack.counts(batch_id) == {"running": 1}, what="the start")
        stack.call("queue.pause", type="witness.short")
        supervisor = stack.processes()["supervisord"][0]
        os.kill(supervisor, signal.SIGSTOP)  # so that it does not restart the dispatcher
        try:
            stack.kill("dispatcher")
            stack.wait_for(
                lambda: stack.counts(batch_id) == {"pending": 1}, 10, "the end of the run"
            )
        finally:
            os.kill(supervisor, signal.SIGCONT)
        assert stack.wait_batch(batch_id)["counts"] == {"fail": 1}
        paused = submit(stack, "witness.short", 5)
        other = submit(stack, "demo.noop", 5)
        stack.wait_batch(other)
        assert stack.counts(paused) == {"pending": 5}
        stack.call("queue.resume", type="witness.short")
        assert stack.wait_batch(paused)["status"] == "success"


def test_suspended_keeper_is_killed_before_its_task_is_requeued(
    database_url: str, witness: Witness
) -> None:
    with WitnessStack(witness, database_url, workers=2, dead_after=4, lease=3) as stack:
        batch_id = submit(stack, "witness.short", 1, param={"seconds": 2})
        stack.wait_for(lambda: witness.lines("begin") or None, what="the start")
        runner = witness.lines("begin")[0][3]
        keeper = stack.wait_for(lambda: _keeper_of(stack, runner), what="the keeper")
        os.kill(keeper, signal.SIGSTOP)
        stack.wait_for(lambda: len(witness.lines("begin")) > 1 or None, 30, "the second run")
        assert not processes.is_alive(runner)
        assert stack.wait_batch(batch_id)["counts"] == {"success": 1}
        assert witness.overlaps() == []


def test_writes_of_a_keeper_after_it_was_declared_dead_are_refused(
    mariadb_url: str, witness: Witness
) -> None:
    with WitnessStack(
        witness, mariadb_url, workers=2, dead_after=3, lease=2, kill_silent_workers=False
    ) as stack:
        batch_id = submit(stack, "witness.short", 1, param={"seconds": 1})
        stack.wait_for(lambda: witness.lines("begin") or None, what="the start")
        first = witness.lines("begin")[0]
        keeper = stack.wait_for(lambda: _keeper_of(stack, first[3]), what="the keeper")
        os.kill(keeper, signal.SIGSTOP)
        stack.wait_for(lambda: len(witness.lines("begin")) > 1 or None, 30, "the second run")
        shown = stack.wait_batch(batch_id)
        os.kill(keeper, signal.SIGCONT)
        stack.wait_for(lambda: _refusals(stack), 20, "the refusal")
        assert stack.counts(batch_id) == shown["counts"]
        assert only_task(stack, batch_id)["fence"] > first[2]
        assert submit_and_wait(stack) == "success"


def test_keeper_that_was_declared_dead_registers_again_and_works() -> None:
    """The dispatcher connection stays up: tasks of the old incarnation must be unassigned."""
    with Stack(workers=1) as stack:
        batch_id = submit(stack, "demo.sleep", 1, param={"seconds": 2})
        stack.wait_for(lambda: stack.counts(batch_id) == {"running": 1}, what="the start")
        with closing(sqlite3.connect(stack.run_path / "drumline.db")) as connection, connection:
            connection.execute("update keeper set state = 'dead'")
        stack.wait_for(
            lambda: [
                line for line in stack.log("worker-1") if line.get("action") == "declared_dead"
            ],
            what="the end of the incarnation",
        )
        assert stack.wait_batch(batch_id, 30)["counts"] == {"success": 1}


def test_rollback_survives_worker_kill(database_url: str, witness: Witness) -> None:
    for number in range(40):
        (witness.folder / f"target-{number}").write_text(f"old {number}")
    (witness.folder / "odd-fails").touch()
    with WitnessStack(witness, database_url, workers=2, dead_after=4, lease=3) as stack:
        batch_id = stack.call(
            "batch.submit",
            batch_name="switch",
            type="switch.set",
            targets=[{"target_id": str(n)} for n in range(40)],
            param={"to": "new"},
        )["batch_id"]
        shown = stack.wait_batch(batch_id)
        assert shown["status"] == "partial_fail"
        assert shown["counts"] == {"success": 20, "fail": 20}
        stack.call("batch.rollback", batch_id=batch_id)
        stack.wait_for(lambda: len(witness.lines("rollback")) > 5 or None, what="some rollbacks")
        stack.kill("runner", which=0)
        stack.kill("worker", which=1)
        assert stack.wait_batch(batch_id)["status"] == "rollback_success"
    for number in range(40):
        assert (witness.folder / f"target-{number}").read_text() == f"old {number}"


def test_stuck_task_is_killed_retried_and_failed_with_its_stack(witness: Witness) -> None:
    with WitnessStack(witness, workers=2, kill_grace=0.5) as stack:
        spin = submit(stack, "demo.spin", 1, timeout=1)
        stubborn = submit(stack, "witness.stubborn", 1, timeout=1)
        for batch_id, function in ((spin, "in spin"), (stubborn, "in stubborn")):
            assert stack.wait_batch(batch_id)["counts"] == {"fail": 1}
            task = only_task(stack, batch_id)
            assert (task["cause"], task["attempt"]) == ("timeout", 3)
            assert function in task["info"]
            assert [a["cause"] for a in task["attempts"]] == ["timeout"] * 3
        children = [int(f.name.partition("-")[2]) for f in witness.folder.glob("child-*")]
        assert len(children) == 3
        assert [pid for pid in children if processes.is_alive(pid)] == []


def test_cancelling_async_tasks_does_not_affect_other_tasks_of_the_loop(witness: Witness) -> None:
    """300 tasks, so that a cancel that harms another task in one of 100 cases is detected."""
    # On a loaded machine 300 cancels take longer than half the default grace, and the keeper would
    # end the runner.
    with WitnessStack(witness, workers=1, kill_grace=10) as stack:
        others = submit(stack, "witness.gate", 30, param={"gate": "open"})
        cancelled = submit(stack, "witness.gate", 300, param={"gate": "never"})
        stack.wait_for(lambda: len(witness.lines("begin")) == 330, what="the start of all tasks")
        stack.call("batch.cancel", batch_id=cancelled, force=True)
        stack.wait_for(
            lambda: stack.counts(cancelled) == {"cancel": 300},
            what="the end of the cancelled tasks",
        )
        last = stack.call("task.list", batch_id=cancelled, limit=1)["tasks"][0]["id"]
        assert "in gate" in stack.call("task.show", task_id=last)["info"]
        (witness.folder / "open").touch()
        assert stack.wait_batch(others)["counts"] == {"success": 30}
    assert set(witness.counts("begin").values()) == {1}


def test_crashing_task_is_quarantined_and_the_pool_stays_complete() -> None:
    with Stack(workers=2) as stack:
        crash = submit(stack, "demo.crash", 1)
        assert stack.wait_batch(crash)["counts"] == {"fail": 1}
        assert only_task(stack, crash)["cause"] == "quarantined"
        assert submit_and_wait(stack) == "success"
        assert len(stack.call("worker.list")["workers"]) == 2


def test_on_death_decides_the_outcome_of_a_killed_run(witness: Witness) -> None:
    with WitnessStack(witness, workers=1) as stack:
        assert stack.wait_batch(submit(stack, "witness.death", 1))["counts"] == {"cancel": 1}


def test_quick_tasks_do_not_wait_for_slow_ones() -> None:
    with Stack(workers=8) as stack:
        slow = submit(stack, "demo.sleep", 4, param={"seconds": 10})
        stack.wait_for(lambda: stack.counts(slow) == {"running": 4}, what="the slow tasks to run")
        quick = submit(stack, "demo.noop", 2000)
        assert stack.wait_batch(quick, 9)["counts"] == {"success": 2000}
        assert stack.counts(slow) == {"running": 4}


def test_the_queue_never_holds_more_than_its_capacity() -> None:
    with Stack(workers=2, queue_capacity=100) as stack:
        batch_id = submit(stack, "demo.noop", 5000)
        longest = 0
        while (shown := stack.call("batch.show", batch_id=batch_id))["status"] != "success":
            longest = max(longest, stack.call("queue.show")["length"])
            assert shown["status"] in ("pending", "running")
        assert longest <= 100
        assert shown["counts"] == {"success": 5000}


def test_no_task_is_lost_in_a_database_restart(own_mariadb: MariaDB, witness: Witness) -> None:
    own_mariadb.create_database("survival")
    url = own_mariadb.url("survival")
    with WitnessStack(witness, url, workers=2) as stack:
        long = submit(stack, "witness.gate", 1, param={"gate": "open"}, timeout=60)
        stack.wait_for(lambda: witness.lines("begin") or None, what="the long task")
        before = {kind: set(pids) for kind, pids in stack.processes().items()}
        batch_id = submit(stack, "demo.noop", 3000)
        own_mariadb.stop()
        stack.wait_for(
            lambda: [x for x in stack.log("reaper") if x["action"] == "store_unavailable"] or None,
            what="the reaper to log the outage",
        )
        own_mariadb.start()
        assert stack.wait_batch(batch_id)["counts"] == {"success": 3000}
        assert stack.counts(long) == {"running": 1}
        (witness.folder / "open").touch()
        assert stack.wait_batch(long)["counts"] == {"success": 1}
        assert witness.counts("begin") == witness.counts("end")
        assert set(witness.counts("begin").values()) == {1}
        after = {kind: set(pids) for kind, pids in stack.processes().items()}
        assert after == before


def submit_and_wait(stack: Stack) -> str:
    status: str = stack.wait_batch(submit(stack, "demo.noop", 100))["status"]
    return status


def only_task(stack: Stack, batch_id: int) -> dict[str, Any]:
    (task,) = stack.call("task.list", batch_id=batch_id)["tasks"]
    return stack.call("task.show", task_id=task["id"])


def _refusals(stack: Stack, *workers: str) -> list[dict[str, Any]]:
    """The log lines of workers whose writes were refused."""
    return [
        line
        for name in workers or ("worker-1", "worker-2")
        for line in stack.log(name)
        if line.get("action") in ("fenced", "declared_dead")
    ]


def _keeper_of(stack: Stack, runner: int) -> int | None:
    for keeper in stack.processes().get("worker", []):
        if runner in processes.descendants(keeper):
            return keeper
    return None
