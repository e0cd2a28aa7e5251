"""The migrations lead exactly to the tables of the code, and keep the rows of older schemas."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    MetaData,
    Row,
    Table,
    insert,
    select,
    text,
)
from sqlalchemy.types import TypeEngine

from drumline.store import schema
from drumline.store.columns import metadata
from drumline.store.database import Database
from tests.mariadb import fresh_database
from tests.store.schema_inspection import schema_of

FIRST = "0001"
ROWS_PER_TABLE = 3

LATER = """
import sqlalchemy as sa
from alembic import op

revision = "later"
down_revision = "{head}"


def upgrade():
    op.add_column("batch", sa.Column("added", sa.Integer(), nullable=False, server_default="7"))
    op.create_index("ix_batch_added", "batch", ["added"])
"""


@pytest.fixture(params=["sqlite", "mariadb"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without tables, on each kind in turn."""
    if request.param == "sqlite":
        with closing(Database(f"sqlite:///{tmp_path / 'empty.db'}")) as made:
            yield made
        return
    server_url = request.getfixturevalue("mariadb_server_url")
    with fresh_database(server_url) as url, closing(Database(url)) as made:
        yield made


@pytest.fixture
def created(empty: Database) -> Database:
    """A database whose tables were created from drumline/store/tables.py, without migrations."""
    metadata.create_all(empty.engine)
    return empty


@pytest.fixture
def migrated(created: Database, request: pytest.FixtureRequest) -> Database:
    """A migrated database of the same kind as `created`."""
    found: Database = request.getfixturevalue(f"{kind(created)}_database")
    return found


def kind(database: Database) -> str:
    return "sqlite" if database.dialect.name == "sqlite" else "mariadb"


# --- the same schema -----------------------------------------------------------------------------


def test_migrations_lead_exactly_to_the_tables_of_the_code(
    created: Database, migrated: Database
) -> None:
    wanted, found = schema_of(created), schema_of(migrated)
    assert set(found) == set(metadata.tables)
    for table in wanted:
        assert found[table] == wanted[table], f"sql/versions and tables.py differ in {table}"
    assert found == wanted


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE pause",
        "ALTER TABLE batch DROP COLUMN az",
        "ALTER TABLE batch ADD COLUMN added INTEGER",
        "DROP INDEX ix_task_queue {on_task}",
        "DROP INDEX uq_task_unique_key {on_task}",
        "CREATE INDEX ix_added ON task (env)",
    ],
)
def test_a_difference_on_either_side_is_found(
    created: Database, migrated: Database, statement: str
) -> None:
    on_task = "" if kind(created) == "sqlite" else "ON task"
    with created.engine.begin() as connection:
        connection.execute(text(statement.format(on_task=on_task)))
    assert schema_of(created) != schema_of(migrated)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("attempt INTEGER DEFAULT '0' NOT NULL", "attempt INTEGER DEFAULT '1' NOT NULL"),
        ("env VARCHAR(64)", "env VARCHAR(65)"),
        ("type VARCHAR(128) NOT NULL", "type VARCHAR(128)"),
        ("WHERE unique_key IS NOT NULL", ""),
        ("WHERE unique_key IS NOT NULL", "WHERE unique_key IS NULL"),
        ("CREATE UNIQUE INDEX uq_task_unique_key", "CREATE INDEX uq_task_unique_key"),
        (" AUTOINCREMENT", ""),
    ],
)
def test_a_different_default_type_or_condition_is_found(
    sqlite_database: Database, tmp_path: Path, before: str, after: str
) -> None:
    with sqlite_database.engine.connect() as connection:
        statements = connection.execute(
            text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name = 'task'")
        ).scalars()
        script = ";\n".join(statements)
    assert before in script
    with closing(Database(f"sqlite:///{tmp_path / 'other.db'}")) as other:
        with other.engine.begin() as connection:
            for statement in script.replace(before, after).split(";\n"):
                connection.execute(text(statement))
        assert schema_of(other)["task"] != schema_of(sqlite_database)["task"]


# --- older, filled schemas -----------------------------------------------------------------------


def test_the_rows_of_the_first_schema_are_kept(empty: Database) -> None:
    rows = fill_first_schema(empty)
    assert schema.upgrade(empty) == schema.HEAD
    assert_kept(empty, rows)


def test_the_rows_of_a_filled_schema_are_kept_by_a_later_migration(
    empty: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = fill_first_schema(empty)
    folder = tmp_path / "sql"
    shutil.copytree(schema.migrations(), folder)
    (folder / "versions" / "later.py").write_text(LATER.format(head=schema.HEAD))
    monkeypatch.setattr(schema, "migrations", lambda: folder)
    monkeypatch.setattr(schema, "HEAD", "later")
    assert schema.upgrade(empty) == "later"
    schema.require(empty)
    assert_kept(empty, rows)
    with empty.engine.connect() as connection:
        added = connection.execute(text("SELECT added FROM batch")).scalars().all()
    assert added == [7] * ROWS_PER_TABLE
    assert "ix_batch_added" in schema_of(empty)["batch"]["indexes"]


def test_an_upgrade_that_was_interrupted_can_be_repeated(
    empty: Database, migrated: Database
) -> None:
    schema.upgrade(empty)
    on_task = "" if kind(empty) == "sqlite" else "ON task"
    with empty.engine.begin() as connection:
        for statement in (
            "DROP TABLE alarm",
            f"DROP INDEX uq_task_unique_key {on_task}",
            "DELETE FROM alembic_version",
        ):
            connection.execute(text(statement))
    assert schema.current(empty) is None
    schema.upgrade(empty)
    schema.require(empty)
    assert schema_of(empty) == schema_of(migrated)


def test_a_migration_that_fails_leaves_sqlite_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sql"
    shutil.copytree(schema.migrations(), folder)
    (folder / "versions" / "later.py").write_text(
        LATER.format(head=schema.HEAD) + "    raise ZeroDivisionError\n"
    )
    with closing(Database(f"sqlite:///{tmp_path / 'drumline.db'}")) as database:
        schema.upgrade(database)
        before = schema_of(database)
        monkeypatch.setattr(schema, "migrations", lambda: folder)
        monkeypatch.setattr(schema, "HEAD", "later")
        with pytest.raises(ZeroDivisionError):
            schema.upgrade(database)
        assert schema.current(database) == FIRST
        assert schema_of(database) == before


def fill_first_schema(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Migrate to the first schema and write rows into each of its tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "HEAD", FIRST)
        assert schema.upgrade(database) == FIRST
    tables = MetaData()
    tables.reflect(database.engine)
    written = {}
    with database.engine.begin() as connection:
        for table in tables.sorted_tables:
            if table.name == "alembic_version":
                continue
            rows = [row_for(table, number) for number in range(1, ROWS_PER_TABLE + 1)]
            connection.execute(insert(table), rows)
            written[table.name] = rows
    assert set(written) >= {"task", "job", "batch", "sweep", "result", "keeper", "token"}
    return written


def row_for(table: Table, number: int) -> dict[str, Any]:
    """A value for every column, different in every row."""
    return {
        column.name: _value(column.type, number * 100 + place)
        for place, column in enumerate(table.columns)
    }


def _value(kind: TypeEngine[Any], number: int) -> object:
    python_type = kind.python_type
    if python_type is int and "TINYINT" in repr(kind):  # MariaDB's boolean
        return number % 2
    if python_type is str:
        return f"\N{SNOWMAN}{number}" if (getattr(kind, "length", None) or 0) > 128 else str(number)
    values = {
        bytes: b"\x00\xff" + str(number).encode(),
        bool: bool(number % 2),
        float: number + 0.5,
        Decimal: Decimal(number),  # how MariaDB's DOUBLE is reflected
        int: number,
    }
    return values[python_type]


def assert_kept(database: Database, rows: dict[str, list[dict[str, Any]]]) -> None:
    tables = MetaData()
    tables.reflect(database.engine, only=list(rows))
    with database.engine.connect() as connection:
        for name, wanted in rows.items():
            table = tables.tables[name]
            order = [column for column in table.columns if column.primary_key]
            found: list[Row[Any]] = list(connection.execute(select(table).order_by(*order)))
            assert len(found) == len(wanted), name
            for row, before in zip(found, wanted, strict=True):
                after = row._asdict()
                assert after == after | {key: before[key] for key in before if key in after}, name
