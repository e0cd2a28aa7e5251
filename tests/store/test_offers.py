"""New tasks that are due already are offered to the dispatcher, so that none waits for a scan."""

from collections.abc import Callable
from typing import Any

import pytest

from drumline.errors import StoreUnavailable
from drumline.store.database import Database
from drumline.store.task import scan
from tests.store.desk import Desk
from tests.store.world import SPEC, World


def test_a_task_that_is_due_is_offered_as_the_scan_would_feed_it(desk: Desk, world: World) -> None:
    task_id = desk("task.schedule", type=SPEC.type, param={"a": 1}, priority=7)["task_id"]
    assert desk.rings == 1
    assert desk.offered == world.database.read(lambda tx: scan.load(tx, [task_id], {}))
    assert [due.id for due in desk.offered] == [task_id]


def test_a_task_of_later_is_left_to_the_scan(desk: Desk) -> None:
    desk("task.schedule", type=SPEC.type, delay=60)
    desk("task.schedule", type=SPEC.type, at="2030-01-31T12:00:00Z")
    assert (desk.rings, desk.offered) == (2, [])


def test_a_repeated_request_offers_only_what_still_waits(desk: Desk, world: World) -> None:
    desk("task.schedule", "again", type=SPEC.type)
    desk("task.schedule", "again", type=SPEC.type)
    first, second = desk.offered
    assert first == second
    world.acquire(world.keeper(), [first.id])
    desk("task.schedule", "again", type=SPEC.type)
    assert (desk.rings, len(desk.offered)) == (3, 2)


def test_what_is_scheduled_stands_even_if_it_cannot_be_read_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: Database, work: Callable[..., Any], tries: int = 1) -> Any:
        raise StoreUnavailable(reason="it went away")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "read", away)
        task_id = desk("task.schedule", type=SPEC.type)["task_id"]
    assert (desk.rings, desk.offered) == (1, [])
    assert desk("task.show", task_id=task_id)["status"] == "pending"
