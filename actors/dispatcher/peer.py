"""What the dispatcher knows about a registered peer."""

from __future__ import annotations

from dataclasses import dataclass, field

from drumline.domain.dispatch.status import WorkerStatus
from protocol.credit import BundleSender
from protocol.messages import Bundle, Register


@dataclass
class Peer:
    """A registered process."""

    registration: Register
    free_since: float
    bundles: BundleSender[Bundle] = field(default_factory=BundleSender)
    async_keys: frozenset[str] = frozenset()
    """Keys of the async handlers that this worker serves."""
    sync_keys: frozenset[str] = frozenset()
    sweep_keys: frozenset[str] = frozenset()
    """The sync handlers whose tasks are partitions: each occupies a worker while it runs."""
    deadlines: dict[tuple[int, int], float] = field(default_factory=dict)
    """When to kill the long runs, by task id and fence."""
    draining: bool = False

    @classmethod
    def registered(cls, registration: Register, now: float) -> Peer:
        handlers = registration.handlers
        return cls(
            registration,
            free_since=now,
            bundles=BundleSender(registration.held),
            async_keys=frozenset(handler.key for handler in handlers if handler.is_async),
            sync_keys=frozenset(handler.key for handler in handlers if not handler.is_async),
            sweep_keys=frozenset(handler.key for handler in handlers if handler.is_sweep),
        )

    def status(self) -> WorkerStatus:
        """A worker as operators see it."""
        return WorkerStatus(
            name=self.registration.name,
            pid=self.registration.pid,
            keeper=self.registration.keeper_id,
            state="draining" if self.draining else "busy" if self.bundles.held else "free",
            tasks=tuple(sorted(self.bundles.held)[:20]),
            holds=len(self.bundles.held),
        )
