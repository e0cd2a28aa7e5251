"""New tasks that are due already are offered to the dispatcher, so that none waits for a scan."""

from collections.abc import Callable
from typing import Any

import pytest

from drumline.errors import StoreUnavailable
from drumline.store.database import Database
from drumline.store.task import scan
from tests.store.stub_gateway import StubGateway
from tests.store.world import SPEC, World


def test_a_task_that_is_due_is_offered_as_the_scan_would_feed_it(
    gateway: StubGateway, world: World
) -> None:
    task_id = gateway("task.schedule", type=SPEC.type, param={"a": 1}, priority=7)["task_id"]
    assert gateway.notifications == 1
    assert gateway.offered_tasks == world.database.read(lambda tx: scan.load(tx, [task_id], {}))
    assert [due.id for due in gateway.offered_tasks] == [task_id]


def test_a_task_of_later_is_left_to_the_scan(gateway: StubGateway) -> None:
    gateway("task.schedule", type=SPEC.type, delay=60)
    gateway("task.schedule", type=SPEC.type, at="2030-01-31T12:00:00Z")
    assert (gateway.notifications, gateway.offered_tasks) == (2, [])


def test_a_repeated_request_offers_only_what_still_waits(
    gateway: StubGateway, world: World
) -> None:
    gateway("task.schedule", "again", type=SPEC.type)
    gateway("task.schedule", "again", type=SPEC.type)
    first, second = gateway.offered_tasks
    assert first == second
    world.acquire(world.keeper(), [first.id])
    gateway("task.schedule", "again", type=SPEC.type)
    assert (gateway.notifications, len(gateway.offered_tasks)) == (3, 2)


def test_what_is_scheduled_stands_even_if_it_cannot_be_read_again(
    gateway: StubGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: Database, work: Callable[..., Any], tries: int = 1) -> Any:
        raise StoreUnavailable(reason="it went away")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "read", away)
        task_id = gateway("task.schedule", type=SPEC.type)["task_id"]
    assert (gateway.notifications, gateway.offered_tasks) == (1, [])
    assert gateway("task.show", task_id=task_id)["status"] == "pending"
