"""How far a sweep is: checkpoints that only move forward, and how its partitions end."""

import msgspec
import pytest

from drumline.domain.alarms import AlarmEvent
from drumline.domain.release import RunEnd
from drumline.domain.sweeps.partition import LogLine, PartitionResult
from drumline.errors import Conflict
from drumline.store.rows import AlarmRow, FailedItemRow
from drumline.store.sweep import partitions
from tests.store.stub_gateway import StubGateway
from tests.store.sweep_world import SweepWorld, begin
from tests.store.world import commit_of_unknown_fate, not_none

# --- checkpoints ---------------------------------------------------------------------------------


def test_a_checkpoint_moves_forward_and_answers_with_what_is_live(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway, partitions=2, rate=10.0, parallel=3, errors=5)
    first, second = world.hold("s", 0), world.hold("s", 1)
    live = world.flush(first, 20, 2, failed=(3, 7), speed=4.0)
    assert (live.stop, live.rate, live.parallel, live.serial) == (False, 5.0, 1, False)
    assert (live.budget, live.errors_at_start, live.other_errors) == (5, 0, 0)
    live = world.flush(second, 60, 1, failed=(55,))
    assert (live.parallel, live.other_errors) == (2, 2)
    shown = gateway("sweep.show", sweep="s")
    assert (shown["done"], shown["errors"], shown["running"]) == (30, 3, 2)
    assert [one["index"] for one in gateway("sweep.failed", sweep="s")["failed"]] == [3, 7, 55]
    assert gateway("sweep.failed", sweep="s", after=3, limit=1)["next"] == 7
    gateway("sweep.update", sweep="s", rate=100.0, parallel=8)
    live = world.flush(first, 20, 2)
    assert (live.rate, live.parallel) == (50.0, 4)


def test_the_start_never_moves_back_and_a_repeated_checkpoint_changes_nothing(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway)
    held = world.hold("s")
    with commit_of_unknown_fate(world.database):
        world.flush(held, 50, 1, failed=(10,))
    world.flush(held, 40, 0, failed=())
    world.flush(held, 60, 2, failed=(10, 55))
    (part,) = world.parts("s")
    assert (part.start_index, part.errors, part.failed_kept) == (60, 2, 2)
    assert [row.item for row in world.rows(FailedItemRow)] == [10, 55]


def test_who_has_lost_the_fence_stores_nothing(gateway: StubGateway, world: SweepWorld) -> None:
    begin(gateway)
    held = world.hold("s")
    world.flush(held, 10)
    world.die(held.keeper_id)
    world.give_back(held.keeper_id, died=[held.task_id])
    assert world.flush(held, 20) is None
    later = world.hold("s")
    assert world.flush(held, 20) is None
    assert partitions.open_partition(world.database, held) is None
    assert world.parts("s")[0].start_index == 10
    assert world.flush(later, 15) is not None


def test_progress_clears_deaths_and_none_brings_quarantine(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway)
    start = 0
    for _ in range(5):
        held = world.hold("s")
        start += 5
        world.flush(held, start)
        world.die(held.keeper_id)
        world.give_back(held.keeper_id, died=[held.task_id])
        assert world.task(held.task_id).deaths == 1
    for deaths in (2, 3):
        assert world.show("s").state == "running"
        held = world.hold("s")
        world.flush(held, start)
        world.die(held.keeper_id)
        world.give_back(held.keeper_id, died=[held.task_id])
        assert world.task(held.task_id).deaths == deaths
    stopped = world.show("s")
    assert stopped.state == "stopped"
    assert "partition 0 at index 25" in not_none(stopped.reason) and "quarantined" in not_none(
        stopped.reason
    )
    gateway("sweep.start", sweep="s")
    assert world.task(world.parts("s")[0].task_id).deaths == 0


def test_log_lines_and_extra_data_come_with_the_checkpoint(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway, extra={"n": 0})
    held = world.hold("s")
    world.flush(held, 3, log=(LogLine(1, "one"), LogLine(2, "two 🥁")), extra='{"n": 1}')
    assert gateway("sweep.show", sweep="s")["extra"] == {"n": 1}
    lines = gateway("sweep.log", sweep="s")["lines"]
    assert [(line["index"], line["message"]) for line in lines] == [(2, "two 🥁"), (1, "one")]
    assert gateway("sweep.log", sweep="s", index=1)["lines"] == lines[1:]
    assert gateway("sweep.log", sweep="s", before=lines[0]["id"])["lines"] == lines[1:]


def test_items_that_were_stuck_are_remembered_until_they_are_passed(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway)
    held = world.hold("s")
    world.flush(held, 5, stuck=(7, 9))
    world.end(held, RunEnd.GIVEN_BACK)
    held = world.hold("s")
    part = partitions.open_partition(world.database, held)
    assert part is not None and (part.start, part.stuck) == (5, (7, 9))
    world.flush(held, 8)
    part = partitions.open_partition(world.database, held)
    assert part is not None and part.stuck == (9,)


def test_the_list_of_failed_indexes_is_bounded(
    gateway: StubGateway, world: SweepWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "FAILED_KEPT", 5)
    begin(gateway)
    held = world.hold("s")
    world.flush(held, 4, 4, failed=(0, 1, 2, 3))
    world.flush(held, 8, 8, failed=(4, 5, 6, 7))
    world.flush(held, 9, 9, failed=(8,))
    assert [row.item for row in world.rows(FailedItemRow)] == [0, 1, 2, 3, 4]
    assert world.parts("s")[0].errors == 9


# --- ends ----------------------------------------------------------------------------------------


def test_it_is_finished_when_its_last_partition_is(gateway: StubGateway, world: SweepWorld) -> None:
    begin(gateway, partitions=2)
    first, second = world.hold("s", 0), world.hold("s", 1)
    world.flush(first, 50)
    world.end(first, result=PartitionResult(50, 0, True))
    assert world.show("s").state == "running"
    assert [part.running for part in world.parts("s")] == [False, True]
    world.flush(second, 100)
    world.end(second, result=PartitionResult(100, 0, True))
    row = world.show("s")
    assert (row.state, row.reason) == ("finished", None) and row.finished_at is not None
    for command in ("sweep.start", "sweep.stop"):
        with pytest.raises(Conflict, match="The sweep is finished"):
            gateway(command, sweep="s")


def test_a_partition_that_stops_takes_the_others_along(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway, partitions=3, parallel=3)
    first, second = world.hold("s", 0), world.hold("s", 1)
    world.flush(first, 10, 5)
    world.end(first, result=PartitionResult(10, 5, False, "the error budget of 5 is spent"))
    assert world.show("s").state == "stopping"
    assert world.parts("s")[2].task_id is None, "what waited will not start"
    live = world.flush(second, 40)
    assert live.stop
    world.end(second, RunEnd.GIVEN_BACK, PartitionResult(40, 0, False))
    row = world.show("s")
    assert (row.state, row.reason) == ("stopped", "the error budget of 5 is spent")
    assert world.task(second.task_id).status == "cancel"
    gateway("sweep.start", sweep="s")
    row = world.show("s")
    assert (row.state, row.reason, row.errors_at_start) == ("running", None, 5)
    assert [part.start_index for part in world.parts("s")] == [10, 40, 66]


def test_a_partition_that_drains_goes_on_elsewhere(gateway: StubGateway, world: SweepWorld) -> None:
    begin(gateway)
    held = world.hold("s")
    world.flush(held, 30)
    world.end(held, RunEnd.GIVEN_BACK, PartitionResult(30, 0, False))
    row, (part,) = world.show("s"), world.parts("s")
    assert (row.state, part.running, part.task_id) == ("running", False, held.task_id)
    again = partitions.open_partition(world.database, world.hold("s"))
    assert again is not None and again.start == 30


def test_a_part_that_is_done_when_it_is_stopped_is_done(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway)
    held = world.hold("s")
    gateway("sweep.stop", sweep="s")
    world.flush(held, 100)
    world.end(held, result=PartitionResult(100, 0, True))
    assert world.show("s").state == "finished"


def test_a_sweep_that_is_stopped_alarms(
    gateway: StubGateway, world: SweepWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.database, "_hooks", {AlarmEvent.SWEEP_STOPPED: ("ops",)})
    begin(gateway)
    held = world.hold("s")
    world.end(held, RunEnd.ERROR, info="items: the source has changed")
    (row,) = world.rows(AlarmRow)
    assert msgspec.json.decode(row.body)["data"] == {
        "sweep_id": world.show("s").id,
        "name": "s",
        "reason": "partition 0 at index 0: its task failed: items: the source has changed",
    }
