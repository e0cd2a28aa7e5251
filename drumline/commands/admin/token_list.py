"""`drumline token list`: the API tokens, by name and role, also those that were revoked."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import PAGE_LIMIT, Id, Limit, iso


class TokenList(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "token.list"

    before: Id | None = None
    limit: Limit = 50

    def answer(self, context: Context) -> dict[str, Any]:
        rows = context.db.read(lambda tx: store.tokens.listed(tx, self.before, self.limit))
        return {
            "tokens": [
                {
                    "id": row.id,
                    "name": row.name,
                    "role": row.role,
                    "created_at": iso(row.created_at),
                    "last_used_at": iso(row.last_used_at),
                    "revoked_at": iso(row.revoked_at),
                }
                for row in rows
            ],
            "next": rows[-1].id if len(rows) == self.limit else None,
        }


@groups.token.command("list", epilog="drumline token list")
@click.option("--before", type=groups.ID, metavar="ID", help="Only older ones than this token.")
@click.option("--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, show_default=True)
def list_(**options: Any) -> None:
    """List API tokens, the newest first. The tokens themselves are kept nowhere."""
    found = terminal.ask("token.list", options)
    names = ("id", "name", "role", "created_at", "last_used_at", "revoked_at")
    rows = [[one[name] for name in names] for one in found["tokens"]]
    columns = ("id", "name", "role", "created", "last used", "revoked")
    terminal.table(found, columns, rows, nothing="There are no tokens.")
    terminal.more(found["next"])
