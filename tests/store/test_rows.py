"""Typed rows have the columns that they are read from, and enums read words they do not know."""

from __future__ import annotations

import pytest

from drumline.domain.states import KeeperState, TaskState
from drumline.store import rows
from drumline.store.node import keepers
from drumline.store.rows import KeeperRow, StoredRow
from drumline.store.tables import keeper, task
from tests.store.world import REGION, World

WHOLE = [
    kind
    for kind in vars(rows).values()
    if isinstance(kind, type) and issubclass(kind, StoredRow) and kind is not StoredRow
]


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
def test_a_row_has_the_columns_of_its_table_in_their_order(kind: type[StoredRow]) -> None:
    assert kind.__struct_fields__ == tuple(kind.table.columns.keys())


def test_a_word_of_an_enum_column_is_read_as_its_member(world: World) -> None:
    world.keeper()
    (row,) = world.database.read(lambda tx: keepers.read_alive(tx, REGION))
    assert row.state is KeeperState.ALIVE
    assert world.task(world.one_shot()).status is TaskState.PENDING


def test_a_word_of_a_newer_version_is_read_as_it_is(world: World) -> None:
    keeper_id, task_id = world.keeper(), world.one_shot()
    world.set_task(task_id, status="postponed")
    world.database.write(lambda tx: tx.execute(keeper.update().values(state="resting")))
    (row,) = world.rows(KeeperRow, keeper.c.id == keeper_id)
    assert row.state == "resting"
    (one,) = world.rows(rows.TaskRow, task.c.id == task_id)
    assert (one.status, one.cause) == ("postponed", None)
