"""`drumline sweep show`: one sweep, whole: what it is, how far it is, and why it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import from_json, iso
from drumline.domain.sweeps.sweep import (
    ENDED,
    LONGEST_NAME,
    PartitionProgress,
    SweepState,
    sum_progress,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Row

    from drumline.store.tx import Tx

Key = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)] | Annotated[int, Meta(ge=1)]
"""A sweep's name or its id."""


class SweepShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.show"

    sweep: Key

    def answer(self, context: Context) -> dict[str, Any]:
        def look(tx: Tx) -> dict[str, Any]:
            row = store.sweeps.get(tx, context.settings.region, self.sweep)
            parts = store.sweeps.parts_of(tx, [row.id])[row.id]
            return described(row, parts) | {"parts": [_part(part) for part in parts]}

        return context.db.read(look)


def shown(tx: Tx, row: Row[Any]) -> dict[str, Any]:
    """A sweep as the commands that change it answer."""
    return described(row, store.sweeps.parts_of(tx, [row.id])[row.id])


def described(row: Row[Any], parts: Sequence[Row[Any]]) -> dict[str, Any]:
    """A sweep as every door shows it."""
    seen = sum_progress(
        PartitionProgress(
            part.first_index, part.end_index, part.start_index, part.errors, part.speed
        )
        for part in parts
    )
    counted = row.end_index is not None
    return {
        "id": row.id,
        "name": row.name,
        "type": row.type,
        "state": row.state,
        "reason": row.reason,
        "finished": row.state in ENDED,
        "total": row.end_index - row.first_index if counted else None,
        "done": seen.done,
        "errors": seen.errors,
        "speed": round(seen.speed, 3),
        "eta_seconds": seen.eta if parts and row.state == SweepState.RUNNING else None,
        "first": row.first_index,
        "end": row.end_index,
        "items": row.items,
        "rate": row.rate,
        "parallel": row.parallel,
        "error_budget": row.errors,
        "partitions": row.partitions,
        "running": sum(bool(part.running) for part in parts),
        "checked": bool(row.checked),
        "extra": from_json(row.extra),
        "creator": row.creator,
        "rerun_of": row.rerun_of,
        "hook_task_id": row.hook_task_id,
        "region": row.region,
        "version": row.version,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
    }


def _part(part: Row[Any]) -> dict[str, Any]:
    return {
        "number": part.number,
        "first": part.first_index,
        "end": part.end_index,
        "start": part.start_index,
        "errors": part.errors,
        "speed": round(part.speed, 3),
        "running": bool(part.running),
        "task_id": part.task_id,
        "updated_at": iso(part.updated_at),
    }


def said(found: dict[str, Any]) -> str:
    """One line about a sweep."""
    of = "" if found["total"] is None else f" of {found['total']:,}"
    line = f"sweep {found['id']} {found['name']}: {terminal.coloured(found['state'])}"
    line += f", {found['done']:,}{of} done, {terminal.counted(found['errors'], 'error')}"
    return f"{line}: {found['reason']}" if found["reason"] else line


@groups.sweep.command(
    "show",
    epilog="""
        drumline sweep show june
        drumline sweep show 12 --json | jq .done
    """,
)
@click.argument("sweep", metavar="SWEEP", type=terminal.text(LONGEST_NAME))
def show(sweep: str) -> None:
    """Show a sweep by its id or its name."""
    found = terminal.ask("sweep.show", {"sweep": sweep})
    parts = [
        f"{p['number']}: {p['start']:,} of {p['first']:,} to {p['end']:,}"
        + (f", {p['speed']:,.0f}/s in task {p['task_id']}" if p["running"] else "")
        for p in found["parts"]
    ]
    hidden = {"id", "parts", "finished", "hook_task_id"}
    pairs = [("sweep", found["id"]), *((k, v) for k, v in found.items() if k not in hidden)]
    terminal.record(found, [*pairs, ("parts", "\n".join(parts) or None)])
