"""`drumline token revoke`: revoke an API token; every node refuses it within seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click
import msgspec

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Text128

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class TokenRevoked(Answer, frozen=True, kw_only=True):
    """The token that was revoked."""

    name: str
    revoked: bool


class TokenRevoke(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "token.revoke"

    token_name: Text128 = msgspec.field(name="name")

    def change(self, tx: Tx, context: Context) -> TokenRevoked:
        store.tokens.revoke(tx, self.token_name)
        return TokenRevoked(name=self.token_name, revoked=True)

    def after_commit(self, context: Context, answer: TokenRevoked) -> None:
        """The scanner is not notified: a token starts no task."""


@groups.token.command("revoke", epilog="drumline token revoke ci")
@click.argument("name", type=option_types.text(128))
@option_types.request_id
def revoke(name: str, request_id: str | None) -> None:
    """Revoke an API token."""
    answer = gateway.change("token.revoke", {"name": name}, request_id)
    output.print_result(answer, f"token {name}: revoked")
