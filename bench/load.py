"""What several figures do with a stack: submit through the CLI, warm up, time a batch."""

from __future__ import annotations

import time

from tests.stack import Stack

POLL_SECONDS = 0.1
"""Between two questions for the end of a batch; more frequent ones would slow it down."""
BATCH_SECONDS = 600.0
"""Within which a batch must be over."""


def submit(stack: Stack, type: str, count: int, **more: object) -> int:
    """Submit a batch through the CLI, as a user would; its id."""
    arguments = [f"--{name}={value}" for name, value in more.items()]
    answer = stack.cli(
        "batch", "submit", "bench", "--type", type, "--count", str(count), *arguments
    )
    batch_id: int = answer["batch_id"]
    return batch_id


def wait_success(stack: Stack, batch_id: int, count: int) -> None:
    shown = stack.wait_batch(batch_id, BATCH_SECONDS, POLL_SECONDS)
    assert shown["counts"] == {"success": count}, shown


def warm_up(stack: Stack) -> None:
    wait_success(stack, submit(stack, "demo.noop", 500), 500)


def paused_rate(stack: Stack, type: str, count: int, **more: object) -> float:
    """Tasks per second from the release of a paused queue to the last success in the batch row."""
    stack.call("queue.pause", type=type)
    batch_id = submit(stack, type, count, **more)
    begun = time.perf_counter()
    stack.call("queue.resume", type=type)
    wait_success(stack, batch_id, count)
    return count / (time.perf_counter() - begun)
