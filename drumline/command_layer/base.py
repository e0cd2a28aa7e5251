"""What a command is: its message, its server half, and (beside it, in its file) its CLI half.

The message is a struct: its fields are the command's arguments, checked wherever they come from.
A `Query` answers; a `Change` is done at most once for a request id, in one transaction with its
answer, and may then have effects outside of the database, each harmless when repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from drumline.command_layer.fields import invalid_field
from drumline.config import Settings
from drumline.errors import Conflict, WrongUse

if TYPE_CHECKING:
    from drumline.domain.dispatch.status import QueueStatus, WorkerStatus
    from drumline.store.database import Database
    from drumline.store.tx import Tx

REQUEST_ID_LIMIT = 64
TRIES = 5


class DispatcherClient(Protocol):
    """Requests to this node's dispatcher. Each raises NotReachable if it does not answer."""

    def queue_status(self) -> QueueStatus: ...

    def worker_statuses(self) -> tuple[WorkerStatus, ...]: ...

    def drain_worker(self, name: str, /) -> bool:
        """False: no worker of this name is registered."""

    def kill_task(self, task_id: int, /) -> bool:
        """False: no worker of this node holds the task."""


class Context(msgspec.Struct, frozen=True):
    """What a server half may use."""

    settings: Settings
    database: Any
    dispatcher: DispatcherClient
    ring: Callable[..., None]
    """Tell that there is something new: `ring()`, or `ring(dues)` with what is due already."""
    actor: str = ""
    door: str = "control"
    """Through which the command came."""

    @property
    def db(self) -> Database:
        return self.database  # type: ignore[no-any-return]  # Any above keeps SQL out of the CLI


class Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The root of all commands."""

    name: ClassVar[str]


class QueryCommand(Command, frozen=True, kw_only=True):
    """A command that changes nothing."""

    def answer(self, context: Context) -> dict[str, Any]:
        raise WrongUse(reason=f"{self.name} has no answer")


class ChangeCommand(Command, frozen=True, kw_only=True):
    """A command that changes something."""

    told_once: ClassVar[frozenset[str]] = frozenset()
    """Parts of the answer that are not kept with the request: secrets."""
    audited: ClassVar[bool] = True
    """Is it something that people do? Each is one line of the audit trail."""

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        """Inside the transaction. The answer is kept with the request."""
        raise WrongUse(reason=f"{self.name} changes nothing")

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        """After the commit, and again if the request is repeated."""
        context.ring()


def read(kind: type[Command], arguments: dict[str, Any], strict: bool = True) -> Command:
    """A command from its arguments, or an error that names the one that is wrong.

    Not strict: numbers and such may come as text, as from a URL.
    """
    try:
        return msgspec.convert(arguments, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise WrongUse(**invalid_field(error)).within(kind.name) from None


def run_command(command: Command, request_id: str, context: Context) -> dict[str, Any]:
    """The one way in which every door (control socket, REST) has a command done."""
    if isinstance(command, QueryCommand):
        return command.answer(context)
    if not isinstance(command, ChangeCommand):
        raise WrongUse(reason=f"{command.name} cannot be carried out")
    if not 0 < len(request_id) <= REQUEST_ID_LIMIT:
        raise WrongUse(reason=f"a request id has 1 to {REQUEST_ID_LIMIT} characters")
    answer = _once(command, request_id, context)
    command.afterwards(context, answer)
    return answer


def _once(command: ChangeCommand, request_id: str, context: Context) -> dict[str, Any]:
    from sqlalchemy.exc import IntegrityError

    from drumline.store.admin.requests import once
    from drumline.store.batch.batches import PhaseChanged
    from drumline.store.task.runs import RaceLost

    digest = hashlib.sha256(msgspec.msgpack.encode(command)).hexdigest()
    for _ in range(TRIES):
        try:
            return once(
                context.db,
                request_id,
                command.name,
                lambda tx: _change(tx, command, request_id, context),
                told_once=command.told_once,
                digest=digest,
            )
        except (IntegrityError, PhaseChanged, RaceLost):
            # Another was faster, after we had looked and before we wrote. Looking again finds
            # what it did, and says so better than the database does.
            continue
    raise Conflict(reason=f"{command.name} met others who change the same; try again")


def _change(tx: Tx, command: ChangeCommand, request_id: str, context: Context) -> dict[str, Any]:
    """The change and its line in the audit trail: both, or neither."""
    from drumline.command_layer import audit_trail

    answer = command.change(tx, context)
    if command.audited:
        audit_trail.note_done(tx, command, answer, request_id, context)
    return answer
