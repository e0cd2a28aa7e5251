"""Sweeps on a running node: every index is processed, at the set rate, until a stop.

The long forms (10,000,000 indexes, a minute of rate) run with DRUMLINE_LONG_TESTS=1.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drumline.client.control import Control
from drumline.errors import Conflict, DrumlineError
from drumline.system import procfs
from tests.process.sweep_stack import FINAL, LONG, SweepStack
from tests.stack import shared_by_tests


@pytest.fixture(scope="module")
def stack(
    request: pytest.FixtureRequest,
    shared_database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SweepStack]:
    folder = tmp_path_factory.mktemp("witness")
    settings: dict[str, Any] = {"workers": 4, "heartbeat_interval": 0.5, "kill_grace": 0.5}
    stack = SweepStack(folder, shared_database_url, **settings)
    with shared_by_tests(stack, request):
        yield stack


# --- every index ---------------------------------------------------------------------------------


def test_every_index_is_processed_once_in_constant_memory(stack: SweepStack) -> None:
    total = 10_000_000 if LONG else 1_000_000
    stack.create("once", "w.mark", total)
    memory = []
    while stack.sweep("once")["state"] == "running":
        memory.append(max(map(procfs.own_memory_mb, stack.processes()["runner"])))
    assert stack.sweep("once")["state"] == "finished"
    assert stack.marks("once")[:].count(b"\1") == total
    # The runner maps the file in which it records the indexes: one byte for each.
    assert max(memory) - min(memory) < total / 2**20 + 12, memory


def test_ten_billion_items_start_stop_and_resume(stack: SweepStack) -> None:
    stack.create("billions", "demo.sweep", 10**10)
    stack.wait_done("billions", 1_000_000)
    running = stack.sweep("billions")
    assert running["speed"] > 0 and running["eta_seconds"] > 0
    stack.call("sweep.stop", sweep="billions", reason="enough")
    stopped = stack.wait_state("billions", "stopped", deadline=2)
    assert stopped["reason"] == "stopped by test: enough"
    stack.call("sweep.start", sweep="billions")
    assert stack.sweep("billions")["done"] >= stopped["done"]
    again = stack.wait_done("billions", stopped["done"] + 100_000)
    assert again["reason"] is None
    stack.call("sweep.stop", sweep="billions")
    stack.wait_state("billions", "stopped", deadline=5)


@pytest.mark.parametrize(
    ("type", "parallel", "total"), [("w.slow", 8, 200), ("w.loop", 50, 1500), ("w.mark", 3, 50_000)]
)
def test_restart_after_a_stop_repeats_no_parallel_item(
    stack: SweepStack, type: str, parallel: int, total: int
) -> None:
    name = f"parallel-{type}"
    stack.create(name, type, total, parallel=parallel, rate=total / 3)
    stack.wait_done(name, total // 10)
    stack.call("sweep.stop", sweep=name)
    stopped = stack.wait_state(name, "stopped", deadline=3)
    assert 0 < stopped["done"] < total
    assert stack.marks(name)[:].count(b"\1") == stopped["done"], (
        "the stop waits for items that have started"
    )
    stack.call("sweep.start", sweep=name)
    assert stack.wait_state(name, *FINAL)["state"] == "finished"
    assert stack.marks(name)[:].count(b"\1") == total


def test_partitions_run_on_several_workers(stack: SweepStack) -> None:
    stack.create("parts", "w.slow", 240, partitions=3, parallel=3)
    owners: set[int] = set()
    while (found := stack.sweep("parts"))["state"] == "running":
        owners |= {part["task_id"] for part in found["parts"] if part["running"]}
        assert found["running"] <= 3
    assert found["state"] == "finished"
    assert len(owners) == 3
    assert stack.marks("parts")[:] == b"\1" * 240


def test_sweeps_leave_a_worker_to_other_tasks(stack: SweepStack) -> None:
    """Of four workers, sweeps may use three."""
    for n in range(6):
        stack.create(f"crowd-{n}", "w.slow", 1_000_000)
    stack.wait_for(
        lambda: sum(stack.sweep(f"crowd-{n}")["running"] for n in range(6)) == 3,
        what="three running partitions",
    )
    stack.kill("dispatcher")  # the new dispatcher must count the running partitions
    done = stack.wait_for(lambda: _batch(stack), 30, "a finished batch")
    assert done["status"] == "success"
    assert sum(stack.sweep(f"crowd-{n}")["running"] for n in range(6)) == 3
    for n in range(6):
        stack.call("sweep.stop", sweep=f"crowd-{n}")
    for n in range(6):
        stack.wait_state(f"crowd-{n}", "stopped", deadline=5)


def _batch(stack: SweepStack) -> dict[str, Any] | None:
    try:
        made = stack.call("batch.submit", batch_name="other", type="demo.noop", count=100)
    except DrumlineError:
        return None
    return stack.wait_batch(made["batch_id"])


# --- rate ----------------------------------------------------------------------------------------


def test_rate_is_kept_and_can_be_changed_while_running(stack: SweepStack) -> None:
    seconds = 60 if LONG else 5
    stack.create("rated", "w.note", 10**9, rate=500)
    stack.wait_for(lambda: len(stack.notes("rated")) > 100)
    times = _times(stack, "rated", seconds)
    assert len(times) / seconds == pytest.approx(500, rel=0.02)
    changed = time.time()
    stack.call("sweep.update", sweep="rated", rate=50)
    later = _times(stack, "rated", 5)
    settled = [at for at in later if at > changed + 2]
    assert len(settled) / (changed + 5 - (changed + 2)) == pytest.approx(50, rel=0.1)
    stack.call("sweep.stop", sweep="rated")
    asked = time.time()
    stack.wait_state("rated", "stopped", deadline=5)
    assert max(_all_times(stack, "rated")) < asked + 2


def _times(stack: SweepStack, name: str, seconds: float) -> list[float]:
    """The times of the items that run in the next seconds."""
    began = time.time()
    stack.wait_for(lambda: time.time() > began + seconds + 0.1, seconds + 10, "time to pass")
    return [at for at in _all_times(stack, name) if began <= at < began + seconds]


def _all_times(stack: SweepStack, name: str) -> list[float]:
    return [int(note[0]) / 1e9 for note in stack.notes(name)]


# --- errors --------------------------------------------------------------------------------------


def test_error_budget_stops_a_sweep_at_the_item_that_spends_it(stack: SweepStack) -> None:
    (stack.folder / "fixed").unlink(missing_ok=True)
    stack.create("budget", "w.thousandth", 20_000, errors=10)
    stopped = stack.wait_state("budget", *FINAL)
    assert stopped["state"] == "stopped"
    assert "error budget of 10 is spent" in stopped["reason"]
    assert (stopped["done"], stopped["errors"]) == (10_000, 10)
    failed = stack.call("sweep.failed", sweep="budget")["failed"]
    assert [one["index"] for one in failed] == [1000 * n + 999 for n in range(10)]
    lines = stack.call("sweep.log", sweep="budget", index=4999)["lines"]
    assert [line["message"] for line in lines] == ["failed: RuntimeError: it is a thousandth"]
    (stack.folder / "fixed").touch()
    stack.call("sweep.start", sweep="budget")
    finished = stack.wait_state("budget", *FINAL)
    assert (finished["state"], finished["errors"]) == ("finished", 10)
    assert stack.marks("budget")[10_000:] == b"\1" * 10_000


@pytest.mark.parametrize("parallel", [1, 4])
def test_hanging_item_fails_without_stopping_the_sweep(stack: SweepStack, parallel: int) -> None:
    """One item can be interrupted; for the other the runner is killed."""
    name = f"stuck-{parallel}"
    stack.create(name, "w.stuck", 20, parallel=parallel)
    finished = stack.wait_state(name, *FINAL, deadline=40)
    assert (finished["state"], finished["errors"]) == ("finished", 2)
    failed = stack.call("sweep.failed", sweep=name)["failed"]
    assert [one["index"] for one in failed] == [3, 5]
    handled = [int(note[1]) for note in stack.notes(name)]
    assert set(handled) == set(range(20))
    assert handled.count(5) == 1, "an item whose runner was killed is not repeated"


def test_an_item_that_kills_its_runner_stops_the_sweep(stack: SweepStack) -> None:
    stack.create("deadly", "w.die", 100)
    stopped = stack.wait_state("deadly", *FINAL, deadline=60)
    assert stopped["state"] == "stopped"
    assert "quarantined" in stopped["reason"]
    assert stopped["done"] <= 50
    assert max(int(note[1]) for note in stack.notes("deadly")) == 50


# --- handlers and hooks --------------------------------------------------------------------------


def test_a_handler_stops_its_sweep_and_keeps_its_extra_data(stack: SweepStack) -> None:
    (stack.folder / "go-on").unlink(missing_ok=True)
    stack.create("serial", "w.serial", 1000, parallel=1)
    stopped = stack.wait_state("serial", *FINAL)
    assert (stopped["state"], stopped["reason"]) == ("stopped", "that is enough")
    assert (stopped["done"], stopped["extra"]) == (701, {"sum": sum(range(701))})
    (stack.folder / "go-on").touch()
    stack.call("sweep.start", sweep="serial")
    finished = stack.wait_state("serial", *FINAL)
    assert (finished["state"], finished["extra"]) == ("finished", {"sum": sum(range(1000))})
    lines = stack.call("sweep.log", sweep="serial")["lines"]
    assert [line["index"] for line in lines] == list(range(900, -1, -100))
    stack.create("crowded", "w.serial", 10, parallel=2)
    crowded = stack.wait_state("crowded", *FINAL)
    assert crowded["errors"] == 10
    assert "parallel 1" in stack.call("sweep.log", sweep="crowded")["lines"][0]["message"]


def test_hooks_refuse_delay_and_fail(stack: SweepStack) -> None:
    def begin(name: str, **extra: str) -> None:
        stack.create(name, "w.prepared", 10, extra=extra, start=False)
        made = stack.wait_for(
            lambda: (s := stack.sweep(name))["state"] == "failed" or s["checked"] or None,
            what=f"the create hook of {name}",
        )
        assert made
        if stack.sweep(name)["state"] == "created":
            stack.call("sweep.start", sweep=name)

    begin("h-refused", refuse="create")
    refused = stack.sweep("h-refused")
    assert (refused["state"], refused["reason"]) == ("failed", "not this one")
    begin("h-never", prepare="refuse")
    never = stack.wait_state("h-never", *FINAL)
    assert (never["state"], never["reason"]) == ("failed", "not even prepared")
    begin("h-broken", prepare="break")
    broken = stack.wait_state("h-broken", *FINAL)
    assert broken["state"] == "stopped" and "the service is away" in broken["reason"]
    begin("h-later", prepare="later")
    begin("h-wait", prepare="wait")
    begin("h-slow", prepare="slow")
    stack.wait_for(lambda: stack.sweep("h-wait")["hook_task_id"] is None or None)
    assert stack.sweep("h-later")["state"] == stack.sweep("h-wait")["state"] == "waiting"
    (stack.folder / "there").touch()
    assert stack.wait_state("h-later", *FINAL)["state"] == "finished"
    stack.call("sweep.update", sweep="h-broken", extra={})
    stack.call("sweep.start", sweep="h-broken")
    assert stack.wait_state("h-broken", *FINAL)["extra"] == {"fetched": 7}
    stack.call("sweep.stop", sweep="h-slow")
    assert stack.wait_state("h-slow", *FINAL, deadline=5)["state"] == "stopped"
    stack.call("sweep.ready", sweep="h-wait")
    waited = stack.wait_state("h-wait", *FINAL)
    assert (waited["state"], waited["errors"]) == ("finished", 10), (
        "its prepare hook fetched nothing"
    )


# --- sources -------------------------------------------------------------------------------------


def test_items_of_a_file_and_of_a_list_are_processed(stack: SweepStack, tmp_path: Path) -> None:
    file = tmp_path / "items.txt"
    file.write_text("".join(f"line-{n}\n" for n in range(5000)))
    stack.create("file", "w.note", items=str(file), partitions=2, rate=2500)
    assert stack.wait_state("file", *FINAL)["state"] == "finished"
    seen = sorted((int(note[1]), note[2]) for note in stack.notes("file"))
    assert seen == [(n, f"line-{n}") for n in range(5000)]
    stack.create("list", "w.note", items=["a", "b", "c"])
    assert stack.wait_state("list", *FINAL)["total"] == 3
    assert [note[1:] for note in stack.notes("list")] == [["0", "a"], ["1", "b"], ["2", "c"]]
    made = stack.call("sweep.rerun", sweep="file", first=10, end=20, name="file-again")
    assert stack.wait_state("file-again", *FINAL)["done"] == 10
    assert sorted(int(note[1]) for note in stack.notes("file-again")) == list(range(10, 20))
    assert made["rerun_of"] == stack.sweep("file")["id"]
    file.write_text("other\n")
    stack.call("sweep.rerun", sweep="file", first=0, end=5, name="file-changed")
    changed = stack.wait_state("file-changed", *FINAL)
    assert changed["state"] == "stopped" and "has changed" in changed["reason"]
    stack.create("nowhere", "w.note", items=str(tmp_path / "none"))
    nowhere = stack.wait_state("nowhere", *FINAL)
    assert nowhere["state"] == "stopped" and "cannot be read" in nowhere["reason"]


# --- operators -----------------------------------------------------------------------------------


def test_of_two_concurrent_starts_one_succeeds(stack: SweepStack) -> None:
    stack.create("two", "w.slow", 10_000, start=False)
    for command, others in (("sweep.start", 3), ("sweep.stop", 0)):
        answers: list[str] = []

        def ask(command: str = command, answers: list[str] = answers) -> None:
            control = Control(f"ipc://{stack.run_path / 'control.sock'}", actor="other")
            try:
                answers.append(control.call(command, {"sweep": "two"})["state"])
            except Conflict as error:
                answers.append(str(error))
            finally:
                control.close()

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        refused = [answer for answer in answers if answer.startswith("The sweep is running")]
        assert len(answers) == 4 and len(refused) == others, answers
    stack.wait_state("two", "stopped", deadline=5)
