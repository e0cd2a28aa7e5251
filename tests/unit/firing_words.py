"""Short names for decisions on firings."""

from __future__ import annotations

from drumline.domain.jobs.firing import ConcurrencyPolicy, FailureAction, FiringKind, OverlapAction
from drumline.domain.states import TaskState

PENDING, QUEUED, SKIPPED = TaskState.PENDING, TaskState.SCHEDULED, TaskState.SKIPPED
MANUAL = FiringKind.MANUAL
OVERLAP, FAILURE, CONCURRENCY = OverlapAction, FailureAction, ConcurrencyPolicy
