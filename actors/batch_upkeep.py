"""Keeps the status of unfinished batches up to date, for the scanner."""

from __future__ import annotations

import structlog

from drumline.config import Settings
from drumline.domain.states import BATCH_FINISHED
from drumline.errors import DrumlineError, StoreUnavailable
from drumline.store.batch import batches, operations
from drumline.store.database import Database
from drumline.telemetry import metrics

log = structlog.get_logger()

OPERATION_STALLED = 5_000_000
"""Microseconds without progress after which the scanner continues a batch operation."""


class BatchUpkeep:
    """Goes through the unfinished batches, a page a round."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings = settings
        self.database = database
        self._after = 0
        """The last batch of the previous page; 0: the next round starts with the first batch."""

    def run(self) -> bool:
        """Update a page of batches. True: another round has work to do now."""
        region, limit = self.settings.region, self.settings.upkeep_batches
        rows = self.database.read(lambda tx: batches.unfinished(tx, region, self._after, limit))
        self._after = rows[-1].id if len(rows) == limit else 0
        again = len(rows) == limit
        for row in rows:
            try:
                again |= self._update(row.id)
            except StoreUnavailable:
                metrics.upkeep_failures.labels("batch").inc()
                raise
            except DrumlineError as error:
                metrics.upkeep_failures.labels("batch").inc()
                log.error("Batch status update failed", action="upkeep_failed", batch_id=row.id,
                          error=str(error))  # fmt: skip
        return again

    def _update(self, batch_id: int) -> bool:
        """Update one batch. True: a batch operation was continued, which may have more to do."""
        row = self.database.read(lambda tx: batches.get(tx, batch_id))
        continued = False
        if row.operation is not None:
            # The gateway that began the operation is most likely working on it.
            if row.updated_at > self.database.now() - OPERATION_STALLED:
                return False
            operations.run_operation(self.database, batch_id, seconds=1.0)
            continued = True
            row = self.database.read(lambda tx: batches.get(tx, batch_id))
        if batches.is_miscounted(row):
            log.error("Batch counters wrong; recounting", action="recount", batch_id=batch_id)
            self.database.write(lambda tx: batches.recount(tx, batch_id))
            return continued
        if batches.current_status(row) == row.status and row.status not in BATCH_FINISHED:
            return continued
        state = self.database.write(lambda tx: batches.update_status(tx, row))
        if state is not None and state in BATCH_FINISHED and state != row.status:
            log.info("Batch finished", action="batch_finished", batch_id=batch_id,
                     status=state.value)  # fmt: skip
        return continued
