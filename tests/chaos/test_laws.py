"""Each law of the checker finds the history that breaks it, and accepts the one that keeps it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos import laws
from chaos.history import (
    Began,
    CallbackSent,
    Called,
    Ended,
    FaultInjected,
    FinalTask,
    History,
    ItemDone,
    NodeLogLine,
    Record,
    Recorder,
    Snapshot,
    TargetChanged,
    Ticked,
    Waiting,
)


def began(at: float, task_id: int = 1, fence: int = 1, **fields: object) -> Began:
    defaults: dict[str, object] = {
        "attempt": 1, "type": "chaos.sync", "timeout": 20.0, "runner_pid": 11, "keeper_pid": 10,
    }  # fmt: skip
    return Began(at=at, task_id=task_id, fence=fence, **(defaults | fields))  # type: ignore[arg-type]


def ended(at: float, task_id: int = 1, fence: int = 1, exception: str | None = None) -> Ended:
    return Ended(at=at, task_id=task_id, fence=fence, exception=exception)


def ticked(at: float, task_id: int = 1, fence: int = 1) -> Ticked:
    return Ticked(at=at, task_id=task_id, fence=fence)


def in_time(records: Sequence[Record]) -> History:
    return History(sorted(records, key=lambda record: record.at))


def row(id: int = 1, status: str = "success", **fields: object) -> FinalTask:
    defaults: dict[str, object] = {
        "type": "chaos.sync", "cause": None, "deaths": 0, "batch_id": None, "job_id": None,
        "scheduled_at": None,
    }  # fmt: skip
    return FinalTask(id=id, status=status, **(defaults | fields))  # type: ignore[arg-type]


def snapshot(*rows: FinalTask, **fields: object) -> Snapshot:
    defaults: dict[str, object] = {
        "wrong_counters": {}, "finished_sweeps": {}, "concurrency_limits": {},
    }  # fmt: skip
    return Snapshot(at=100.0, tasks=rows, **(defaults | fields))  # type: ignore[arg-type]


def changed(at: float, value: str, fence: int = 1) -> TargetChanged:
    return TargetChanged(at=at, task_id=1, fence=fence, target="t", value=value)


def called(
    at: float, answer: dict[str, object], request_id: str = "r", **arguments: object
) -> Called:
    return Called(
        at=at, request_id=request_id, command="task.schedule", arguments=arguments, answer=answer
    )


def callback(at: float, token: str, status: int = 200) -> CallbackSent:
    return CallbackSent(at=at, task_id=1, token=token, status=status)


def waiting(at: float, free: int, **due: int) -> Waiting:
    return Waiting(at=at, free_workers=free, due=due)


def fault(at: float, until: float, *pids: int) -> FaultInjected:
    return FaultInjected(at=at, kind="kill worker", until=until, pids=pids)


def dead(pid: int) -> NodeLogLine:
    return NodeLogLine(at=5.0, action="keeper_dead", process="reaper", pid=pid)


FAILED = row(status="fail", cause="died")
ITEMS = [ItemDone(at=float(n), sweep_id=7, index=n) for n in range(3)]
FIRING: dict[str, Any] = {"job_id": 3, "scheduled_at": 60}
PAST = ended(90.0, task_id=99)
"""So that a run that broke off early is not still under way at the end."""

CASES: list[tuple[laws.Law, Sequence[Record], Sequence[Record]]] = [
    (
        laws.accepted_work_finishes,
        [called(0, {"task_id": 1}), snapshot(row())],
        [called(0, {"task_id": 1}), snapshot(row(2))],
    ),
    (laws.accepted_work_finishes, [snapshot(row())], [snapshot(row(status="running"))]),
    (
        laws.runs_of_a_task_never_overlap,
        [began(1), ended(2), began(3, fence=2), ended(4, fence=2)],
        [began(1), began(3, fence=2), ended(4, fence=2), ticked(5)],
    ),
    (
        laws.fences_grow,
        [began(1), began(2, fence=2)],
        [began(1, fence=2), began(2)],
    ),
    (laws.fences_grow, [began(1), began(2, 2)], [began(1), began(2)]),
    (
        laws.fences_grow,
        [began(1), changed(2, "a"), began(3, fence=2)],
        [began(1), began(2, fence=2), changed(3, "a")],
    ),
    (
        laws.at_most_one_begin_without_retry,
        [began(1, type="chaos.once")],
        [began(1, type="chaos.once"), began(2, fence=2, type="chaos.once")],
    ),
    (
        laws.success_is_stored,
        [began(1), ended(2), snapshot(row())],
        [began(1), ended(2), snapshot(FAILED)],
    ),
    (
        laws.only_deaths_are_charged,
        [began(1), began(3, fence=2), snapshot(row(deaths=2))],
        [began(1), ended(2), snapshot(row(deaths=1))],
    ),
    (
        laws.healthy_runs_are_not_ended,
        [began(1), ticked(3), fault(3, 3, 10), PAST],
        [began(1), ticked(3), fault(3, 3, 77), PAST],
    ),
    (
        laws.healthy_runs_are_not_ended,
        [began(1, timeout=2.0), ticked(3), PAST],
        [began(1, timeout=9.0), ticked(3), PAST],
    ),
    (laws.dead_keepers_were_silent, [fault(1, 2, 10), dead(10)], [fault(1, 2, 10), dead(20)]),
    (
        laws.one_run_per_job_and_time,
        [snapshot(row(1, **FIRING), row(2, job_id=3, scheduled_at=61))],
        [snapshot(row(1, **FIRING), row(2, **FIRING))],
    ),
    (
        laws.concurrency_limits_hold,
        [began(1, job_id=3), ended(2), began(2, task_id=2, job_id=3),
         snapshot(concurrency_limits={3: 1})],
        [began(1, job_id=3), began(2, task_id=2, job_id=3), ended(3),
         snapshot(concurrency_limits={3: 1})],
    ),
    (
        laws.one_callback_is_accepted,
        [callback(1, "x"), callback(2, "x", status=409)],
        [callback(1, "x"), callback(2, "x")],
    ),
    (
        laws.every_item_is_handled,
        [*ITEMS, snapshot(finished_sweeps={7: 3})],
        [*ITEMS[1:], snapshot(finished_sweeps={7: 3})],
    ),
    (
        laws.rollbacks_restore,
        [changed(1, "after"), changed(2, "before"), snapshot(row(status="rollback_success"))],
        [changed(1, "after"), snapshot(row(status="rollback_success"))],
    ),
    (laws.counters_equal_tasks, [snapshot()], [snapshot(wrong_counters={4: "3, not 2"})]),
    (
        laws.repeated_requests_are_done_once,
        [called(1, {"task_id": 1}), called(2, {"task_id": 1})],
        [called(1, {"task_id": 1}), called(2, {"task_id": 2})],
    ),
    (
        laws.free_workers_get_work,
        [waiting(30, 1, a=1), waiting(33, 1, a=0), waiting(36, 1, a=1)],
        [waiting(30, 1, a=1), waiting(33, 1, a=2), waiting(36, 1, a=2)],
    ),
    (
        laws.free_workers_get_work,
        [waiting(30, 1, a=1), waiting(33, 0, a=2), waiting(36, 1, a=2)],
        [waiting(30, 1, a=1), waiting(33, 1, a=2), waiting(36, 2, a=2)],
    ),
    (
        laws.urgent_tasks_start,
        [called(30, {"task_id": 1}, priority=9), began(31), ended(32)],
        [called(30, {"task_id": 1}, priority=9), began(36), ended(37)],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("law", "kept", "broken"), CASES, ids=lambda case: getattr(case, "__name__", "")
)
def test_a_law_finds_what_breaks_it(
    law: laws.Law, kept: Sequence[Record], broken: Sequence[Record]
) -> None:
    assert not list(law(in_time(kept)))
    violations = list(law(in_time(broken)))
    assert len(violations) == 1
    assert violations[0].law == law.__name__


def test_every_law_has_a_case() -> None:
    assert {law for law, _, _ in CASES} == set(laws.LAWS)


def test_a_fault_excuses_a_node_for_a_while() -> None:
    samples = [waiting(26 + n, 1, a=1) for n in range(12)]
    assert laws.check(History([fault(20, 25), *samples])) == []
    assert len(laws.check(History([fault(1, 2), *samples]))) == 1
    bearable = msgspec.structs.replace(fault(20, 25), excuses=False)
    assert len(laws.check(History([bearable, *samples]))) == 1


def test_records_survive_writing_and_reading_and_a_torn_line(tmp_path: Path) -> None:
    records = [began(1.0), ticked(2.0), fault(3.0, 4.0, 5)]
    recorder = Recorder(tmp_path)
    for record in reversed(records):
        recorder.write(record)
    (file,) = tmp_path.iterdir()
    with file.open("ab") as torn:
        torn.write(b'{"record": "Ticked", "at"')
    assert History.read(tmp_path).records == records
