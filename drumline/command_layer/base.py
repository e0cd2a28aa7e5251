"""The base classes of commands, and how a command runs.

A command is a struct whose fields are its arguments. A query command reads and answers. A change
command runs at most once for each request id: its change, its answer and its entry in the audit
trail are written in one transaction. What it does after the commit may be repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from drumline.command_layer.answers import answer_type
from drumline.command_layer.fields import invalid_field
from drumline.config import Settings
from drumline.errors import Conflict, WrongUse

if TYPE_CHECKING:
    from drumline.domain.dispatch.status import QueueStatus, WorkerStatus
    from drumline.store.database import Database
    from drumline.store.tx import Tx

REQUEST_ID_LIMIT = 64
MAX_ATTEMPTS = 5


class DispatcherClient(Protocol):
    """Requests to this node's dispatcher. Each raises NotReachable if it does not answer."""

    def queue_status(self) -> QueueStatus: ...

    def worker_statuses(self) -> tuple[WorkerStatus, ...]: ...

    def drain_worker(self, name: str, /) -> bool:
        """False: no worker of this name is registered."""

    def kill_task(self, task_id: int, /) -> bool:
        """False: no worker of this node holds the task."""


class Context(msgspec.Struct, frozen=True):
    """What the server half of a command works with."""

    settings: Settings
    database: Any
    dispatcher: DispatcherClient
    notify_scanner: Callable[..., None]
    """Have the scanner look for due tasks: `notify_scanner()`, or with the tasks themselves."""
    actor: str = ""
    front_end: str = "control"
    """The front end that the command came through: `control` (the control socket) or `rest`."""

    @property
    def db(self) -> Database:
        return self.database  # type: ignore[no-any-return]  # Any above keeps SQL out of the CLI


class Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The root of all commands."""

    name: ClassVar[str]


class QueryCommand(Command, frozen=True, kw_only=True):
    """A command that changes nothing."""

    def answer(self, context: Context) -> Any:
        """Read the answer. Returns a struct, as annotated."""
        raise NotImplementedError


class ChangeCommand(Command, frozen=True, kw_only=True):
    """A command that changes something."""

    secret_answer_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of the answer that are shown once: they are not stored with the request."""
    audited: ClassVar[bool] = True
    """Whether the audit trail has an entry for each of these changes."""

    def change(self, tx: Tx, context: Context) -> Any:
        """Make the change, inside the transaction. Returns a struct, as annotated."""
        raise NotImplementedError

    def after_commit(self, context: Context, answer: Any) -> None:
        """Runs after the commit, and again if the request is repeated: it must be idempotent."""
        context.notify_scanner()


def read(kind: type[Command], arguments: dict[str, Any], strict: bool = True) -> Command:
    """Check arguments and make a command of them. An error names the wrong field.

    With strict=False, numbers and booleans may be text, as in a URL.
    """
    try:
        return msgspec.convert(arguments, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise WrongUse(**invalid_field(error)).within(kind.name) from None


def run_command(command: Command, request_id: str, context: Context) -> dict[str, Any]:
    """Run a command, for every front end, and return its answer as plain data."""
    if isinstance(command, QueryCommand):
        return to_plain(command.answer(context))
    if not isinstance(command, ChangeCommand):
        raise TypeError(f"{command.name} is neither a query nor a change")
    if not 0 < len(request_id) <= REQUEST_ID_LIMIT:
        raise WrongUse(reason=f"a request id has 1 to {REQUEST_ID_LIMIT} characters")
    answer = _change_once(command, request_id, context)
    command.after_commit(context, msgspec.convert(answer, answer_type(type(command))))
    return answer


def to_plain(answer: msgspec.Struct) -> dict[str, Any]:
    """An answer as it is sent and stored."""
    plain: dict[str, Any] = msgspec.to_builtins(answer)
    return plain


def _change_once(command: ChangeCommand, request_id: str, context: Context) -> dict[str, Any]:
    from sqlalchemy.exc import IntegrityError

    from drumline.store.admin.requests import once
    from drumline.store.batch.batches import PhaseChanged
    from drumline.store.tx import RaceLost

    digest = hashlib.sha256(msgspec.msgpack.encode(command)).hexdigest()
    for _ in range(MAX_ATTEMPTS):
        try:
            return once(
                context.db,
                request_id,
                command.name,
                lambda tx: _change_and_audit(tx, command, request_id, context),
                secret_answer_fields=command.secret_answer_fields,
                digest=digest,
            )
        except (IntegrityError, PhaseChanged, RaceLost):
            # Another transaction committed between our read and our write. The next attempt reads
            # its result and refuses in words that the database's error does not have.
            continue
    raise Conflict(reason=f"{command.name} conflicts with concurrent changes; retry")


def _change_and_audit(
    tx: Tx, command: ChangeCommand, request_id: str, context: Context
) -> dict[str, Any]:
    """The change and its entry in the audit trail: both or neither."""
    from drumline.command_layer import audit_trail

    answer = to_plain(command.change(tx, context))
    if command.audited:
        audit_trail.record_change(tx, command, answer, request_id, context)
    return answer
