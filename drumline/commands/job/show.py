"""`drumline job show`: one job, whole: what it is, when it fires next, what its last run was."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import click
import msgspec

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import from_json, iso
from drumline.commands.job.fields import Key
from drumline.masking import MASK, is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Row

    from drumline.store.tx import Tx

SHOWN_FIRINGS = 5


class JobShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.show"

    job: Key

    def answer(self, context: Context) -> dict[str, Any]:
        def look(tx: Tx) -> dict[str, Any]:
            row = store.jobs.get(tx, context.settings.region, self.job)
            found = described(tx, row)
            upcoming = [iso(at) for at in islice(upcoming_of(tx, row), SHOWN_FIRINGS)]
            earlier = store.decisions.earlier_of(tx, [row])[row.id]
            return found | {
                "next_firings": upcoming,
                "runs_under_way": len(earlier.active),
                "runs_queued": len(earlier.queued),
            }

        return context.db.read(look)


def described(tx: Tx, row: Row[Any]) -> dict[str, Any]:
    """A job as every door shows it. SecretValues in its headers are not for showing."""
    call = row.target_url is not None
    last = store.firings.last_runs(tx, [row.id]).get(row.id)
    return {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "status": row.status,
        "cron_expr": row.cron_expr,
        "timezone": row.timezone,
        "starts_at": iso(row.starts_at),
        "ends_at": iso(row.ends_at),
        "jitter_seconds": row.jitter_seconds,
        "exec_type": row.exec_type,
        "http_method": row.http_method,
        "target_url": row.target_url,
        "headers_json": _masked(row.headers_json),
        "body_template": row.body_template,
        "type": row.type,
        "target_type": row.target_type,
        "param": None if call else from_json(row.param),
        "timeout_seconds": row.timeout_seconds,
        "retry_policy_json": row.retry_policy_json,
        "max_concurrency": row.max_concurrency,
        "concurrency_policy": row.concurrency_policy,
        "overlap_action": row.overlap_action,
        "failure_action": row.failure_action,
        "catch_up_mode": row.catch_up_mode,
        "misfire_grace_seconds": row.misfire_grace_seconds,
        "callback_method": row.callback_method,
        "callback_timeout_sec": row.callback_timeout_sec,
        "priority": row.priority,
        "env": row.env,
        "region": row.region,
        "version": row.version,
        "deleted": bool(row.deleted),
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "next_firing": iso(next(upcoming_of(tx, row), None)),
        "last_run": None if last is None else _run(last),
    }


def upcoming_of(tx: Tx, row: Row[Any]) -> Iterator[int]:
    """When a job fires next; of one that follows its own runs only the planned one is known."""
    if row.status != store.jobs.ENABLED or row.deleted:
        return
    if not row.by_clock:
        yield from store.jobs.next_planned(tx, [row.id]).values()
        return
    schedule = store.jobs.schedule_of(row)
    at = schedule.next_after(tx.now)
    while at is not None:
        yield at
        at = schedule.next_after(at)


def _run(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "status": row.status,
        "cause": row.cause,
        "scheduled_at": iso(row.scheduled_at),
        "finished_at": iso(row.finished_at or None),
    }


def _masked(headers_json: str | None) -> str | None:
    if headers_json is None:
        return None
    headers: dict[str, str] = msgspec.json.decode(headers_json)
    shown = {name: MASK if is_secret_name(name) else value for name, value in headers.items()}
    return msgspec.json.encode(shown).decode()


@groups.job.command(
    "show",
    epilog="""
        drumline job show report
        drumline job show 12 --json | jq .next_firings
    """,
)
@click.argument("job", metavar="JOB", type=terminal.text(128))
def show(job: str) -> None:
    """Show a job by its id or its name."""
    found = terminal.ask("job.show", {"job": job})
    last = found["last_run"]
    shown = found | {
        "next_firings": "\n".join(found["next_firings"]) or None,
        "last_run": last and f"{last['id']}: {last['status']} at {last['scheduled_at']}",
    }
    hidden = {"id", "next_firing", "deleted"}
    pairs = [("job", found["id"]), *((k, v) for k, v in shown.items() if k not in hidden)]
    terminal.record(found, pairs)
