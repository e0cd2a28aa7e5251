"""No-ops behind slow tasks (P11), and urgent tasks behind a slow backlog (P13)."""

from __future__ import annotations

import statistics
import time

from bench.figure import LIMIT, OURS, Benchmark, Contestant, Figure, Options, at_most
from bench.load import submit, wait_success, warm_up
from tests.stack import Stack

SLOW_TASKS = 4
SLOW_SECONDS = 0.5
"""Of one task of the backlog of P13."""
URGENT_TASKS = 20


def beside_slow_tasks(options: Options) -> Benchmark:
    """No-ops on eight workers of which four run slow tasks, against four idle workers."""
    count = 2_000 if options.quick else 10_000
    figure = Figure(
        "P11",
        f"{count:,} no-ops behind {SLOW_TASKS} tasks of 10 s on 8 workers",
        "s",
        (at_most(1.1, LIMIT),),
    )
    return Benchmark(
        (figure,),
        (
            Contestant(OURS, 22, lambda: {figure.id: _behind_slow_tasks(count)}),
            Contestant(LIMIT, 12, lambda: {figure.id: _on_idle_workers(count)}),
        ),
        options.rounds,
    )


def _behind_slow_tasks(count: int) -> float:
    with Stack("", workers=8) as stack:
        warm_up(stack)
        slow = submit(stack, "demo.sleep", SLOW_TASKS, param='{"seconds": 10}')
        stack.wait_for(lambda: stack.counts(slow).get("running") == SLOW_TASKS or None)
        return _seconds(stack, count)


def _on_idle_workers(count: int) -> float:
    with Stack("", workers=4) as stack:
        warm_up(stack)
        return _seconds(stack, count)


def _seconds(stack: Stack, count: int) -> float:
    begun = time.perf_counter()
    wait_success(stack, submit(stack, "demo.noop", count), count)
    return time.perf_counter() - begun


def urgent_tasks(options: Options) -> Benchmark:
    """Urgent tasks, one at a time, while two workers run a backlog of slow ones."""
    backlog = 5_000 if options.quick else 100_000
    figure = Figure(
        "P13",
        f"urgent task behind {backlog:,} of {SLOW_SECONDS:g} s, 2 workers: "
        "submit to start, 99th percentile",
        "ms",
        (at_most(1.2, LIMIT),),
    )
    count = 5 if options.quick else URGENT_TASKS
    return Benchmark(
        (figure,),
        (
            Contestant(OURS, 20 + count, lambda: {figure.id: _urgent_delay(backlog, count)}),
            Contestant(LIMIT, 0, lambda: {figure.id: SLOW_SECONDS * 1000}),
        ),
        1 if options.quick else 3,
    )


def _urgent_delay(backlog: int, count: int) -> float:
    with Stack("", workers=2, imports=("bench.handlers",)) as stack:
        slow = submit(
            stack, "demo.sleep", backlog, priority=1, param=f'{{"seconds": {SLOW_SECONDS}}}'
        )
        stack.wait_for(lambda: stack.counts(slow).get("success", 0) >= 4 or None)
        delays = [_delay(stack) for _ in range(count)]
    return statistics.quantiles(delays, n=100, method="inclusive")[98]


def _delay(stack: Stack) -> float:
    """Milliseconds from the submission of an urgent task to its start."""
    sent = time.time_ns()
    task_id = stack.call("task.schedule", type="bench.stamp", priority=9)["task_id"]

    def result() -> int | None:
        task = stack.call("task.show", task_id=task_id)
        return int(task["result"]) if task["status"] == "success" else None

    return (stack.wait_for(result, 180, "an urgent task", 0.05) - sent) / 1e6
