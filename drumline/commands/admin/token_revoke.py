"""`drumline token revoke`: a token is good no more, within seconds, on every node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click
import msgspec

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Text128

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class TokenRevoke(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "token.revoke"

    token_name: Text128 = msgspec.field(name="name")

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        store.tokens.revoke(tx, self.token_name)
        return {"name": self.token_name, "revoked": True}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        """Nothing can start by it."""


@groups.token.command("revoke", epilog="drumline token revoke ci")
@click.argument("name", type=terminal.text(128))
@terminal.changes
def revoke(name: str, request_id: str | None) -> None:
    """Take an API token back."""
    done = terminal.change("token.revoke", {"name": name}, request_id)
    terminal.answer(done, f"token {name}: revoked")
