"""What a token may do. Each role may do what the one before it may, and more."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    READ = "read"
    """Look at everything but tokens."""
    OPERATE = "operate"
    """Also change batches, tasks, jobs and sweeps."""
    ADMIN = "admin"
    """Also steer workers and the queue, and give and take tokens."""

    def covers(self, needed: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)
