"""What `job enable` and `job disable` have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import click
from msgspec import Meta

from drumline.cli import option_types
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.job.answers import JobSummary, summarise_job
from drumline.commands.job.fields import Key

if TYPE_CHECKING:
    from drumline.store.tx import Tx

F = TypeVar("F", bound=Callable[..., Any])


class JobSwitch(ChangeCommand, frozen=True, kw_only=True):
    """Enables or disables a job."""

    status: ClassVar[str]

    job: Key
    version: Annotated[int, Meta(ge=1)] | None = None
    """The version that was read; if the job has another one, nothing is changed."""

    def change(self, tx: Tx, context: Context) -> JobSummary:
        region = context.settings.region
        row = store.jobs.get(tx, region, self.job)
        store.jobs.switch(tx, row, self.version, self.status)
        return summarise_job(tx, store.jobs.get(tx, region, row.id))


version_option = click.option(
    "--version", type=click.IntRange(1), metavar="N",
    help="Only if the job is still at this version.",
)  # fmt: skip


def options(command: F) -> F:
    """The arguments of `job enable`, `disable` and `delete`."""
    job = click.argument("job", metavar="JOB", type=option_types.text(128))
    return job(version_option(option_types.request_id(command)))
