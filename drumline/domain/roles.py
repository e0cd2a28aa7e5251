"""The roles of API tokens. Each role includes the permissions of the one before it."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    READ = "read"
    """Read everything except tokens."""
    OPERATE = "operate"
    """In addition, change batches, tasks, jobs and sweeps."""
    ADMIN = "admin"
    """In addition, control workers and the queue, and create and revoke tokens."""

    def covers(self, needed: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)
