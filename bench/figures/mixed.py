"""No-ops behind slow tasks (P11), and urgent tasks behind a slow backlog (P13)."""

from __future__ import annotations

import time

from bench.figure import LIMIT, OURS, Benchmark, BenchOptions, Contestant, Figure, at_most
from bench.load import submit, wait_success, warm_up
from tests.stack import Stack

SLOW_TASKS = 4
URGENT_SPACING = 0.7
"""Seconds between two urgent tasks of P13."""


def beside_slow_tasks(options: BenchOptions) -> Benchmark:
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


def urgent_tasks(options: BenchOptions) -> Benchmark:
    """Urgent tasks, submitted one after another, while two workers run a backlog of slow ones."""
    backlog, slow, count = (5_000, 0.1, 3) if options.quick else (100_000, 0.5, 20)
    figure = Figure(
        "P13",
        f"urgent task behind {backlog:,} of {slow:g} s, 2 workers: submit to start, "
        f"slowest of {count}",
        "ms",
        (at_most(1.2, LIMIT),),
    )
    return Benchmark(
        (figure,),
        (
            Contestant(OURS, 30 + 250 * slow, lambda: {figure.id: _delay(backlog, slow, count)}),
            Contestant(LIMIT, 0, lambda: {figure.id: slow * 1000}),
        ),
        1 if options.quick else 3,
    )


def _delay(backlog: int, slow: float, count: int) -> float:
    """Milliseconds from the submission of an urgent task to its start; the slowest of them."""
    with Stack("", workers=2, imports=("bench.handlers",)) as stack:
        batch = submit(stack, "demo.sleep", backlog, priority=1, param=f'{{"seconds": {slow}}}')
        stack.wait_for(lambda: stack.counts(batch).get("success", 0) >= 4 or None)
        sent = {}
        for _ in range(count):
            now = time.time_ns()
            sent[stack.call("task.schedule", type="bench.stamp", priority=9)["task_id"]] = now
            time.sleep(URGENT_SPACING)
        return max((_start(stack, task_id) - then) / 1e6 for task_id, then in sent.items())


def _start(stack: Stack, task_id: int) -> int:
    """When a task started, in nanoseconds; waits for it."""

    def result() -> int | None:
        task = stack.call("task.show", task_id=task_id)
        return int(task["result"]) if task["status"] == "success" else None

    return stack.wait_for(result, 600, "an urgent task", 0.5)
