"""Enqueue tasks inside a transaction of your own: they run if it commits, and only then.

    with engine.begin() as connection:
        connection.execute(insert(order).values(id=7))
        enqueue(connection, "mail.send", {"order": 7}, instance="order-7")

The connection must be to Drumline's database: a SQLAlchemy Connection or Session, or a raw
connection of sqlite3 or PyMySQL. It is never committed, rolled back or closed here. After your
commit the task is found within a second; `Client.scan_now` has it looked for at once.

If one of these functions raises, nothing of it has been written, except that `enqueue_many`
writes 5,000 at a time: roll back then.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Never

from drumline.errors import Conflict, SchemaMismatch, WrongUse

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.exc import DBAPIError

    from drumline.command_layer.base import ChangeCommand
    from drumline.store.tx import Tx

# SQLAlchemy is imported only when needed: runners import this module through `drumline`.


def enqueue(
    connection: Any,
    type: str,
    param: Any = None,
    *,
    instance: str | None = None,
    at: datetime | str | float | None = None,
    delay: float | None = None,
    priority: int = 5,
    timeout: float | None = None,
    target_type: str | None = None,
    region: str | None = None,
) -> int:
    """Write one task and return its id. `at` is a time with a zone, `delay` is in seconds.

    Raises UnknownHandler if no runner of the region can run it, and Conflict if an unfinished
    task of the type has the same instance id. The region is this node's unless it is named.
    """
    from drumline.commands.task.schedule import TaskSchedule

    terms = _terms(type, at, delay, priority, timeout, target_type)
    with _transaction(connection) as tx:
        answer = _change(
            tx, region, TaskSchedule, terms | {"param": param, "instance_id": instance}
        )
    return int(answer.task_id)


def enqueue_many(
    connection: Any,
    type: str,
    params: Iterable[Any],
    *,
    instances: Iterable[str | None] | None = None,
    at: datetime | str | float | None = None,
    delay: float | None = None,
    priority: int = 5,
    timeout: float | None = None,
    target_type: str | None = None,
    region: str | None = None,
) -> int:
    """Write one task for each param, in bulk, and return how many."""
    from drumline.command_layer.targets import CHUNK_SIZE
    from drumline.commands.task.schedule_many import TaskScheduleMany

    terms = _terms(type, at, delay, priority, timeout, target_type)
    left, names = iter(params), None if instances is None else iter(instances)
    total = 0
    with _transaction(connection) as tx:
        while some := list(islice(left, CHUNK_SIZE)):
            part: dict[str, Any] = {"params": some}
            if names is not None:
                part["instance_ids"] = list(islice(names, len(some)))
            total += _change(tx, region, TaskScheduleMany, terms | part).tasks
    return total


def _terms(
    type: str,
    at: datetime | str | float | None,
    delay: float | None,
    priority: int,
    timeout: float | None,
    target_type: str | None,
) -> dict[str, Any]:
    from drumline.client.arguments import time_text

    return {
        "type": type,
        "at": time_text(at),
        "delay": delay,
        "priority": priority,
        "timeout": timeout,
        "target_type": target_type,
    }


def _change(
    tx: Tx, region: str | None, kind: type[ChangeCommand], arguments: dict[str, Any]
) -> Any:
    """Run a change command, as the gateway would, on the caller's connection."""
    import msgspec
    from sqlalchemy.exc import IntegrityError

    from drumline import config
    from drumline.command_layer.base import Context, read

    settings = config.load()
    if region is not None:
        settings = msgspec.structs.replace(settings, region=region)
    context = Context(settings, None, dispatcher=_NoDispatcher(), notify_scanner=lambda: None)
    try:
        command = read(kind, msgspec.to_builtins(arguments, str_keys=True))
    except (TypeError, RecursionError) as error:
        raise WrongUse(reason=f"a param does not fit into JSON: {error}") from None
    try:
        return command.change(tx, context)  # type: ignore[attr-defined]  # read() returns a `kind`
    except UnicodeEncodeError as error:
        raise WrongUse(reason=f"a param does not fit into JSON: {error}") from None
    except IntegrityError:
        raise Conflict(
            reason=f"{arguments['type']}: another task with the same instance id was scheduled "
            "at the same moment"
        ) from None


class _NoDispatcher:
    """Inside a caller's transaction there is no gateway to send requests."""

    def _refuse(self, *_: object) -> Never:
        raise WrongUse(reason="there is no gateway inside a transaction")

    queue_status = worker_statuses = drain_worker = kill_task = _refuse


# --- the caller's transaction --------------------------------------------------------------------


@contextmanager
def _transaction(connection: Any) -> Iterator[Tx]:
    """A Tx on the caller's connection."""
    from sqlalchemy.exc import DBAPIError

    with _as_sqlalchemy(connection) as (ours, is_raw):
        try:
            yield _tx(ours)
        except DBAPIError as error:
            if _is_missing_table(error):
                from drumline.store.schema import HEAD

                raise SchemaMismatch(found="nothing", wanted=HEAD) from None
            if is_raw and error.orig is not None:
                raise error.orig from None  # the driver's own error, as the caller expects
            raise


def _tx(connection: Connection) -> Tx:
    from drumline.store import dialects
    from drumline.store.tx import Tx

    # The dialect needs a URL, but does not connect to it.
    kinds = {"sqlite": "sqlite:///callers", "mysql": "mysql:///callers"}
    kinds["mariadb"] = kinds["mysql"]
    url = kinds.get(connection.dialect.name)
    if url is None:
        raise WrongUse(
            reason=f"the connection is to {connection.dialect.name}; known: {', '.join(kinds)}"
        )
    dialect = dialects.for_url(url)
    theirs = dialect.clock(connection)
    return Tx(connection, dialect, time.time_ns() // 1000 if theirs is None else theirs)


@contextmanager
def _as_sqlalchemy(connection: Any) -> Iterator[tuple[Connection, bool]]:
    """A SQLAlchemy connection, and whether the caller's own was a raw one."""
    from sqlalchemy import Connection

    orm: Any = sys.modules.get("sqlalchemy.orm")  # imported already if the caller has a Session
    if isinstance(connection, Connection):
        yield connection, False
    elif orm is not None and isinstance(connection, orm.Session | orm.scoped_session):
        yield connection.connection(), False
    elif hasattr(connection, "run_sync"):
        raise WrongUse(
            reason="the connection is an async one: await connection.run_sync(lambda c: "
            "enqueue(c, …)) instead"
        )
    else:
        borrowed = _Borrowed(getattr(connection, "dbapi_connection", connection))
        _lending.connection = borrowed
        with _engine(borrowed.url).connect() as ours:
            yield ours, True


class _Borrowed:
    """A raw connection whose transaction and settings belong to the caller."""

    def __init__(self, raw: Any) -> None:
        sqlite3: Any = sys.modules.get("sqlite3")
        pymysql: Any = sys.modules.get("pymysql")
        self._raw = raw
        self._cursor_class: tuple[Any, ...] = ()
        if sqlite3 is not None and isinstance(raw, sqlite3.Connection):
            self.url = "sqlite://"
        elif pymysql is not None and isinstance(raw, pymysql.connections.Connection):
            self.url = "mysql+pymysql://"
            self._cursor_class = (pymysql.cursors.Cursor,)
        else:
            raise WrongUse(
                reason=f"{raw!r:.80} is not a connection that can be used here: give a SQLAlchemy "
                "Connection or Session, or a connection of sqlite3 or PyMySQL"
            )

    def cursor(self) -> Any:
        """A cursor that returns plain tuples, whatever row class the caller has set."""
        cursor = self._raw.cursor(*self._cursor_class)
        if self.url == "sqlite://":
            cursor.row_factory = None
        return cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def commit(self) -> None:
        """Left to the caller."""

    def rollback(self) -> None:
        """Left to the caller."""

    def close(self) -> None:
        """Left to the caller."""

    def create_function(self, *_: Any, **__: Any) -> None:
        """Ignored: SQLAlchemy would replace the caller's `regexp` function on SQLite."""


_lending = threading.local()


@cache
def _engine(url: str) -> Engine:
    """One engine per driver, so that its cache of compiled statements is shared. It uses the
    connection that this thread has borrowed."""
    from sqlalchemy import NullPool, create_engine

    return create_engine(
        url, creator=lambda: _lending.connection, poolclass=NullPool, pool_reset_on_return=None
    )


def _is_missing_table(error: DBAPIError) -> bool:
    words = getattr(error.orig, "args", ("",))
    return words[0] == 1146 or str(words[0]).startswith("no such table")
