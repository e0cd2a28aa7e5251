"""A keeper's part in sweeps: it stores its runner's checkpoints and answers with what is live."""

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

Answer = Callable[[frames.Frame], None]


class SweepCheckpoints:
    """Between a runner and the database, for the partitions that the runner runs."""

    def __init__(
        self, ledger: HeldTasks, is_closing: Callable[[], bool], renew: Callable[[], None]
    ) -> None:
        self.ledger = ledger
        self.is_closing = is_closing
        """A keeper that drains has its partitions stop, for others to go on with."""
        self.renew = renew
        """Replace the runner, and give back what it has."""
        self.starts: dict[int, int] = {}
        """How far the partitions are that we hold."""

    def open(self, frame: frames.OpenPartition, answer: Answer) -> None:
        hold = self.ledger.holds.get(frame.task_id)
        if hold is None:
            answer(frames.PartitionOpened(frame.task_id, None))
            return
        held, database = self._held(hold), self.ledger.database

        def opened(part: PartitionInfo | None) -> None:
            if part is not None:
                self.starts = {frame.task_id: part.start}
            answer(frames.PartitionOpened(frame.task_id, part))

        def failed(error: Exception) -> None:
            log.error("A partition could not be opened.", action="open_failed",
                      task_id=frame.task_id, error=str(error))  # fmt: skip
            opened(None)

        self.ledger.thread.submit(lambda: partitions.open_part(database, held), opened, failed)

    def flush(self, frame: frames.StoreCheckpoint, answer: Answer) -> None:
        hold = self.ledger.holds.get(frame.task_id)
        if hold is None:
            answer(frames.CheckpointStored(frame.task_id, frame.checkpoint.start, ours=False))
            return
        held, database = self._held(hold), self.ledger.database
        point = frame.checkpoint

        def stored(live: PartitionDirectives | None) -> None:
            ours = live is not None
            if ours:
                self._progress(hold, point.start)
            if live is not None and self.is_closing():
                live = msgspec.structs.replace(live, stop=True)
            if ours and point.stuck:
                log.error("Items could not be stopped; their runner is killed.",
                          action="items_stuck", task_id=frame.task_id,
                          items=list(point.stuck))  # fmt: skip
                self.renew()
            else:
                answer(frames.CheckpointStored(frame.task_id, point.start, ours, live))

        def failed(error: Exception) -> None:
            log.error("A checkpoint could not be stored.", action="flush_failed",
                      task_id=frame.task_id, error=str(error))  # fmt: skip
            answer(frames.CheckpointStored(frame.task_id, point.start, ours=True))

        self.ledger.thread.submit(
            lambda: partitions.checkpoint(database, held, point), stored, failed
        )

    def outcome(self, result: str | None) -> RunOutcome:
        """What a partition came to. One that was told to stop goes back; if its sweep is being
        stopped, its task is marked, and will be cancelled instead."""
        end = msgspec.json.decode(result or "{}", type=PartitionResult)
        told = not end.done and end.reason is None
        return RunOutcome(RunEnd.GIVEN_BACK if told else RunEnd.SUCCESS, result=result)

    def _progress(self, hold: HeldTask, start: int) -> None:
        """What moves forward has got past whatever it died of before; so the database has it."""
        moved = start - self.starts.get(hold.due.id, start)
        self.starts[hold.due.id] = start
        if moved > 0:
            hold.due = msgspec.structs.replace(hold.due, deaths=0)
            metrics.sweep_items.labels(hold.due.type).inc(moved)

    def _held(self, hold: HeldTask) -> HeldPartition:
        return HeldPartition(self.ledger.keeper_id, hold.due.id, hold.due.fence)
