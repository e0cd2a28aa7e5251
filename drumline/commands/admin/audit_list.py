"""`drumline audit list`: the audit trail, the newest entries first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import click
from msgspec import Meta

from drumline.cli import gateway, groups, option_types, output, paging
from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.base import Context
from drumline.command_layer.fields import (
    Text64,
    Text128,
    Text255,
    from_json,
    iso,
    moment,
)
from drumline.command_layer.paging import PageQuery
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.store.rows import AuditRow


class AuditLine(Answer, frozen=True, kw_only=True):
    """A change that was made or refused."""

    id: int
    at: Moment
    actor: str
    """The name of a token, or a user of the CLI."""
    front_end: Literal["control", "rest"]
    """The front end that the command came through: `control` is the control socket."""
    command: str
    subject: str
    """What the command acted on, such as `job 12`."""
    result: str
    """`done`, or the name of an error."""
    reason: str | None
    """The message of the error."""
    request_id: str
    arguments: dict[str, Any]
    """Masked and truncated."""


class AuditPage(Answer, frozen=True, kw_only=True):
    """A page of the audit trail, the newest entries first."""

    audit: list[AuditLine]
    next: int | None
    """The `before` of the next page."""


class AuditList(PageQuery, frozen=True, kw_only=True):
    name: ClassVar[str] = "audit.list"

    actor: Text128 | None = None
    """Only changes by this token or user of the CLI."""
    command: Text64 | None = None
    """Only this command, such as `job.update`."""
    subject: Text255 | None = None
    """Only changes of this subject, such as `job 12`."""
    result: Text64 | None = None
    """Only this result: `done`, or the name of an error."""
    since: Annotated[str, Meta(max_length=64)] | None = None
    """Only changes at or after this time: ISO 8601 with a zone, or epoch seconds."""

    def answer(self, context: Context) -> AuditPage:
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
        return AuditPage(audit=[_describe(row) for row in rows], next=self.next_page(rows))

    def _since(self) -> int | None:
        try:
            return None if self.since is None else moment(self.since)
        except WrongUse as error:
            raise WrongUse(field="since", reason=str(error)) from None


def _describe(row: AuditRow) -> AuditLine:
    return AuditLine(
        id=row.id,
        at=iso(row.at),
        actor=row.actor,
        front_end=row.front_end,
        command=row.command,
        subject=row.subject,
        result=row.result,
        reason=row.reason,
        request_id=row.request_id,
        arguments=from_json(row.arguments),
    )


@groups.audit.command(
    "list",
    epilog="""
        drumline audit list
        drumline audit list --subject 'job 12' --since 2030-01-01T00:00:00Z
        drumline audit list --actor ci --command batch.submit --json
    """,
)
@click.option("--actor", type=option_types.text(128), help="Only changes by this token or user.")
@click.option(
    "--command", type=option_types.text(64), help="Only this command, such as job.update."
)
@click.option(
    "--subject", type=option_types.text(255), help="Only changes of this subject, such as 'job 12'."
)
@click.option(
    "--result", type=option_types.text(64), help="Only this result: done, or the name of an error."
)
@click.option(
    "--since",
    type=option_types.point_in_time,
    metavar="TIME",
    help="Only changes at or after this time.",
)
@paging.options("entries")
def list_(**options: Any) -> None:
    """List the changes that were made or refused, the newest first."""
    page = gateway.query("audit.list", options)
    names = ("id", "at", "actor", "front_end", "command", "subject", "result", "reason")
    rows = [[entry[name] for name in names] for entry in page["audit"]]
    output.print_table(page, names, rows, nothing="There are no such entries.")
    output.print_next_page(page["next"])
