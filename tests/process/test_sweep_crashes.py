"""Sweeps whose runners, keepers and nodes are killed: every index is still processed.

The long form (ten kills) runs with DRUMLINE_LONG_TESTS=1.
"""

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from drumline.domain.sweeps.rate import window_size
from tests.mariadb import fresh_database
from tests.process.sweep_stack import FINAL, LONG, SweepStack


def test_no_index_is_skipped_when_processes_are_killed(tmp_path: Path) -> None:
    """Kills runner, keeper and the whole node repeatedly during one sweep."""
    total, rate, rounds = (200_000, 10_000, 3) if LONG else (60_000, 3_000, 1)
    chance = random.Random(10)
    window = window_size(rate, 0.0, 1)
    settings: dict[str, Any] = {
        "heartbeat_interval": 0.3,
        "dead_after": 3.0,
        "lease": 2.0,
        "reap_interval": 0.3,
    }
    with SweepStack(tmp_path, workers=2, **settings) as stack:
        stack.create("survivor", "w.mark", total, rate=rate)
        marks, starts = stack.marks("survivor"), [0]
        kills = ["runner", "worker", "node"] * rounds + ["runner"]
        chance.shuffle(kills)
        for kill in kills:
            stack.wait_done("survivor", starts[-1] + 1, deadline=60)
            time.sleep(chance.uniform(0, 0.5))  # the kill comes at a random time
            before = stack.sweep("survivor")["done"]
            assert before >= starts[-1], "the checkpoint never moves back"
            _kill(stack, kill)
            processed = 1 + max(marks.rfind(bytes([n])) for n in range(1, 12))
            again = stack.sweep("survivor")["done"]
            assert again >= before
            assert processed <= again + window, "no item starts beyond the stored start + window"
            starts.append(again)
        stack.call("sweep.update", sweep="survivor", rate=10 * rate)
        finished = stack.wait_state("survivor", *FINAL, deadline=90)
        assert (finished["state"], finished["errors"]) == ("finished", 0)
        assert marks[:].count(b"\0") == 0, "an index was not processed"
        assert sum(marks[:]) - total <= window * len(kills)


def _kill(stack: SweepStack, what: str) -> None:
    """Kill a process of the sweep, or the whole node and start it again."""
    if what != "node":
        (task_id,) = [part["task_id"] for part in stack.sweep("survivor")["parts"]]
        keeper = stack.call("task.show", task_id=task_id)["owner"]
        found = [
            one
            for one in stack.call("node.status")["processes"]
            if one["name"] == (keeper or "worker-1").replace("worker", what)
        ]
        os.kill(found[0]["pid"], signal.SIGKILL)
        return
    _kill_node(stack)
    stack.up()


def _kill_node(stack: SweepStack) -> None:
    for pids in stack.processes().values():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    stack.wait_for(lambda: not stack.processes() or None, 10, "the end of all processes")


def test_partitions_are_distributed_over_nodes_and_move_when_a_node_dies(
    mariadb_server_url: str, tmp_path: Path
) -> None:
    settings: dict[str, object] = {
        "workers": 4, "heartbeat_interval": 0.3, "lease": 2.0, "dead_after": 3.0,
        "reap_interval": 0.3,
    }  # fmt: skip
    with (
        fresh_database(mariadb_server_url) as url,
        SweepStack(tmp_path, url, node="one", **settings) as one,
        SweepStack(tmp_path, url, node="two", **settings) as two,
    ):
        one.create("wide", "w.slow", 4_000, partitions=4, parallel=4, rate=200)

        def nodes() -> dict[str, int]:
            """The number of partitions on each node, by the owners of their tasks."""
            tasks = [part["task_id"] for part in two.sweep("wide")["parts"] if part["running"]]
            keepers = [two.call("task.show", task_id=task_id)["keeper"] for task_id in tasks]
            workers = two.call("worker.list")["workers"]
            node_of = {worker["keeper"]: worker["node"] for worker in workers}
            return Counter(node_of.get(keeper, "") for keeper in keepers)

        two.wait_for(
            lambda: nodes() == {"one": 2, "two": 2} or None, what="two partitions on each node"
        )
        before = two.wait_done("wide", 400)["done"]
        _kill_node(one)
        two.wait_for(
            lambda: nodes() == {"two": 3} or None, 20, "three partitions on the remaining node"
        )
        assert two.sweep("wide")["done"] >= before
        two.call("sweep.update", sweep="wide", rate=4_000, parallel=64)
        finished = two.wait_state("wide", *FINAL, deadline=60)
        assert (finished["state"], finished["errors"]) == ("finished", 0)
        marks = two.marks("wide")[:]
        assert marks.count(b"\0") == 0
        assert sum(marks) - 4_000 <= window_size(200, 0.0, 1)
