"""The upkeep of sweeps: the share of a node, and what is let go of what ended."""

import pytest
from sqlalchemy import insert, update

from drumline.domain.sweeps.partition import LogLine, PartitionResult
from drumline.store.rows import FailedItemRow, LogLineRow, PartitionRow, SweepRow
from drumline.store.sweep import partitions, sweep_log
from drumline.store.sweep.partitions import SweepDemand
from drumline.store.tables import sweep as sweep_table
from drumline.store.tables import sweep_log as log_table
from drumline.store.tx import Tx
from tests.store.stub_gateway import StubGateway
from tests.store.sweep_world import SweepWorld, begin
from tests.store.world import REGION


def test_a_nodes_share_is_reckoned_from_what_runs_and_who_lives(
    gateway: StubGateway, world: SweepWorld
) -> None:
    def demand(node: str) -> SweepDemand:
        return world.database.read(lambda tx: partitions.read_demand(tx, REGION, node))

    assert demand("one") == SweepDemand()
    begin(gateway, partitions=5, parallel=5)
    one, other = world.keeper("w1", "one"), world.keeper("w2", "two")
    world.hold("s", 0, one)
    world.hold("s", 1, one)
    assert demand("one") == SweepDemand(5, 2, 2)
    assert demand("two") == SweepDemand(5, 2, 0)
    world.die(other)
    assert demand("two").nodes == 1


def test_what_ended_long_ago_is_let_go_and_nothing_else(
    gateway: StubGateway, world: SweepWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_log, "CHUNK", 2)
    for name in ("old", "new", "stopped"):
        begin(gateway, name, total=3)
        held = world.hold(name)
        log = tuple(LogLine(n, "line") for n in range(3))
        world.flush(held, 2 if name == "stopped" else 3, 2, failed=(0, 1), log=log)
        end = (
            PartitionResult(2, 2, False, "enough")
            if name == "stopped"
            else PartitionResult(3, 2, True)
        )
        world.end(held, result=end)

    def age(tx: Tx) -> None:
        change = update(sweep_table).where(sweep_table.c.name.in_(["old", "stopped"]))
        tx.execute(change.values(finished_at=1, updated_at=1))

    world.database.write(age)
    while world.database.write(lambda tx: sweep_log.prune_sweeps(tx, REGION, 1000)):
        pass
    assert [row.name for row in world.rows(SweepRow)] == ["new", "stopped"]
    assert (len(world.rows(LogLineRow)), len(world.rows(FailedItemRow))) == (6, 4)
    assert len(world.rows(PartitionRow)) == 2


def test_only_the_newest_lines_are_kept(
    gateway: StubGateway, world: SweepWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_log, "LINES_KEPT", 5)
    monkeypatch.setattr(sweep_log, "CHUNK", 4)
    sweep_id = begin(gateway)
    rows = [{"sweep_id": sweep_id, "item": n, "message": "m", "created_at": 1} for n in range(20)]
    world.database.write(lambda tx: tx.execute(insert(log_table), rows))
    while world.database.write(lambda tx: sweep_log.prune_lines(tx, REGION)):
        pass
    assert [row.item for row in world.rows(LogLineRow)] == list(range(15, 20))
