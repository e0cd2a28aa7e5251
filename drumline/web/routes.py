"""The REST interface as a table: which request is which command, and who may send it.

A line here is all that a command needs to be reached over HTTP: its fields are the path's and the
query's parameters or the body's members, checked where every door has them checked, and the
OpenAPI document is made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from drumline.domain.roles import Role

PREFIX = "/api/v1"
BODY_LIMIT = 2 * 1024 * 1024
"""Bytes in a body. The largest parameter that is taken has half of it."""
LARGE_LIMIT = 4 * 1024 * 1024
"""Of one with many tasks. It takes the gateway from 70 MB to 96; one of 8 MB took it to 107."""
NO_NAMES: Mapping[str, str] = MappingProxyType({})

READ, OPERATE, ADMIN = Role.READ, Role.OPERATE, Role.ADMIN


class Endpoint(NamedTuple):
    """One request that can be made."""

    method: str
    path: str
    command: str
    role: Role | None
    """None: whoever comes shows another token than ours (see `callbacks`)."""
    created: str = ""
    """Where that is which it creates, filled with its answer: 201 and a Location."""
    names: Mapping[str, str] = NO_NAMES
    """What fields are called here, where that is not their name."""
    body: str = ""
    """The field that the whole body is, if it is one."""
    body_limit: int = BODY_LIMIT
    tagged: bool = False
    """The answer's version is its ETag."""


BATCH_NAME = MappingProxyType({"batch_name": "name"})

TABLE: tuple[Endpoint, ...] = (
    Endpoint("GET", "/jobs", "job.list", READ),
    Endpoint("POST", "/jobs", "job.create", OPERATE, created="/jobs/{id}", tagged=True),
    Endpoint("GET", "/jobs/{job}", "job.show", READ, tagged=True),
    Endpoint("PATCH", "/jobs/{job}", "job.update", OPERATE, tagged=True),
    Endpoint("DELETE", "/jobs/{job}", "job.delete", OPERATE),
    Endpoint("POST", "/jobs/{job}/enable", "job.enable", OPERATE, tagged=True),
    Endpoint("POST", "/jobs/{job}/disable", "job.disable", OPERATE, tagged=True),
    Endpoint("POST", "/jobs/{job}/trigger", "job.trigger", OPERATE, created="/tasks/{task_id}"),
    Endpoint("GET", "/jobs/{job}/runs", "job.runs", READ),
    Endpoint("GET", "/jobs/{job}/next", "job.next", READ),
    Endpoint("GET", "/cron/next", "job.next", READ),
    Endpoint("GET", "/batches", "batch.list", READ),
    Endpoint("POST", "/batches", "batch.submit", OPERATE, created="/batches/{batch_id}",
             names=BATCH_NAME, body_limit=LARGE_LIMIT),
    Endpoint("GET", "/batches/{batch_id}", "batch.show", READ),
    Endpoint("POST", "/batches/{batch_id}/cancel", "batch.cancel", OPERATE),
    Endpoint("POST", "/batches/{batch_id}/retry", "batch.retry", OPERATE),
    Endpoint("POST", "/batches/{batch_id}/rollback", "batch.rollback", OPERATE),
    Endpoint("POST", "/loads", "batch.open", OPERATE, created="/batches/{batch_id}",
             names=BATCH_NAME),
    Endpoint("POST", "/loads/{batch_id}/targets", "batch.load", OPERATE, body_limit=LARGE_LIMIT),
    Endpoint("POST", "/loads/{batch_id}/start", "batch.start", OPERATE),
    Endpoint("DELETE", "/loads/{batch_id}", "batch.discard", OPERATE),
    Endpoint("GET", "/tasks", "task.list", READ),
    Endpoint("POST", "/tasks", "task.schedule", OPERATE, created="/tasks/{task_id}"),
    Endpoint("POST", "/tasks/many", "task.schedule_many", OPERATE, created="/tasks",
             body_limit=LARGE_LIMIT),
    Endpoint("GET", "/tasks/{task_id}", "task.show", READ),
    Endpoint("PATCH", "/tasks/{task_id}", "task.reschedule", OPERATE),
    Endpoint("POST", "/tasks/{task_id}/cancel", "task.cancel", OPERATE),
    Endpoint("POST", "/tasks/{task_id}/retry", "task.retry", OPERATE),
    Endpoint("GET", "/sweeps", "sweep.list", READ),
    Endpoint("POST", "/sweeps", "sweep.create", OPERATE, created="/sweeps/{id}", tagged=True),
    Endpoint("GET", "/sweeps/{sweep}", "sweep.show", READ, tagged=True),
    Endpoint("PATCH", "/sweeps/{sweep}", "sweep.update", OPERATE, tagged=True),
    Endpoint("POST", "/sweeps/{sweep}/start", "sweep.start", OPERATE, tagged=True),
    Endpoint("POST", "/sweeps/{sweep}/ready", "sweep.ready", OPERATE, tagged=True),
    Endpoint("POST", "/sweeps/{sweep}/stop", "sweep.stop", OPERATE, tagged=True),
    Endpoint("POST", "/sweeps/{sweep}/rerun", "sweep.rerun", OPERATE, created="/sweeps/{id}",
             tagged=True),
    Endpoint("GET", "/sweeps/{sweep}/log", "sweep.log", READ),
    Endpoint("GET", "/sweeps/{sweep}/failed", "sweep.failed", READ),
    Endpoint("GET", "/workers", "worker.list", READ),
    Endpoint("POST", "/workers/{worker}/drain", "worker.drain", ADMIN),
    Endpoint("POST", "/workers/{worker}/kill", "worker.kill", ADMIN),
    Endpoint("GET", "/queue", "queue.show", READ),
    Endpoint("POST", "/queue/pause", "queue.pause", ADMIN),
    Endpoint("POST", "/queue/resume", "queue.resume", ADMIN),
    Endpoint("GET", "/handlers", "handlers.list", READ),
    Endpoint("GET", "/handlers/{type}", "handlers.show", READ),
    Endpoint("GET", "/tokens", "token.list", ADMIN),
    Endpoint("POST", "/tokens", "token.create", ADMIN, created="/tokens"),
    Endpoint("DELETE", "/tokens/{name}", "token.revoke", ADMIN),
    Endpoint("GET", "/audit", "audit.list", READ),
    Endpoint("GET", "/status", "node.status", READ),
    Endpoint("POST", "/callbacks/{task_id}", "callback.receive", None, body="callback"),
    Endpoint("PUT", "/callbacks/{task_id}", "callback.receive", None, body="callback"),
)  # fmt: skip
