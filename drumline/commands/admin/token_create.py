"""`drumline token create`: another API token, for someone or something with a role."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
import msgspec
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.domain.roles import Role
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx

NAME_LIMIT = 64
LETTERS = re.compile(r"[A-Za-z0-9_.@:-]+")
"""A name stands in the audit trail as the one who did something, and in paths."""

TokenName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_LIMIT,
        extra_json_schema={"pattern": f"^{LETTERS.pattern}$"},
    ),
]


class TokenCreate(ChangeCommand, frozen=True, kw_only=True):
    """Make an API token. It is told once and kept nowhere; only its hash is."""

    name: ClassVar[str] = "token.create"
    told_once: ClassVar[frozenset[str]] = frozenset({"token"})

    token_name: TokenName = msgspec.field(name="name")
    role: Role

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        if not LETTERS.fullmatch(self.token_name):
            raise WrongUse(field="name", reason="it has letters, digits, and . _ @ : - only")
        secret = store.tokens.new_token()
        store.tokens.create(tx, self.token_name, self.role, store.tokens.hash_of(secret))
        return {"name": self.token_name, "role": self.role, "token": secret}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        """Nothing can start by it."""


@groups.token.command(
    "create",
    epilog="""
        drumline token create ci --role operate
        drumline token create dashboard --role read --json | jq -r .token
    """,
)
@click.argument("name", type=terminal.text(NAME_LIMIT))
@click.option("--role", required=True, type=click.Choice([role.value for role in Role]))
@terminal.changes
def create(name: str, role: str, request_id: str | None) -> None:
    """Make an API token. It is shown this once."""
    done = terminal.change("token.create", {"name": name, "role": role}, request_id)
    terminal.answer(done, done.get("token") or f"token {name}: it was shown when it was made")
