"""The schema of a database as plain data, read from the database's own catalogue."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection, text

from drumline.store.database import Database

Schema = dict[str, dict[str, Any]]
"""For each table its columns, indexes and options. The order of columns does not count: a migration
can only append one."""


def schema_of(database: Database) -> Schema:
    read = _sqlite if database.dialect.name == "sqlite" else _mariadb
    with database.engine.connect() as connection:
        found = read(connection)
    found.pop("alembic_version", None)
    return found


def _sqlite(connection: Connection) -> Schema:
    tables = connection.execute(
        text("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    ).all()
    return {name: _sqlite_table(connection, name, sql) for name, sql in tables}


def _sqlite_table(connection: Connection, table: str, sql: str) -> dict[str, Any]:
    columns = connection.execute(text(f"PRAGMA table_xinfo({table})")).mappings()
    indexes = {}
    for index in connection.execute(text(f"PRAGMA index_list({table})")).mappings().all():
        parts = connection.execute(text(f"PRAGMA index_xinfo({index['name']})")).mappings()
        keys = tuple((part["name"], part["desc"], part["coll"]) for part in parts if part["key"])
        where = None
        if index["partial"]:
            definition = connection.execute(
                text("SELECT sql FROM sqlite_master WHERE name = :name"), {"name": index["name"]}
            ).scalar_one()
            where = re.split(r"\bWHERE\b", definition, maxsplit=1)[1].strip()
        # The index of a UNIQUE constraint is numbered, in an order without meaning.
        name = index["name"] if index["origin"] == "c" else (index["origin"], keys)
        indexes[name] = (index["unique"], keys, where)
    return {
        "columns": {
            column["name"]: (column["type"], column["notnull"], column["dflt_value"], column["pk"])
            for column in columns
        },
        "indexes": indexes,
        "constraints": sorted(re.findall(r"CONSTRAINT (\w+)", sql)),
        "autoincrement": "AUTOINCREMENT" in sql,
    }


def _mariadb(connection: Connection) -> Schema:
    found: Schema = {
        row[0]: {"columns": {}, "indexes": {}, "options": tuple(row[1:])}
        for row in connection.execute(
            text(
                "SELECT table_name, engine, row_format, table_collation"
                " FROM information_schema.tables WHERE table_schema = database()"
            )
        )
    }
    for table, column, *rest in connection.execute(
        text(
            "SELECT table_name, column_name, column_type, is_nullable, column_default,"
            " character_set_name, collation_name, extra"
            " FROM information_schema.columns WHERE table_schema = database()"
        )
    ):
        found[table]["columns"][column] = tuple(rest)
    for table, index, *part in connection.execute(
        text(
            "SELECT table_name, index_name, non_unique, seq_in_index, column_name, collation,"
            " sub_part, index_type"
            " FROM information_schema.statistics WHERE table_schema = database()"
            " ORDER BY table_name, index_name, seq_in_index"
        )
    ):
        found[table]["indexes"].setdefault(index, []).append(tuple(part))
    return found
