"""`drumline token list`: the API tokens, revoked ones included."""

from __future__ import annotations

from typing import Any, ClassVar

from drumline.cli import gateway, groups, output, paging
from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.base import Context
from drumline.command_layer.fields import iso
from drumline.command_layer.paging import PageQuery
from drumline.domain.roles import Role


class TokenSummary(Answer, frozen=True, kw_only=True):
    """An API token, without the token itself."""

    id: int
    name: str
    role: Role
    created_at: Moment
    last_used_at: Moment | None
    revoked_at: Moment | None


class TokenPage(Answer, frozen=True, kw_only=True):
    """A page of tokens, the newest first."""

    tokens: list[TokenSummary]
    next: int | None
    """The `before` of the next page."""


class TokenList(PageQuery, frozen=True, kw_only=True):
    name: ClassVar[str] = "token.list"

    def answer(self, context: Context) -> TokenPage:
        rows = context.db.read(lambda tx: store.tokens.listed(tx, self.before, self.limit))
        tokens = [
            TokenSummary(
                id=row.id,
                name=row.name,
                role=row.role,
                created_at=iso(row.created_at),
                last_used_at=iso(row.last_used_at),
                revoked_at=iso(row.revoked_at),
            )
            for row in rows
        ]
        return TokenPage(tokens=tokens, next=self.next_page(rows))


@groups.token.command("list", epilog="drumline token list")
@paging.options("tokens")
def list_(**options: Any) -> None:
    """List the API tokens, the newest first. The tokens themselves are not stored."""
    page = gateway.query("token.list", options)
    names = ("id", "name", "role", "created_at", "last_used_at", "revoked_at")
    rows = [[token[name] for name in names] for token in page["tokens"]]
    columns = ("id", "name", "role", "created", "last used", "revoked")
    output.print_table(page, columns, rows, nothing="There are no tokens.")
    output.print_next_page(page["next"])
