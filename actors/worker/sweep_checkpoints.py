"""Stores the checkpoints of the runner's partitions and answers with the current directives."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from actors.worker.held_tasks import HeldTask, HeldTasks
from drumline.domain.release import RunEnd, RunOutcome
from drumline.domain.sweeps.partition import PartitionDirectives, PartitionInfo, PartitionResult
from drumline.runner import frames
from drumline.store.sweep import partitions
from drumline.store.sweep.partitions import HeldPartition
from drumline.telemetry import metrics

log = structlog.get_logger()

Reply = Callable[[frames.Frame], None]


class SweepCheckpoints:
    """Connects the runner's partitions with the database."""

    def __init__(
        self,
        held_tasks: HeldTasks,
        is_closing: Callable[[], bool],
        replace_runner: Callable[[], None],
    ) -> None:
        self.held_tasks = held_tasks
        self.is_closing = is_closing
        """While the keeper drains, its partitions are told to stop; other workers continue them."""
        self.replace_runner = replace_runner
        """Kill the runner and give back its tasks."""
        self.starts: dict[int, int] = {}
        """The stored start of each held partition, by task id."""

    def open(self, frame: frames.OpenPartition, reply: Reply) -> None:
        held = self.held_tasks.running.get(frame.task_id)
        if held is None:
            reply(frames.PartitionOpened(frame.task_id, None))
            return
        partition, database = self._held_partition(held), self.held_tasks.database

        def opened(info: PartitionInfo | None) -> None:
            if info is not None:
                self.starts = {frame.task_id: info.start}
            reply(frames.PartitionOpened(frame.task_id, info))

        def failed(error: Exception) -> None:
            log.error("Partition could not be opened", action="open_failed",
                      task_id=frame.task_id, error=str(error))  # fmt: skip
            opened(None)

        self.held_tasks.database_thread.submit(
            lambda: partitions.open_partition(database, partition), opened, failed
        )

    def store(self, frame: frames.StoreCheckpoint, reply: Reply) -> None:
        checkpoint = frame.checkpoint
        held = self.held_tasks.running.get(frame.task_id)
        if held is None:
            reply(frames.CheckpointStored(frame.task_id, checkpoint.start, held=False))
            return
        partition, database = self._held_partition(held), self.held_tasks.database

        def stored(directives: PartitionDirectives | None) -> None:
            if directives is not None:
                self._record_progress(held, checkpoint.start)
                if self.is_closing():
                    directives = msgspec.structs.replace(directives, stop=True)
                if checkpoint.stuck:
                    log.error("Items could not be stopped; killing the runner",
                              action="items_stuck", task_id=frame.task_id,
                              items=list(checkpoint.stuck))  # fmt: skip
                    self.replace_runner()
                    return
            reply(
                frames.CheckpointStored(
                    frame.task_id, checkpoint.start, directives is not None, directives
                )
            )

        def failed(error: Exception) -> None:
            log.error("Checkpoint could not be stored", action="checkpoint_failed",
                      task_id=frame.task_id, error=str(error))  # fmt: skip
            reply(frames.CheckpointStored(frame.task_id, checkpoint.start, held=True))

        self.held_tasks.database_thread.submit(
            lambda: partitions.checkpoint(database, partition, checkpoint), stored, failed
        )

    @staticmethod
    def outcome(result: str | None) -> RunOutcome:
        """The outcome of a partition's run. A partition that stopped by directive is given back;
        if its sweep is being stopped, the stop mark on its task turns that into a cancel."""
        end = msgspec.json.decode(result or "{}", type=PartitionResult)
        stopped = not end.done and end.reason is None
        return RunOutcome(RunEnd.GIVEN_BACK if stopped else RunEnd.SUCCESS, result=result)

    def _record_progress(self, held: HeldTask, start: int) -> None:
        """A partition that moves forward has passed the items it died of: its deaths are cleared,
        as they are in the database."""
        moved = start - self.starts.get(held.task.id, start)
        self.starts[held.task.id] = start
        if moved > 0:
            held.task = msgspec.structs.replace(held.task, deaths=0)
            metrics.sweep_items.labels(held.task.type).inc(moved)

    def _held_partition(self, held: HeldTask) -> HeldPartition:
        return HeldPartition(self.held_tasks.keeper_id, held.task.id, held.task.fence)
