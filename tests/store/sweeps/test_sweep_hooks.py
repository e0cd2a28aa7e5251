"""What happens before a sweep runs: its hooks agree, refuse or wait, and its source is counted."""

import pytest

from drumline.domain.release import RunEnd
from drumline.domain.sweeps.partition import HookResult
from drumline.errors import Conflict
from drumline.store.sweep import partitions
from drumline.store.sweep.partitions import HeldPartition
from drumline.store.tables import STOP_KILL
from tests.store.stub_gateway import StubGateway
from tests.store.sweep_world import SweepWorld, begin
from tests.store.world import not_none


def test_a_create_hook_agrees_or_refuses_for_good(gateway: StubGateway, world: SweepWorld) -> None:
    begin(gateway, "good", type="hooked", start=True)
    assert world.show("good").state == "created", "it is not started before its hook agrees"
    with pytest.raises(Conflict, match="has not agreed yet"):
        gateway("sweep.start", sweep="good")
    world.hook("good", HookResult())
    assert gateway("sweep.start", sweep="good")["state"] == "waiting"
    for name, end, says in (
        ("bad", HookResult(refused="not this one"), "not this one"),
        ("broken", None, "its create hook broke: its task failed: no such table"),
    ):
        begin(gateway, name, type="hooked")
        world.hook(name, end, info="no such table")
        row = world.show(name)
        assert (row.state, row.reason, row.hook_task_id) == ("failed", says, None)
        with pytest.raises(Conflict, match="The sweep is failed"):
            gateway("sweep.start", sweep=name)


def test_a_prepare_hook_lets_it_start_or_wait_or_stop(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway, "a", type="prepared")
    assert world.show("a").state == "waiting"
    with pytest.raises(Conflict, match="prepare hook of sweep"):
        gateway("sweep.ready", sweep="a")
    world.hook("a", HookResult(retry_after=60.0, extra='"half"'))
    row = world.show("a")
    due = world.task(row.hook_task_id).due_at - row.updated_at
    assert (row.state, row.extra, due) == ("waiting", '"half"', 60_000_000)
    world.set_task(row.hook_task_id, due_at=0)
    world.hook("a", HookResult(waits=True))
    assert (world.show("a").state, world.show("a").hook_task_id) == ("waiting", None)
    assert gateway("sweep.ready", sweep="a")["state"] == "running"
    begin(gateway, "b", type="prepared")
    world.hook("b", None, info="the service is away")
    row = world.show("b")
    assert row.state == "stopped" and "the service is away" in not_none(row.reason)
    gateway("sweep.start", sweep="b")
    world.hook("b", HookResult())
    assert world.show("b").state == "running", "a start that failed can be repeated"
    begin(gateway, "c", type="prepared")
    world.hook("c", HookResult(refused="never"))
    assert (world.show("c").state, world.show("c").reason) == ("failed", "never")


def test_a_stop_reaches_a_hook_wherever_it_is(gateway: StubGateway, world: SweepWorld) -> None:
    begin(gateway, "waits", type="prepared")
    assert gateway("sweep.stop", sweep="waits")["state"] == "stopped"
    begin(gateway, "idle", type="prepared")
    world.hook("idle", HookResult(waits=True))
    assert gateway("sweep.stop", sweep="idle")["state"] == "stopped"
    with pytest.raises(Conflict, match="handler may start it only from waiting"):
        gateway("sweep.ready", sweep="idle")
    begin(gateway, "runs", type="prepared")
    keeper_id, task_id = world.keeper(), world.show("runs").hook_task_id
    (due,) = world.acquire(keeper_id, [task_id])
    assert gateway("sweep.stop", sweep="runs")["state"] == "stopping"
    assert world.task(task_id).stop == STOP_KILL
    world.end(HeldPartition(keeper_id, due.id, due.fence), RunEnd.SUCCESS, HookResult())
    assert world.show("runs").state == "stopped", "not once a stop is asked"


def test_a_source_is_counted_before_it_is_cut(gateway: StubGateway, world: SweepWorld) -> None:
    begin(gateway, total=None, items="/some/file", partitions=8)
    row = world.show("s")
    assert (row.state, row.total, world.parts("s")) == ("waiting", None, [])
    with pytest.raises(Conflict, match="its items have not been counted"):
        gateway("sweep.rerun", sweep="s")
    world.hook("s", HookResult(total=5, identity="file 1"))
    row = world.show("s")
    assert (row.state, row.total, row.end_index, row.identity) == ("running", 5, 5, "file 1")
    assert len(world.parts("s")) == 5, "no more partitions than items"
    part = partitions.open_partition(world.database, world.hold("s", 4))
    assert part is not None and part.source is not None
    assert (part.source.items, part.source.total, part.source.identity) == (
        "/some/file", 5, "file 1",
    )  # fmt: skip
    changed = begin(gateway, "changing", type="prepared", total=None, items=["a", "b"])
    world.hook("changing", HookResult(total=2, identity="x"))
    gateway("sweep.stop", sweep=changed)
    gateway("sweep.start", sweep=changed)
    world.hook("changing", HookResult(total=2, identity="y"))
    row = world.show("changing")
    assert row.state == "stopped" and "the source has changed" in not_none(row.reason)
