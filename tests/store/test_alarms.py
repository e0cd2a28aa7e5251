"""The outbox of alarms: written in the transaction of the event, delivered after its commit."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace
from sqlalchemy import update

from drumline.commands import Context
from drumline.domain.alarms import AlarmEvent, Webhook, sign_message, webhooks_by_event
from drumline.domain.policy import Retry
from drumline.domain.release import RunEnd
from drumline.store.admin import alarms
from drumline.store.batch import batches
from drumline.store.database import Database
from drumline.store.rows import AlarmRow
from drumline.store.tables import alarm
from drumline.telemetry import metrics
from drumline.web import webhooks
from tests.receiver import Receiver
from tests.store.job_world import JobWorld, stopped_clock
from tests.store.stub_gateway import StubGateway
from tests.store.world import REGION, SPEC, Crash, World, at_once, not_none, over
from tests.web_site import Site

SECRET = "sesame"  # noqa: S105  # of a receiver that lives as long as a test
DEADLINE = 20.0


def hook(name: str = "ops", url: str = "http://127.0.0.1:1/", *events: AlarmEvent) -> Webhook:
    wanted = events or tuple(AlarmEvent)
    return Webhook(name=name, url=url, secret_env="HOOK_SECRET", events=wanted)  # noqa: S106


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)


@pytest.fixture
def listening(database: Database) -> Iterator[Callable[..., None]]:
    """Write the events of these webhooks."""
    with mock.patch.object(database, "_hooks", {}):

        def listen(*webhooks: Webhook) -> None:
            database._hooks = webhooks_by_event(webhooks)

        yield listen


def outbox(world: World) -> list[AlarmRow]:
    return list(world.rows(AlarmRow))


# --- raised --------------------------------------------------------------------------------------


def test_the_end_of_a_batch_raises_one_alarm(world: World, listening: Callable[..., None]) -> None:
    listening(hook(), hook("other", "http://127.0.0.1:1/", AlarmEvent.QUARANTINE))
    batch_id, members = world.batch(2)
    world.run(world.keeper(), members[:1])
    world.upkeep(batch_id)
    assert outbox(world) == []
    world.run(world.keeper(), end=RunEnd.ERROR)
    row = world.batch_row(batch_id)
    world.database.write(lambda tx: batches.update_status(tx, row))
    assert world.database.write(lambda tx: batches.update_status(tx, row)) is None, (
        "the status was kept already"
    )
    assert world.upkeep(batch_id) == "partial_fail", "upkeep runs once more"
    (told,) = outbox(world)
    message = json.loads(told.body)
    assert (told.hook, told.event, message["type"]) == ("ops", "batch_end", "batch_end")
    assert message["id"] == told.event_id and message["region"] == REGION
    assert (
        message["data"] | {"batch_id": batch_id, "status": "partial_fail", "total": 2}
        == (message["data"])
    )
    assert message["data"]["counts"] == {"success": 1, "fail": 1}


def test_a_failed_run_raises_an_alarm_and_a_retry_does_not(
    database: Database, listening: Callable[..., None]
) -> None:
    listening(hook())
    with stopped_clock(database) as clock:
        world = JobWorld(database, clock)
        world.announce(SPEC)
        job_id = world.job(name="report", retry='{"retries":1,"delay":0.0}')
        keeper_id = world.keeper()
        gateway = StubGateway(database)
        task_id = gateway("job.trigger", job="report")["task_id"]
        patient = Retry(retries=1, delay=0.0)
        for attempt in (1, 2):
            (due,) = world.acquire(keeper_id, [task_id])
            info = f"broken {attempt}"
            ended = over(due, RunEnd.ERROR, info=info, is_job_run=True, retry=patient)
            world.release(keeper_id, [ended])
            assert len(outbox(world)) == attempt - 1
    (told,) = outbox(world)
    data = json.loads(told.body)["data"]
    assert told.event == "job_failed"
    assert (data["task_id"], data["job_id"], data["job_name"]) == (task_id, job_id, "report")
    assert (data["cause"], data["info"]) == ("error", "broken 2")


def test_a_quarantine_raises_an_alarm(world: World, listening: Callable[..., None]) -> None:
    listening(hook())
    task_id = world.one_shot()
    world.set_task(task_id, deaths=2)
    keeper_id = world.keeper()
    (due,) = world.acquire(keeper_id)
    world.release(keeper_id, [over(due, RunEnd.DIED)])
    (told,) = outbox(world)
    assert told.event == "quarantine"
    assert json.loads(told.body)["data"]["task_id"] == task_id


def test_a_stopped_sweep_raises_an_alarm(world: World, listening: Callable[..., None]) -> None:
    listening(hook())
    world.database.write(lambda tx: alarms.after_sweep(tx, REGION, 7, "all", "too many errors"))
    (told,) = outbox(world)
    assert json.loads(told.body)["data"] == {
        "sweep_id": 7,
        "name": "all",
        "reason": "too many errors",
    }


def test_an_alarm_is_raised_only_if_its_event_is_committed(
    world: World, listening: Callable[..., None]
) -> None:
    listening(hook())
    batch_id, _ = world.batch(1)
    world.run(world.keeper())
    row = world.batch_row(batch_id)

    def undone(tx: Any) -> None:
        assert batches.update_status(tx, row) == "success"
        raise Crash

    with pytest.raises(Crash):
        world.database.write(undone)
    assert outbox(world) == []


def test_no_alarm_is_written_without_a_webhook(world: World) -> None:
    batch_id, _ = world.batch(1)
    world.run(world.keeper(), end=RunEnd.ERROR)
    assert world.upkeep(batch_id) == "fail"
    assert outbox(world) == []


# --- taken ---------------------------------------------------------------------------------------


def test_one_of_two_nodes_leases_an_alarm(world: World, listening: Callable[..., None]) -> None:
    listening(hook())
    world.database.write(lambda tx: alarms.after_sweep(tx, REGION, 7, "all", None))

    def due() -> list[AlarmRow]:
        return world.database.read(lambda tx: alarms.read_due(tx, REGION, ["ops"], 10))

    rows = due()
    assert world.database.read(lambda tx: alarms.read_due(tx, REGION, ["other"], 10)) == []
    assert world.database.read(lambda tx: alarms.read_due(tx, "elsewhere", ["ops"], 10)) == []

    def take() -> int:
        return len(world.database.write(lambda tx: alarms.lease(tx, rows, 60)))

    assert sorted(at_once(take, take, take)) == [0, 0, 1]
    assert due() == [], "it is leased"
    (row,) = rows
    assert world.database.write(lambda tx: alarms.delivered(tx, row))
    assert not world.database.write(lambda tx: alarms.put_back(tx, row, 1, "late"))
    assert outbox(world) == []


def test_an_undeliverable_alarm_is_kept_until_retention_deletes_it(
    world: World, listening: Callable[..., None]
) -> None:
    listening(hook())
    world.database.write(lambda tx: alarms.after_sweep(tx, REGION, 7, "all", None))
    rows = world.database.read(lambda tx: alarms.read_due(tx, REGION, ["ops"], 10))
    world.database.write(lambda tx: alarms.lease(tx, rows, 0))
    assert world.database.write(lambda tx: alarms.give_up(tx, rows[0], "x" * 9000))
    assert world.database.read(lambda tx: alarms.read_due(tx, REGION, ["ops"], 10)) == []
    assert world.database.read(lambda tx: alarms.count_given_up(tx, REGION)) == {"ops": 1}
    now = world.database.now()
    assert world.database.write(lambda tx: alarms.prune(tx, REGION, now - 10**9)) == 0
    assert world.database.write(lambda tx: alarms.prune(tx, REGION, now + 10**9)) == 1


# --- delivered -----------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(webhooks, "retry_delay", lambda tries, chance: 0.001)


def context_for(database: Database, *configured: Webhook, **settings: Any) -> Context:
    context = StubGateway(database).context
    about = {"webhooks": configured, "http_allow_loopback": True, **settings}
    return replace(context, settings=replace(context.settings, **about))


def wait_until(question: Callable[[], object], what: str) -> None:
    until = time.monotonic() + DEADLINE
    while not question():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.01)


def count_of(result: str) -> float:
    return float(metrics.webhooks.labels(result)._value.get())


def tell(world: World) -> str:
    world.database.write(lambda tx: alarms.after_sweep(tx, REGION, 7, "all", None))
    return str(outbox(world)[-1].event_id)


@pytest.mark.usefixtures("quick")
def test_a_delivery_is_retried_until_it_succeeds(
    world: World, listening: Callable[..., None]
) -> None:
    with closing(Receiver(500, 307, 204)) as receiver:
        ops = hook(url=receiver.url)
        listening(ops)
        before = count_of("failed"), count_of("delivered")
        event_id = tell(world)
        with Site(context_for(world.database, ops)):
            wait_until(lambda: not outbox(world), "the delivery")
        assert [delivery.headers["webhook-id"] for delivery in receiver.deliveries] == [
            event_id
        ] * 3
        assert (count_of("failed"), count_of("delivered")) == (before[0] + 2, before[1] + 1)
        for headers, body in receiver.deliveries:
            at = int(headers["webhook-timestamp"])
            assert abs(at - time.time()) < 60
            right = sign_message(SECRET.encode(), event_id, at, body)
            assert headers["webhook-signature"] == right
            assert headers["content-type"] == "application/json"
            assert json.loads(body)["id"] == event_id


@pytest.mark.usefixtures("quick")
def test_an_unreachable_receiver_does_not_delay_others(
    world: World, listening: Callable[..., None]
) -> None:
    with closing(Receiver(200)) as receiver:
        both = hook("away"), hook("there", receiver.url)
        listening(*both)
        tell(world)
        given_up = count_of("given_up")
        with Site(context_for(world.database, *both, webhook_tries=3)):
            wait_until(lambda: receiver.deliveries, "the other's delivery")
            wait_until(lambda: count_of("given_up") > given_up, "its end")
            wait_until(lambda: [row.state for row in outbox(world)] == ["given_up"], "its row")
    (row,) = outbox(world)
    assert (row.hook, row.tries) == ("away", 3)
    assert "127.0.0.1:1" in not_none(row.error)


@pytest.mark.usefixtures("quick")
def test_a_forbidden_address_is_not_called(world: World, listening: Callable[..., None]) -> None:
    with closing(Receiver(200)) as receiver:
        ops = hook(url=receiver.url)
        listening(ops)
        tell(world)
        context = context_for(world.database, ops, http_allow_loopback=False, webhook_tries=1)
        with Site(context):
            wait_until(lambda: outbox(world)[0].state == "given_up", "the refusal")
        assert "may not be called" in not_none(outbox(world)[0].error)
        assert receiver.deliveries == []


@pytest.mark.usefixtures("quick")
def test_a_crash_during_delivery_repeats_it_with_the_same_id(
    world: World, listening: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node died after it sent the alarm and before it wrote the result."""
    with closing(Receiver(200)) as receiver:
        ops = hook(url=receiver.url)
        listening(ops)
        event_id = tell(world)
        with monkeypatch.context() as patch:
            patch.setattr(webhooks.WebhookDeliverer, "_write", lambda *_: None)
            with Site(context_for(world.database, ops)):
                wait_until(lambda: receiver.deliveries, "the first delivery")
        (row,) = outbox(world)
        assert row.due_at > world.database.now(), "the lease is still held"
        world.database.write(lambda tx: tx.execute(update(alarm).values(due_at=0)))
        with Site(context_for(world.database, ops)):
            wait_until(lambda: not outbox(world), "the second delivery")
        assert [delivery.headers["webhook-id"] for delivery in receiver.deliveries] == [
            event_id
        ] * 2
    assert SECRET not in str(receiver.deliveries)
