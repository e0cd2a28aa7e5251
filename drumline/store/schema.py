"""Schema upgrades with Alembic, and the check that each process makes before it starts."""

from __future__ import annotations

import random
import time
from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError

from drumline.errors import SchemaMismatch
from drumline.store.database import Database

HEAD = "0001"
"""The newest migration, which this code needs."""
TRIES = 8


def migrations() -> Path:
    """The folder of migrations: beside the packages in a clone, inside the package in a wheel."""
    package = Path(__file__).parents[1]
    clone = package.parent / "sql"
    return clone if (clone / "env.py").is_file() else package / "_sql"


def upgrade(database: Database) -> str:
    """Bring the schema to HEAD. Several nodes may call this at the same time."""
    for left in reversed(range(TRIES)):
        try:
            if current(database) != HEAD:
                _migrate(database)
            return HEAD
        except DBAPIError as error:
            # MariaDB has no lock that covers DDL on all nodes of a cluster: the slower of two
            # upgrades meets a table or column that the faster one added, and tries again.
            if not left or database.dialect.is_transient(error):
                raise
            time.sleep(random.uniform(0.2, 1.0))
    raise AssertionError("unreachable")


def _migrate(database: Database) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations()))
    with database.dialect.writing(), database.engine.connect() as connection:
        # SQLite's DDL is transactional: an upgrade that is killed leaves nothing behind.
        database.dialect.begin_write(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)
        connection.commit()


def current(database: Database) -> str | None:
    """The newest migration that the database has, or None if it has no schema."""
    with database.engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return None if found is None else str(found)


def require(database: Database) -> None:
    """Raise SchemaMismatch unless the schema is at HEAD."""
    found = current(database)
    if found != HEAD:
        raise SchemaMismatch(found=found or "nothing", wanted=HEAD)
