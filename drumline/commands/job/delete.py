"""`drumline job delete`: delete a job. Its name becomes free, and its runs stay visible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from drumline.cli import gateway, groups, output
from drumline.command_layer import store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.job import switch
from drumline.commands.job.fields import Key

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class JobDeleted(Answer, frozen=True, kw_only=True):
    """The job that was deleted."""

    id: int
    name: str
    deleted: bool


class JobDelete(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.delete"

    job: Key
    version: Annotated[int, Meta(ge=1)] | None = None
    """The version that was read; if the job has another one, it is not deleted."""

    def change(self, tx: Tx, context: Context) -> JobDeleted:
        row = store.jobs.get(tx, context.settings.region, self.job)
        store.jobs.remove(tx, row, self.version)
        return JobDeleted(id=row.id, name=row.name, deleted=True)


@groups.job.command("delete", epilog="drumline job delete report")
@switch.options
def delete(job: str, version: int | None, request_id: str | None) -> None:
    """Delete a job. Its running tasks continue."""
    answer = gateway.change("job.delete", {"job": job, "version": version}, request_id)
    output.print_result(answer, f"job {answer['id']} {answer['name']}: deleted")
