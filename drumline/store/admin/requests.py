"""Requests: a change command that is sent twice runs once and gets the same answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from drumline.errors import Conflict
from drumline.store.database import Database
from drumline.store.rows import RequestRow, read_one
from drumline.store.tables import request
from drumline.store.tx import Tx

# Built once: building a statement takes longer than running it on SQLite.
_BEGIN = insert(request)
_ANSWER = update(request).where(request.c.id == bindparam("of"))


class _Seen(Exception):
    """The request has run before."""


def once(
    database: Database,
    request_id: str,
    command: str,
    work: Callable[[Tx], dict[str, Any]],
    secret_answer_fields: Collection[str] = (),
    digest: str = "",
) -> dict[str, Any]:
    """Do the work and store its answer in one commit, unless the request has been executed before.

    Secret fields of the answer are not stored: the answer to a repeated request lacks them. The
    digest is that of the arguments: an id that is used again for another request is a conflict.
    """

    def transaction(tx: Tx) -> dict[str, Any]:
        row = {"id": request_id, "command": command, "digest": digest, "created_at": tx.now}
        try:
            tx.execute(_BEGIN, row)
        except IntegrityError:
            raise _Seen from None
        answer = work(tx)
        kept = {name: value for name, value in answer.items() if name not in secret_answer_fields}
        tx.execute(_ANSWER, {"of": request_id, "answer": msgspec.json.encode(kept).decode()})
        return answer

    try:
        return database.write(transaction)
    except _Seen:
        row = database.read(
            lambda tx: read_one(tx, RequestRow, select(request).where(request.c.id == request_id))
        )
    if row.command != command:
        raise Conflict(reason=f"request {request_id} was a {row.command}, not a {command}")
    if row.digest != digest:
        raise Conflict(reason=f"request {request_id} was a {command} with other arguments")
    answer: dict[str, Any] = msgspec.json.decode(row.answer or "{}")
    return answer
