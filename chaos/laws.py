"""The laws that a run must not break, each a pure function of the history.

A law yields one violation for each case, with the sentence that a reader needs to understand it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec

from chaos.history import (
    Began,
    CallbackSent,
    Called,
    FinalTask,
    History,
    ItemDone,
    NodeLogLine,
    Record,
    Run,
    Snapshot,
    TargetChanged,
    Waiting,
)

FINISHED = frozenset(("success", "fail", "cancel", "skipped", "rollback_success", "rollback_fail"))
URGENT = 9
URGENT_SECONDS = 2.0
"""The time in which an urgent task starts, in addition to the rest of a running task."""
IDLE_SECONDS = 5.0
"""Work that waits for longer than this while a worker is free is not being handed out."""
SETTLE_SECONDS = 8.0
"""After a fault a node may need this long until it works as before."""
KILLED_ON_PURPOSE = frozenset(("cancelled", "timeout", "overlap"))


class Violation(msgspec.Struct, frozen=True):
    law: str
    sentence: str
    history: tuple[Record, ...] = ()
    tasks: tuple[int, ...] = ()
    """Tasks that it is about, in addition to those of the records."""


Law = Callable[[History], Iterator[Violation]]


def accepted_work_finishes(history: History) -> Iterator[Violation]:
    """Every accepted task exists at the end, and is finished."""
    snapshot = history.snapshot()
    if snapshot is None:
        return
    rows = {row.id: row for row in snapshot.tasks}
    for call in history.of(Called):
        task_id = (call.answer or {}).get("task_id")
        if task_id is not None and task_id not in rows:
            yield _violation(accepted_work_finishes, f"accepted task {task_id} is gone", call)
    for row in snapshot.tasks:
        if row.status not in FINISHED:
            yield _violation(
                accepted_work_finishes,
                f"task {row.id} ({row.type}) is still {row.status}: {row.why}",
                tasks=(row.id,),
            )


def runs_of_a_task_never_overlap(history: History) -> Iterator[Violation]:
    """Two executions of one task are never under way at the same time."""
    for task_id, runs in _runs_by_task(history).items():
        for earlier, later in pairwise(sorted(runs, key=lambda run: run.began.at)):
            if later.began.at < earlier.last:
                yield _violation(
                    runs_of_a_task_never_overlap,
                    f"task {task_id} ran under fences {earlier.began.fence} and "
                    f"{later.began.fence} at the same time",
                    earlier.began,
                    later.began,
                )


def fences_grow(history: History) -> Iterator[Violation]:
    """Each fence begins once, fences of a task grow, and a lower one changes nothing any more."""
    highest: dict[int, Began] = {}
    for record in history.records:
        if isinstance(record, Began):
            before = highest.get(record.task_id)
            if before is not None and record.fence <= before.fence:
                yield _violation(
                    fences_grow,
                    f"task {record.task_id} began under fence {record.fence} after {before.fence}",
                    before,
                    record,
                )
            else:
                highest[record.task_id] = record
        elif isinstance(record, TargetChanged):
            newest = highest.get(record.task_id)
            if newest is not None and record.fence < newest.fence:
                yield _violation(
                    fences_grow,
                    f"task {record.task_id} changed {record.target} under fence {record.fence} "
                    f"after a begin under {newest.fence}",
                    newest,
                    record,
                )


def at_most_one_begin_without_retry(history: History) -> Iterator[Violation]:
    """A task whose handler has on_death="fail" begins at most once."""
    for task_id, runs in _runs_by_task(history).items():
        if runs[0].began.type.endswith(".once") and len(runs) > 1:
            begins = [run.began for run in runs]
            yield _violation(
                at_most_one_begin_without_retry, f"task {task_id} began {len(runs)} times", *begins
            )


def success_is_stored(history: History) -> Iterator[Violation]:
    """A run that its handler has ended without an exception is not stored as a failure."""
    rows = _rows(history)
    for task_id, runs in _runs_by_task(history).items():
        newest = max(runs, key=lambda run: run.began.fence)
        row = rows.get(task_id)
        if row is None or newest.ended is None or newest.ended.exception is not None:
            continue
        if row.status in ("fail", "rollback_fail"):
            yield _violation(
                success_is_stored,
                f"task {task_id} succeeded and is stored as {row.status} ({row.cause})",
                newest.began,
                newest.ended,
            )


def only_deaths_are_charged(history: History) -> Iterator[Violation]:
    """A task is charged with no more deaths than its executions that broke off.

    A fault that hits a worker may excuse one more: the worker may die just before the first record
    of an execution, or just after its last one.
    """
    runs = _runs_by_task(history)
    workers = {pid for run in history.runs() for pid in _worker(run)}
    hits = sum(1 for fault in history.faults() if workers & set(fault.pids))
    for row in _rows(history).values():
        broken = [run for run in runs.get(row.id, ()) if run.ended is None]
        if row.deaths > len(broken) + min(hits, 1):
            yield _violation(
                only_deaths_are_charged,
                f"task {row.id} is charged with {row.deaths} deaths; "
                f"{len(broken)} of its executions broke off",
                tasks=(row.id,),
            )


def healthy_runs_are_not_ended(history: History) -> Iterator[Violation]:
    """A run inside its deadline breaks off only if a fault hit its runner or its keeper."""
    faults = history.faults()
    end = history.records[-1].at if history.records else 0.0
    rows = _rows(history)
    for runs in _runs_by_task(history).values():
        for run in runs:
            began = run.began
            row = rows.get(began.task_id)
            if run.ended is not None or run.last > end - 1.0:
                continue
            if run.last - began.at >= began.timeout - 0.5:
                continue
            if row is not None and (row.cause in KILLED_ON_PURPOSE or row.status == "cancel"):
                continue
            if any(
                _worker(run) & set(f.pids) and f.at <= run.last + SETTLE_SECONDS for f in faults
            ):
                continue
            yield _violation(
                healthy_runs_are_not_ended,
                f"task {began.task_id} ran for {run.last - began.at:.1f} of {began.timeout:g} s "
                f"under fence {began.fence} and was ended; no fault had hit its worker",
                began,
            )


def dead_keepers_were_silent(history: History) -> Iterator[Violation]:
    """The reaper declares a keeper dead only if a fault has hit it."""
    hit = {pid for fault in history.faults() for pid in fault.pids}
    for line in history.of(NodeLogLine):
        if line.action == "keeper_dead" and line.pid not in hit:
            yield _violation(
                dead_keepers_were_silent,
                f"keeper {line.fields.get('keeper')} was declared dead; no fault had hit it",
                line,
            )


def one_run_per_job_and_time(history: History) -> Iterator[Violation]:
    """A job has at most one row for a scheduled time."""
    seen: dict[tuple[int, int], FinalTask] = {}
    for row in _rows(history).values():
        if row.job_id is None or row.scheduled_at is None:
            continue
        key = (row.job_id, row.scheduled_at)
        if key in seen:
            yield _violation(
                one_run_per_job_and_time,
                f"tasks {seen[key].id} and {row.id} are both the firing of job {row.job_id} "
                f"at {row.scheduled_at}",
                tasks=(seen[key].id, row.id),
            )
        seen[key] = row


def concurrency_limits_hold(history: History) -> Iterator[Violation]:
    """The runs of a job that are under way never exceed its limit."""
    snapshot = history.snapshot()
    limits = {} if snapshot is None else snapshot.concurrency_limits
    by_job: defaultdict[int, list[Run]] = defaultdict(list)
    for run in history.runs():
        if run.began.job_id in limits:
            by_job[run.began.job_id].append(run)
    for job_id, runs in by_job.items():
        for run in runs:
            at_once = [other for other in runs if other.began.at <= run.began.at < other.last]
            tasks = {other.began.task_id for other in (run, *at_once)}
            if len(tasks) > limits[job_id]:
                yield _violation(
                    concurrency_limits_hold,
                    f"{len(tasks)} runs of job {job_id} at once; its limit is {limits[job_id]}",
                    *(other.began for other in at_once),
                )


def one_callback_is_accepted(history: History) -> Iterator[Violation]:
    """Of the final callbacks with one token at most one is accepted."""
    accepted: dict[str, CallbackSent] = {}
    for callback in history.of(CallbackSent):
        if not 200 <= callback.status < 300:
            continue
        if callback.token in accepted:
            yield _violation(
                one_callback_is_accepted,
                f"two callbacks for task {callback.task_id} with one token were accepted",
                accepted[callback.token],
                callback,
            )
        accepted[callback.token] = callback


def every_item_is_handled(history: History) -> Iterator[Violation]:
    """A finished sweep has handled every one of its indexes."""
    snapshot = history.snapshot()
    done: defaultdict[int, set[int]] = defaultdict(set)
    for item in history.of(ItemDone):
        done[item.sweep_id].add(item.index)
    for sweep_id, total in ({} if snapshot is None else snapshot.finished_sweeps).items():
        missing = sorted(set(range(total)) - done[sweep_id])
        if missing:
            yield _violation(
                every_item_is_handled,
                f"sweep {sweep_id} finished without {len(missing)} items, such as {missing[:5]}",
            )


def rollbacks_restore(history: History) -> Iterator[Violation]:
    """A task that was rolled back has left its target as it was."""
    values: dict[str, str] = {}
    first: dict[str, str] = {}
    owner: dict[str, int] = {}
    for change in history.of(TargetChanged):
        first.setdefault(change.target, "before")
        values[change.target] = change.value
        owner[change.target] = change.task_id
    rows = _rows(history)
    for target, value in values.items():
        row = rows.get(owner[target])
        if row is not None and row.status == "rollback_success" and value != first[target]:
            yield _violation(
                rollbacks_restore,
                f"task {row.id} was rolled back and target {target} is {value!r}",
                tasks=(row.id,),
            )


def counters_equal_tasks(history: History) -> Iterator[Violation]:
    """The counters of every batch are what its tasks add up to."""
    snapshot = history.snapshot()
    for batch_id, difference in ({} if snapshot is None else snapshot.wrong_counters).items():
        yield _violation(counters_equal_tasks, f"batch {batch_id}: {difference}")


def repeated_requests_are_done_once(history: History) -> Iterator[Violation]:
    """A command that is sent twice under one request id is answered the same."""
    answers: dict[str, Called] = {}
    for call in history.of(Called):
        if call.answer is None:
            continue
        before = answers.setdefault(call.request_id, call)
        if before.answer != call.answer:
            yield _violation(
                repeated_requests_are_done_once,
                f"request {call.request_id} ({call.command}) had two different answers",
                before,
                call,
            )


def free_workers_get_work(history: History) -> Iterator[Violation]:
    """While a worker is free, due work of a type that it serves does not wait."""
    since: dict[str, Waiting] = {}
    reported: set[str] = set()
    calm_from = 0.0
    faults = [fault for fault in history.faults() if fault.excuses]
    for sample in history.of(Waiting):
        calm_from = max(
            [calm_from, *(f.until + SETTLE_SECONDS for f in faults if f.at <= sample.at)]
        )
        for type_ in [*since]:
            if sample.free_workers == 0 or not sample.due.get(type_) or sample.at < calm_from:
                del since[type_]
        if sample.free_workers == 0 or sample.at < calm_from:
            continue
        for type_, count in sample.due.items():
            first = since.setdefault(type_, sample) if count else None
            waited = 0.0 if first is None else sample.at - first.at
            if waited > IDLE_SECONDS and type_ not in reported:
                reported.add(type_)
                yield _violation(
                    free_workers_get_work,
                    f"{count} due tasks of type {type_} waited for {waited:.0f} s while "
                    f"{sample.free_workers} workers were free",
                    sample,
                )


def urgent_tasks_start(history: History) -> Iterator[Violation]:
    """An urgent task starts within a second plus the rest of a running task."""
    faults = [fault for fault in history.faults() if fault.excuses]
    runs = _runs_by_task(history)
    longest = max((run.last - run.began.at for run in history.runs()), default=0.0)
    for call in history.of(Called):
        task_id = (call.answer or {}).get("task_id")
        if call.arguments.get("priority") != URGENT or task_id not in runs:
            continue
        started = min(run.began.at for run in runs[task_id])
        limit = URGENT_SECONDS + longest
        calm = all(f.until + SETTLE_SECONDS < call.at or f.at > started for f in faults)
        if calm and started - call.at > limit:
            yield _violation(
                urgent_tasks_start,
                f"urgent task {task_id} started after {started - call.at:.1f} s; "
                f"the longest run took {longest:.1f} s",
                call,
            )


LAWS: tuple[Law, ...] = (
    accepted_work_finishes,
    runs_of_a_task_never_overlap,
    fences_grow,
    at_most_one_begin_without_retry,
    success_is_stored,
    only_deaths_are_charged,
    healthy_runs_are_not_ended,
    dead_keepers_were_silent,
    one_run_per_job_and_time,
    concurrency_limits_hold,
    one_callback_is_accepted,
    every_item_is_handled,
    rollbacks_restore,
    counters_equal_tasks,
    repeated_requests_are_done_once,
    free_workers_get_work,
    urgent_tasks_start,
)


def check(history: History) -> list[Violation]:
    """All violations of all laws."""
    return [violation for law in LAWS for violation in law(history)]


def _violation(law: Law, sentence: str, *history: Record, tasks: tuple[int, ...] = ()) -> Violation:
    return Violation(law.__name__, sentence, history, tasks)


def _runs_by_task(history: History) -> dict[int, list[Run]]:
    runs: defaultdict[int, list[Run]] = defaultdict(list)
    for run in history.runs():
        runs[run.began.task_id].append(run)
    return dict(runs)


def _worker(run: Run) -> set[int]:
    return {run.began.runner_pid, run.began.keeper_pid}


def _rows(history: History) -> dict[int, FinalTask]:
    snapshot: Snapshot | None = history.snapshot()
    return {} if snapshot is None else {row.id: row for row in snapshot.tasks}
