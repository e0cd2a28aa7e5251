"""`drumline audit list`: who did what, when, through which door, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import (
    PAGE_LIMIT,
    Id,
    Limit,
    Text64,
    Text128,
    Text255,
    from_json,
    iso,
    moment,
)
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from sqlalchemy import Row

COLUMNS = ("actor", "door", "command", "subject", "result", "reason", "request_id")


class AuditList(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "audit.list"

    actor: Text128 | None = None
    """A token's name, or a user of the command line."""
    command: Text64 | None = None
    """As in `job.update`."""
    subject: Text255 | None = None
    """As in `job 12`."""
    result: Text64 | None = None
    """`done`, or the name of an error."""
    since: Annotated[str, Meta(max_length=64)] | None = None
    """ISO 8601 with a zone, or epoch seconds."""
    before: Id | None = None
    """The last one of the previous page."""
    limit: Limit = 50

    def answer(self, context: Context) -> dict[str, Any]:
        rows = context.db.read(
            lambda tx: store.audit.listed(
                tx,
                context.settings.region,
                actor=self.actor,
                command=self.command,
                subject=self.subject,
                result=self.result,
                since=self._since(),
                before=self.before,
                limit=self.limit,
            )
        )
        return {
            "audit": [_described(row) for row in rows],
            "next": rows[-1].id if len(rows) == self.limit else None,
        }

    def _since(self) -> int | None:
        try:
            return None if self.since is None else moment(self.since)
        except WrongUse as error:
            raise WrongUse(field="since", reason=str(error)) from None


def _described(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "at": iso(row.at),
        **{name: row._mapping[name] for name in COLUMNS},
        "arguments": from_json(row.arguments),
    }


@groups.audit.command(
    "list",
    epilog="""
        drumline audit list
        drumline audit list --subject 'job 12' --since 2030-01-01T00:00:00Z
        drumline audit list --actor ci --command batch.submit --json
    """,
)
@click.option("--actor", type=terminal.text(128), help="A token's name, or a user here.")
@click.option("--command", type=terminal.text(64), help="As in job.update.")
@click.option("--subject", type=terminal.text(255), help="As in 'job 12'.")
@click.option("--result", type=terminal.text(64), help="done, or the name of an error.")
@click.option("--since", type=terminal.point_in_time, metavar="TIME", help="Then or later.")
@click.option("--before", type=groups.ID, metavar="ID", help="Only older ones than this entry.")
@click.option("--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, show_default=True)
def list_(**options: Any) -> None:
    """List what was changed or refused, the newest first."""
    found = terminal.ask("audit.list", options)
    names = ("id", "at", "actor", "door", "command", "subject", "result", "reason")
    rows = [[one[name] for name in names] for one in found["audit"]]
    terminal.table(found, names, rows, nothing="Nothing was changed.")
    terminal.more(found["next"])
