"""Sweeps for the store's tests: begun, held and ended by short words."""

from typing import Any

import msgspec

from drumline.domain.policy import HandlerSpec, SweepTraits
from drumline.domain.release import RunEnd, RunOutcome
from drumline.domain.sweeps.definition import PARTITION_TARGET_TYPE
from drumline.domain.sweeps.partition import Checkpoint, HookResult
from drumline.store.rows import PartitionRow, SweepRow
from drumline.store.sweep import partitions, sweeps
from drumline.store.sweep.partitions import HeldPartition
from drumline.store.task import held_tasks
from tests.store.stub_gateway import StubGateway
from tests.store.world import REGION, World

PLAIN = HandlerSpec(PARTITION_TARGET_TYPE, "plain", sweep=SweepTraits())
LOOPS = HandlerSpec(PARTITION_TARGET_TYPE, "loops", sweep=SweepTraits(is_async=True))
HOOKED = HandlerSpec(
    PARTITION_TARGET_TYPE, "hooked", sweep=SweepTraits(creates=True, prepares=True)
)
PREPARED = HandlerSpec(PARTITION_TARGET_TYPE, "prepared", sweep=SweepTraits(prepares=True))


class SweepWorld(World):
    def show(self, name: str | int) -> SweepRow:
        return self.database.read(lambda tx: sweeps.get(tx, REGION, name))

    def parts(self, name: str | int) -> list[PartitionRow]:
        sweep_id = self.show(name).id
        return self.database.read(lambda tx: sweeps.read_partitions(tx, [sweep_id]))[sweep_id]

    def hold(self, name: str, number: int = 0, keeper_id: int | None = None) -> HeldPartition:
        """Acquire a partition's task and open it."""
        keeper_id = keeper_id or self.keeper()
        task_id = self.parts(name)[number].task_id
        (due,) = self.acquire(keeper_id, [task_id])
        held = HeldPartition(keeper_id, due.id, due.fence)
        assert partitions.open_partition(self.database, held) is not None
        return held

    def flush(self, held: HeldPartition, start: int, errors: int = 0, **more: Any) -> Any:
        return partitions.checkpoint(self.database, held, Checkpoint(start, errors, **more))

    def end(
        self, held: HeldPartition, end: RunEnd = RunEnd.SUCCESS, result: Any = None, **more: Any
    ) -> None:
        """The run of a task of a sweep is over."""
        row = self.task(held.task_id)
        text = None if result is None else msgspec.json.encode(result).decode()
        spec = HandlerSpec(row.target_type, row.type)
        ended = held_tasks.finished_run(
            row, RunOutcome(end, result=text, **more), {spec.key: spec}, "worker"
        )
        assert self.release(held.keeper_id, [ended]) == []

    def hook(self, name: str, result: HookResult | None, **more: Any) -> None:
        """Run the hook that a sweep waits for."""
        keeper_id, task_id = self.keeper(), self.show(name).hook_task_id
        (due,) = self.acquire(keeper_id, [task_id])
        end = RunEnd.ERROR if result is None else RunEnd.SUCCESS
        self.end(HeldPartition(keeper_id, due.id, due.fence), end, result, **more)


def begin(gateway: StubGateway, name: str = "s", **fields: Any) -> int:
    about = {"type": "plain", "total": 100, "start": True, **fields}
    return int(gateway("sweep.create", name=name, **about)["id"])
