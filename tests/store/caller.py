"""Somebody's program that enqueues tasks: it has a table and a way to the database of its own."""

from __future__ import annotations

import sqlite3
from typing import Any

import pymysql
from sqlalchemy import Column, Engine, Integer, MetaData, Table, select

from drumline.domain.policy import HandlerSpec
from drumline.store.rows import TaskRow
from tests.store.world import World

SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}},
    "required": ["to"],
}
HANDLERS = (
    HandlerSpec("mail", "mail.send", timeout=7.5),
    HandlerSpec("mail", "mail.checked", schema=SCHEMA),
    HandlerSpec("a", "twice"),
    HandlerSpec("b", "twice"),
)

order = Table("an_order", MetaData(), Column("id", Integer, primary_key=True))
"""A table of the caller's, in the same database."""


class Caller:
    """Somebody's program, with its own way to the database."""

    def __init__(self, world: World, engine: Engine) -> None:
        self.world = world
        self.engine = engine

    def raw(self) -> Any:
        """A connection of the driver's own, as a program without SQLAlchemy opens it."""
        url = self.engine.url
        if url.get_backend_name() == "sqlite":
            return sqlite3.connect(url.database or "", timeout=10)
        return pymysql.connect(
            host=url.host, port=url.port or 0, user=url.username, database=url.database
        )

    def tasks(self) -> list[Any]:
        return list(self.world.rows(TaskRow))

    def orders(self) -> list[int]:
        with self.engine.connect() as connection:
            return list(connection.scalars(select(order.c.id)))
