"""The first schema, before any release. It is frozen: a change is a new migration."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, sqlite

revision = "0001"
down_revision = None

Id = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
Blob = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")
Document = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
Word = sa.String(32).with_variant(
    mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), "mysql", "mariadb"
)
Name = sa.String(128).with_variant(
    mysql.VARCHAR(128, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


# MariaDB commits each DDL statement by itself. Tables and indexes that exist are skipped, so that
# an interrupted upgrade can be repeated, and two nodes that upgrade at once end with one schema.


def create(name: str, *parts: Any) -> None:
    if sa.inspect(op.get_bind()).has_table(name):
        return
    op.create_table(
        name,
        *parts,
        # Ids are never reused, so a late message cannot name a row other than its own.
        sqlite_autoincrement=any(getattr(part, "autoincrement", None) is True for part in parts),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )


def index(name: str, table: str, *columns: str, unique: bool = False, if_set: bool = False) -> None:
    """If set: rows whose first column is NULL are left out on SQLite, where that is possible."""
    if name in {found["name"] for found in sa.inspect(op.get_bind()).get_indexes(table)}:
        return
    where = {"sqlite_where": sa.text(f"{columns[0]} IS NOT NULL")} if if_set else {}
    op.create_index(name, table, list(columns), unique=unique, **where)


def upgrade() -> None:
    create(
        "task",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("region", Word, nullable=False),
        sa.Column("batch_id", sa.BigInteger()),
        sa.Column("type", Name, nullable=False),
        sa.Column("target_type", Name, nullable=False),
        sa.Column("target_id", sa.String(255)),
        sa.Column("target_name", sa.String(255)),
        sa.Column("target_env", sa.String(64)),
        sa.Column("env", sa.String(64)),
        sa.Column("job_id", sa.BigInteger()),
        sa.Column("active_job_id", sa.BigInteger()),
        sa.Column("scheduled_at", sa.BigInteger()),
        sa.Column("run_attempt", sa.Integer()),
        sa.Column("fired_by", Word),
        sa.Column("trace_id", sa.String(32)),
        sa.Column("instance_id", sa.String(255)),
        sa.Column("unique_key", sa.String(255)),
        sa.Column("param", Document),
        sa.Column("before_update", Document),
        sa.Column("after_update", Document),
        sa.Column("status", Word, nullable=False),
        sa.Column("cause", Word),
        sa.Column("info", Document),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("timeout_ms", sa.Integer(), nullable=False),
        sa.Column("retry", sa.String(1024)),
        sa.Column("callback", Document),
        sa.Column("attempt", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("retry_time", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("deaths", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("last_failure_at", sa.BigInteger()),
        sa.Column("owner", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("version", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("stop", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("finished_at", sa.BigInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_task"),
    )
    index("ix_task_active_job", "task", "active_job_id", "scheduled_at", if_set=True)
    index("ix_task_batch", "task", "batch_id", "id")
    index("ix_task_queue", "task", "region", "owner", "priority", "due_at", "id")
    index("uq_task_job_id_scheduled_at", "task", "job_id", "scheduled_at", unique=True, if_set=True)
    index("uq_task_unique_key", "task", "unique_key", unique=True, if_set=True)

    create(
        "job",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("region", Word, nullable=False),
        sa.Column("name", Name, nullable=False),
        sa.Column("unique_name", sa.String(161)),
        sa.Column("description", sa.String(512)),
        sa.Column("cron_expr", sa.String(255), nullable=False),
        sa.Column("timezone", sa.String(64), nullable=False),
        sa.Column("starts_at", sa.BigInteger()),
        sa.Column("ends_at", sa.BigInteger()),
        sa.Column("jitter_seconds", sa.Integer(), nullable=False),
        sa.Column("by_clock", sa.Boolean(), nullable=False),
        sa.Column("type", Name, nullable=False),
        sa.Column("target_type", Name, nullable=False),
        sa.Column("param", Document),
        sa.Column("exec_type", Word, nullable=False),
        sa.Column("http_method", Word),
        sa.Column("target_url", Document),
        sa.Column("headers_json", Document),
        sa.Column("body_template", Document),
        sa.Column("timeout_seconds", sa.Integer(), nullable=False),
        sa.Column("timeout_ms", sa.Integer(), nullable=False),
        sa.Column("retry_policy_json", Document),
        sa.Column("retry", sa.String(1024)),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("env", sa.String(64)),
        sa.Column("max_concurrency", sa.Integer(), nullable=False),
        sa.Column("concurrency_policy", Word, nullable=False),
        sa.Column("overlap_action", Word, nullable=False),
        sa.Column("failure_action", Word, nullable=False),
        sa.Column("catch_up_mode", Word, nullable=False),
        sa.Column("misfire_grace_seconds", sa.Integer(), nullable=False),
        sa.Column("callback_method", Word),
        sa.Column("callback_timeout_sec", sa.Integer()),
        sa.Column("status", Word, nullable=False),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("decision", sa.BigInteger(), nullable=False),
        sa.Column("fired_until", sa.BigInteger(), nullable=False),
        sa.Column("queued", sa.Boolean(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_job"),
        sa.UniqueConstraint("unique_name", name="uq_job_unique_name"),
    )
    index("ix_job_due", "job", "region", "status", "by_clock", "fired_until")
    index("ix_job_queued", "job", "region", "queued")

    create(
        "batch",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("region", Word, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("batch_type", Name, nullable=False),
        sa.Column("target_type", Name, nullable=False),
        sa.Column("creator", sa.String(128)),
        sa.Column("cmdb_service", sa.String(255)),
        sa.Column("env", sa.String(64)),
        sa.Column("az", sa.String(64)),
        sa.Column("extra_info", Document),
        sa.Column("status", Word, nullable=False),
        sa.Column("phase", Word, nullable=False),
        sa.Column("finished", sa.Boolean(), nullable=False),
        sa.Column("operation", Word),
        sa.Column("operation_after", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("n_scheduled", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_pending", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_running", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_waiting_callback", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_success", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_fail", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_retry_pending", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_cancel", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_skipped", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_rollback_pending", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_rollback_running", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_rollback_success", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("n_rollback_fail", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("phase_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_batch"),
    )
    index("ix_batch_unfinished", "batch", "region", "finished", "id")

    create(
        "sweep",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("region", Word, nullable=False),
        sa.Column("name", Name, nullable=False),
        sa.Column("unique_name", sa.String(161), nullable=False),
        sa.Column("type", Name, nullable=False),
        sa.Column("state", Word, nullable=False),
        sa.Column("reason", Document),
        sa.Column("first_index", sa.BigInteger(), nullable=False),
        sa.Column("end_index", sa.BigInteger()),
        sa.Column("items", Document),
        sa.Column("item_list", Document),
        sa.Column("identity", Document),
        sa.Column("total", sa.BigInteger()),
        sa.Column("rate", sa.Double()),
        sa.Column("parallel", sa.Integer()),
        sa.Column("errors", sa.BigInteger()),
        sa.Column("partitions", sa.Integer(), nullable=False),
        sa.Column("extra", Document),
        sa.Column("creator", sa.String(128)),
        sa.Column("rerun_of", sa.BigInteger()),
        sa.Column("checked", sa.Boolean(), nullable=False),
        sa.Column("stop_requested", sa.Boolean(), nullable=False),
        sa.Column("errors_at_start", sa.BigInteger(), nullable=False),
        sa.Column("hook_task_id", sa.BigInteger()),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("finished_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_sweep"),
        sa.UniqueConstraint("unique_name", name="uq_sweep_unique_name"),
    )
    index("ix_sweep_hook", "sweep", "hook_task_id")
    index("ix_sweep_state", "sweep", "region", "state", "id")

    create(
        "sweep_partition",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("sweep_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("first_index", sa.BigInteger(), nullable=False),
        sa.Column("end_index", sa.BigInteger(), nullable=False),
        sa.Column("start_index", sa.BigInteger(), nullable=False),
        sa.Column("errors", sa.BigInteger(), nullable=False),
        sa.Column("failed_kept", sa.Integer(), nullable=False),
        sa.Column("stuck", Document),
        sa.Column("speed", sa.Double(), nullable=False),
        sa.Column("running", sa.Boolean(), nullable=False),
        sa.Column("task_id", sa.BigInteger()),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sweep_partition"),
        sa.UniqueConstraint("sweep_id", "number", name="uq_sweep_partition_sweep_id_number"),
    )
    index("ix_sweep_partition_task", "sweep_partition", "task_id")

    create(
        "sweep_failed",
        sa.Column("sweep_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("item", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sweep_id", "item", name="pk_sweep_failed"),
    )

    create(
        "sweep_log",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("sweep_id", sa.BigInteger(), nullable=False),
        sa.Column("item", sa.BigInteger(), nullable=False),
        sa.Column("message", Document, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sweep_log"),
    )
    index("ix_sweep_log_sweep", "sweep_log", "sweep_id", "id")

    create(
        "result",
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("value", Document, nullable=False),
        sa.PrimaryKeyConstraint("task_id", name="pk_result"),
    )

    create(
        "attempt",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cause", Word, nullable=False),
        sa.Column("info", Document),
        sa.Column("worker", sa.String(128)),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("finished_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_attempt"),
    )
    index("ix_attempt_task", "attempt", "task_id", "id")

    create(
        "keeper",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("region", Word, nullable=False),
        sa.Column("node", sa.String(64), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("pid_started", sa.BigInteger(), nullable=False),
        sa.Column("state", Word, nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("beat_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_keeper"),
    )
    index("ix_keeper_state", "keeper", "region", "state")

    create(
        "handler",
        sa.Column("region", Word, nullable=False),
        sa.Column("target_type", Name, nullable=False),
        sa.Column("type", Name, nullable=False),
        sa.Column("spec", Blob),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("region", "target_type", "type", name="pk_handler"),
    )

    create(
        "request",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("command", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("answer", Document),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_request"),
    )
    index("ix_request_created", "request", "created_at")

    create(
        "secret",
        sa.Column("name", Word, nullable=False),
        sa.Column("value", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_secret"),
    )

    create(
        "pause",
        sa.Column("region", Word, nullable=False),
        sa.Column("type", Name, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("region", "type", name="pk_pause"),
    )

    create(
        "token",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("name", Name, nullable=False),
        sa.Column("live_name", Name),
        sa.Column("role", Word, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger()),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
        sa.UniqueConstraint("live_name", name="uq_token_live_name"),
        sa.UniqueConstraint("hash", name="uq_token_hash"),
    )

    create(
        "audit",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("region", Word, nullable=False),
        sa.Column("actor", Name, nullable=False),
        sa.Column("front_end", Word, nullable=False),
        sa.Column("command", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("arguments", Document, nullable=False),
        sa.Column("result", sa.String(64), nullable=False),
        sa.Column("reason", sa.String(512)),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    index("ix_audit_actor", "audit", "actor", "id")
    index("ix_audit_at", "audit", "at")
    index("ix_audit_subject", "audit", "subject", "id")

    create(
        "alarm",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("region", Word, nullable=False),
        sa.Column("hook", Name, nullable=False),
        sa.Column("event", Word, nullable=False),
        sa.Column("event_id", Word, nullable=False),
        sa.Column("body", Document, nullable=False),
        sa.Column("state", Word, nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.String(512)),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alarm"),
    )
    index("ix_alarm_created", "alarm", "region", "created_at")
    index("ix_alarm_due", "alarm", "region", "state", "due_at")
