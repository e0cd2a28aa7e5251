"""The table of REST endpoints: the command and the required role of each.

A line here is all that a command needs to be available over HTTP. Its fields are the parameters of
the path and the query or the members of the body, and the OpenAPI document is derived from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from drumline.domain.roles import Role

PREFIX = "/api/v1"
BODY_LIMIT = 2 * 1024 * 1024
"""Bytes in a body; twice the limit of a parameter."""
LARGE_LIMIT = 4 * 1024 * 1024
"""For bodies with many tasks. 4 MB raise the gateway's memory from 70 to 96 MB, 8 MB to 107."""
NO_NAMES: Mapping[str, str] = MappingProxyType({})

READ, OPERATE, ADMIN = Role.READ, Role.OPERATE, Role.ADMIN


class Endpoint(NamedTuple):
    """A method and a path, and the command that they run."""

    method: str
    path: str
    command: str
    role: Role | None
    """None: the request needs a callback token in place of an API token."""
    created: str = ""
    """The path of the created resource, filled from the answer; responds with 201 and Location."""
    names: Mapping[str, str] = NO_NAMES
    """Members of the body that differ from the names of their fields, by field."""
    body: str = ""
    """The field that takes the whole body, if any."""
    body_limit: int = BODY_LIMIT
    tagged: bool = False
    """The ETag of the response is the version in the answer."""


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
