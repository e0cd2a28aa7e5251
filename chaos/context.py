"""The records around a violation: what happened to its tasks, and which faults were near."""

from __future__ import annotations

from collections import defaultdict

from chaos.history import (
    Began,
    CallbackSent,
    Called,
    Ended,
    FaultInjected,
    History,
    Record,
    TargetChanged,
)
from chaos.laws import Violation

NEAR_SECONDS = 10.0
"""Faults that ended this long before the first record of a violation are shown with it."""


class NodeContext:
    """Finds the records around violations; reads the history once."""

    def __init__(self, history: History) -> None:
        self.faults = history.faults()
        self.by_task: defaultdict[int, list[Record]] = defaultdict(list)
        for record in history.records:
            if (task_id := _task_of(record)) is not None:
                self.by_task[task_id].append(record)

    def around(self, violation: Violation) -> list[Record]:
        """The records of the violation and of its tasks, with the faults near them, by time."""
        tasks = set(violation.tasks)
        tasks.update(i for record in violation.history if (i := _task_of(record)) is not None)
        found = [*violation.history]
        found += [each for i in tasks for each in self.by_task[i] if each not in found]
        if found:
            first = min(record.at for record in found) - NEAR_SECONDS
            last = max(record.at for record in found)
            found += [fault for fault in self.faults if fault.until >= first and fault.at <= last]
        return sorted(found, key=lambda record: record.at)


def _task_of(record: Record) -> int | None:
    match record:
        case Began() | Ended() | TargetChanged() | CallbackSent():
            return record.task_id
        case Called():
            return (record.answer or {}).get("task_id")
    return None


def in_words(record: Record) -> str:
    """One line about a record."""
    match record:
        case Began():
            return (
                f"task {record.task_id} began under fence {record.fence}, attempt "
                f"{record.attempt}, in runner {record.runner_pid} of keeper {record.keeper_pid}"
            )
        case Ended():
            end = "ended" if record.exception is None else f"raised {record.exception}"
            return f"task {record.task_id} {end} under fence {record.fence}"
        case TargetChanged():
            return (
                f"task {record.task_id} wrote {record.value!r} to target {record.target} under "
                f"fence {record.fence}"
            )
        case CallbackSent():
            return f"callback for task {record.task_id}: status {record.status}"
        case Called():
            outcome = record.error or record.answer or "outcome unknown"
            return f"command {record.command}, request {record.request_id}: {outcome}"
        case FaultInjected():
            hit = f" hit {', '.join(map(str, record.pids))}" if record.pids else ""
            detail = f" ({record.detail})" if record.detail else ""
            return f"fault {record.kind}{hit}, until {record.until - record.at:.1f} s later{detail}"
    return str(record)
