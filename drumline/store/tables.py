"""The tables. Times are UTC microseconds; JSON is text; names are the domain's.

Two columns of `task` carry the guarantees:

- `owner`: 0 when anyone may take the task, a keeper's id while that keeper holds it, a negative
  number for others who have it (see TICKER, CALLER) and when nobody may (NOBODY). One index that
  starts with it serves both the scan for due work and the question what a dead keeper still holds,
  so a task's life moves one index entry twice.
- `fence`: the row's version as its last acquire wrote it. It grows with every acquire of a task,
  and every write of a run says `owner = me AND fence = mine`.

What changes in the life of every task has the same size all along, so `started_at` is 0 before the
start: a row that grows is written anew, which took MariaDB twice as long.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    SmallInteger,
    String,
    UniqueConstraint,
)

from drumline.domain.alarms import AlarmEvent
from drumline.domain.jobs.catch_up import CatchUpMode
from drumline.domain.jobs.firing import ConcurrencyPolicy, FailureAction, FiringKind, OverlapAction
from drumline.domain.roles import Role
from drumline.domain.states import (
    BatchOperation,
    BatchState,
    Cause,
    KeeperState,
    Phase,
    TaskState,
)
from drumline.domain.sweeps.states import SweepState
from drumline.store.columns import Blob, Choice, Document, Id, Name, Word, index_if_set, table, zero

ANYONE = 0
"""`task.owner` of a due or future task: any keeper may acquire it."""
TICKER = -1
"""`task.owner` of an undecided firing: the ticker decides it at its time."""
CALLER = -2
"""`task.owner` of a run that waits for its callback until `due_at`."""
NOBODY = -3
"""`task.owner` of a task that is finished, is still being loaded, or is queued by its job."""


NO_STOP, STOP_CANCEL, STOP_KILL = 0, 1, 2
"""`task.stop`: what an operator requested of a running task."""


def count_column(state: TaskState) -> str:
    """The batch column that counts tasks in this state."""
    return f"n_{state.value}"


task = table(
    "task",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("region", Word, nullable=False),
    Column("batch_id", BigInteger),
    Column("type", Name, nullable=False),
    Column("target_type", Name, nullable=False),
    Column("target_id", String(255)),
    Column("target_name", String(255)),
    Column("target_env", String(64)),
    Column("env", String(64)),
    Column("job_id", BigInteger),
    Column("active_job_id", BigInteger),
    Column("scheduled_at", BigInteger),
    Column("run_attempt", Integer),
    Column("fired_by", Choice(FiringKind)),
    Column("trace_id", String(32)),
    Column("instance_id", String(255)),
    Column("unique_key", String(255)),
    Column("param", Document),
    Column("before_update", Document),
    Column("after_update", Document),
    Column("status", Choice(TaskState), nullable=False),
    Column("cause", Choice(Cause)),
    Column("info", Document),
    Column("priority", SmallInteger, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("timeout_ms", Integer, nullable=False),
    Column("retry", String(1024)),
    Column("callback", Document),
    zero("attempt", Integer),
    zero("retry_time", Integer),
    zero("failures", Integer),
    zero("deaths", Integer),
    Column("last_failure_at", BigInteger),
    Column("owner", BigInteger, nullable=False),
    zero("fence", BigInteger),
    zero("version", BigInteger),
    zero("stop", SmallInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    zero("started_at", BigInteger),
    zero("finished_at", BigInteger),
    index_if_set("uq_task_unique_key", "unique_key", unique=True),
    index_if_set("uq_task_job_id_scheduled_at", "job_id", "scheduled_at", unique=True),
    index_if_set("ix_task_active_job", "active_job_id", "scheduled_at"),
    Index("ix_task_queue", "region", "owner", "priority", "due_at", "id"),
    Index("ix_task_batch", "batch_id", "id"),
)

job = table(
    "job",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("region", Word, nullable=False),
    Column("name", Name, nullable=False),
    Column("unique_name", String(161)),
    Column("description", String(512)),
    Column("cron_expr", String(255), nullable=False),
    Column("timezone", String(64), nullable=False),
    Column("starts_at", BigInteger),
    Column("ends_at", BigInteger),
    Column("jitter_seconds", Integer, nullable=False),
    Column("by_clock", Boolean, nullable=False),
    Column("type", Name, nullable=False),
    Column("target_type", Name, nullable=False),
    Column("param", Document),
    Column("exec_type", Word, nullable=False),
    Column("http_method", Word),
    Column("target_url", Document),
    Column("headers_json", Document),
    Column("body_template", Document),
    Column("timeout_seconds", Integer, nullable=False),
    Column("timeout_ms", Integer, nullable=False),
    Column("retry_policy_json", Document),
    Column("retry", String(1024)),
    Column("priority", SmallInteger, nullable=False),
    Column("env", String(64)),
    Column("max_concurrency", Integer, nullable=False),
    Column("concurrency_policy", Choice(ConcurrencyPolicy), nullable=False),
    Column("overlap_action", Choice(OverlapAction), nullable=False),
    Column("failure_action", Choice(FailureAction), nullable=False),
    Column("catch_up_mode", Choice(CatchUpMode), nullable=False),
    Column("misfire_grace_seconds", Integer, nullable=False),
    Column("callback_method", Word),
    Column("callback_timeout_sec", Integer),
    Column("status", Word, nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("decision", BigInteger, nullable=False),
    Column("fired_until", BigInteger, nullable=False),
    Column("queued", Boolean, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("unique_name"),
    Index("ix_job_due", "region", "status", "by_clock", "fired_until"),
    Index("ix_job_queued", "region", "queued"),
)

batch = table(
    "batch",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("region", Word, nullable=False),
    Column("name", String(255), nullable=False),
    Column("batch_type", Name, nullable=False),
    Column("target_type", Name, nullable=False),
    Column("creator", String(128)),
    Column("cmdb_service", String(255)),
    Column("env", String(64)),
    Column("az", String(64)),
    Column("extra_info", Document),
    Column("status", Choice(BatchState), nullable=False),
    Column("phase", Choice(Phase), nullable=False),
    Column("finished", Boolean, nullable=False),
    Column("operation", Choice(BatchOperation)),
    Column("operation_after", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    *(
        Column(count_column(state), BigInteger, nullable=False, server_default="0")
        for state in TaskState
    ),
    Column("version", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("phase_at", BigInteger, nullable=False),
    Index("ix_batch_unfinished", "region", "finished", "id"),
)

sweep = table(
    "sweep",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("region", Word, nullable=False),
    Column("name", Name, nullable=False),
    Column("unique_name", String(161), nullable=False),
    Column("type", Name, nullable=False),
    Column("state", Choice(SweepState), nullable=False),
    Column("reason", Document),
    Column("first_index", BigInteger, nullable=False),
    Column("end_index", BigInteger),
    Column("items", Document),
    Column("item_list", Document),
    Column("identity", Document),
    Column("total", BigInteger),
    Column("rate", Double),
    Column("parallel", Integer),
    Column("errors", BigInteger),
    Column("partitions", Integer, nullable=False),
    Column("extra", Document),
    Column("creator", String(128)),
    Column("rerun_of", BigInteger),
    Column("checked", Boolean, nullable=False),
    Column("stop_requested", Boolean, nullable=False),
    Column("errors_at_start", BigInteger, nullable=False),
    Column("hook_task_id", BigInteger),
    Column("version", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger),
    UniqueConstraint("unique_name"),
    Index("ix_sweep_state", "region", "state", "id"),
    Index("ix_sweep_hook", "hook_task_id"),
)
"""`stop_requested`: since the last start. `checked`: the create hook has agreed.
`total` is what the source has; the sweep goes from `first_index` to before `end_index`, which is
empty until the source was counted. `errors` is the budget."""

sweep_partition = table(
    "sweep_partition",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("sweep_id", BigInteger, nullable=False),
    Column("number", Integer, nullable=False),
    Column("first_index", BigInteger, nullable=False),
    Column("end_index", BigInteger, nullable=False),
    Column("start_index", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("failed_kept", Integer, nullable=False),
    Column("stuck", Document),
    Column("speed", Double, nullable=False),
    Column("running", Boolean, nullable=False),
    Column("task_id", BigInteger),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("sweep_id", "number"),
    Index("ix_sweep_partition_task", "task_id"),
)
"""Every item before `start_index` is done, and `errors` of them failed. `task_id` is the task that
runs the partition or waits to; NULL while the sweep does not run."""

sweep_failed = table(
    "sweep_failed",
    Column("sweep_id", BigInteger, primary_key=True, autoincrement=False),
    Column("item", BigInteger, primary_key=True, autoincrement=False),
    Column("created_at", BigInteger, nullable=False),
)

sweep_log = table(
    "sweep_log",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("sweep_id", BigInteger, nullable=False),
    Column("item", BigInteger, nullable=False),
    Column("message", Document, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index("ix_sweep_log_sweep", "sweep_id", "id"),
)

result = table(
    "result",
    Column("task_id", BigInteger, primary_key=True, autoincrement=False),
    Column("value", Document, nullable=False),
)

attempt = table(
    "attempt",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("task_id", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("cause", Choice(Cause), nullable=False),
    Column("info", Document),
    Column("worker", String(128)),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger, nullable=False),
    Index("ix_attempt_task", "task_id", "id"),
)

keeper = table(
    "keeper",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("name", String(128), nullable=False),
    Column("region", Word, nullable=False),
    Column("node", String(64), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("pid_started", BigInteger, nullable=False),
    Column("state", Choice(KeeperState), nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("beat_at", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Index("ix_keeper_state", "region", "state"),
)

handler = table(
    "handler",
    Column("region", Word, primary_key=True),
    Column("target_type", Name, primary_key=True),
    Column("type", Name, primary_key=True),
    Column("spec", Blob),
    Column("updated_at", BigInteger, nullable=False),
)

request = table(
    "request",
    Column("id", String(64), primary_key=True),
    Column("command", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("answer", Document),
    Column("created_at", BigInteger, nullable=False),
    Index("ix_request_created", "created_at"),
)

secret = table(
    "secret",
    Column("name", Word, primary_key=True),
    Column("value", String(128), nullable=False),
)

pause = table(
    "pause",
    Column("region", Word, primary_key=True),
    Column("type", Name, primary_key=True),
    Column("created_at", BigInteger, nullable=False),
)

token = table(
    "token",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("name", Name, nullable=False),
    Column("live_name", Name),
    Column("role", Choice(Role), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("last_used_at", BigInteger),
    Column("revoked_at", BigInteger),
    UniqueConstraint("live_name"),
    UniqueConstraint("hash"),
)
"""`live_name` becomes NULL when a token is revoked, which frees its name."""

audit = table(
    "audit",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("region", Word, nullable=False),
    Column("actor", Name, nullable=False),
    Column("front_end", Word, nullable=False),
    Column("command", String(64), nullable=False),
    Column("subject", String(255), nullable=False),
    Column("arguments", Document, nullable=False),
    Column("result", String(64), nullable=False),
    Column("reason", String(512)),
    Column("request_id", String(64), nullable=False),
    Index("ix_audit_at", "at"),
    Index("ix_audit_actor", "actor", "id"),
    Index("ix_audit_subject", "subject", "id"),
)

alarm = table(
    "alarm",
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("region", Word, nullable=False),
    Column("hook", Name, nullable=False),
    Column("event", Choice(AlarmEvent), nullable=False),
    Column("event_id", Word, nullable=False),
    Column("body", Document, nullable=False),
    Column("state", Word, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("error", String(512)),
    Column("version", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index("ix_alarm_due", "region", "state", "due_at"),
    Index("ix_alarm_created", "region", "created_at"),
)
