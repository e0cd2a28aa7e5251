"""The schema: brought up to date by whoever comes first, and refused if it is another."""

import subprocess
import sys

import pytest
from sqlalchemy import inspect, text

from drumline.errors import SchemaMismatch
from drumline.store import schema
from drumline.store.columns import metadata
from drumline.store.database import Database

UPGRADE = """
import sys
from drumline.store import schema
from drumline.store.database import Database
print(schema.upgrade(Database(sys.argv[1])))
"""


def test_an_empty_database_is_refused_until_it_is_upgraded(database_url: str) -> None:
    database = Database(database_url)
    assert schema.current(database) is None
    with pytest.raises(SchemaMismatch, match="nothing"):
        schema.require(database)
    assert schema.upgrade(database) == schema.HEAD
    schema.require(database)
    assert schema.upgrade(database) == schema.HEAD
    assert set(metadata.tables) <= set(inspect(database.engine).get_table_names())
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'from the future'"))
    with pytest.raises(SchemaMismatch, match="from the future"):
        schema.require(database)
    database.close()


def test_nodes_that_start_at_once_all_find_the_schema_ready(database_url: str) -> None:
    nodes = [
        subprocess.Popen(
            [sys.executable, "-c", UPGRADE, database_url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for node in nodes:
        out, err = node.communicate(timeout=50)
        assert (out.strip(), node.returncode) == (schema.HEAD, 0), err
    database = Database(database_url)
    schema.require(database)
    assert set(metadata.tables) <= set(inspect(database.engine).get_table_names())
    database.close()
