"""`drumline token create`: create an API token with a role."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, ClassVar

import click
import msgspec
from msgspec import UNSET, Meta, UnsetType

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.domain.roles import Role
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx

NAME_LIMIT = 64
LETTERS = re.compile(r"[A-Za-z0-9_.@:-]+")
"""The audit trail shows a token's name as the actor, and URLs contain it."""

TokenName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_LIMIT,
        extra_json_schema={"pattern": f"^{LETTERS.pattern}$"},
    ),
]


class TokenCreated(Answer, frozen=True, kw_only=True):
    """The new token."""

    name: str
    role: Role
    token: str | UnsetType = UNSET
    """The token itself; missing if the request is repeated."""


class TokenCreate(ChangeCommand, frozen=True, kw_only=True):
    """Create an API token. It is shown once; only its hash is stored."""

    name: ClassVar[str] = "token.create"
    secret_answer_fields: ClassVar[frozenset[str]] = frozenset({"token"})

    token_name: TokenName = msgspec.field(name="name")
    role: Role

    def change(self, tx: Tx, context: Context) -> TokenCreated:
        if not LETTERS.fullmatch(self.token_name):
            raise WrongUse(field="name", reason="it has letters, digits, and . _ @ : - only")
        secret = store.tokens.new_token()
        store.tokens.create(tx, self.token_name, self.role, store.tokens.hash_of(secret))
        return TokenCreated(name=self.token_name, role=self.role, token=secret)

    def after_commit(self, context: Context, answer: TokenCreated) -> None:
        """The scanner is not notified: a token starts no task."""


@groups.token.command(
    "create",
    epilog="""
        drumline token create ci --role operate
        drumline token create dashboard --role read --json | jq -r .token
    """,
)
@click.argument("name", type=option_types.text(NAME_LIMIT))
@click.option("--role", required=True, type=click.Choice([role.value for role in Role]),
              help="What the token may do.")  # fmt: skip
@option_types.request_id
def create(name: str, role: str, request_id: str | None) -> None:
    """Create an API token. It is shown only this once."""
    answer = gateway.change("token.create", {"name": name, "role": role}, request_id)
    output.print_result(answer, answer.get("token") or f"token {name}: shown when it was created")
