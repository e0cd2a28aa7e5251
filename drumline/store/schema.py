"""The schema: brought up to date by Alembic, and checked before anything runs on it."""

from __future__ import annotations

import random
import time
from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError

from drumline.errors import SchemaMismatch
from drumline.store.database import Database

HEAD = "0001"
"""The migration that this code was written for."""
TRIES = 8


def migrations() -> Path:
    """Where the migrations are: beside the packages in a clone, inside the package in a wheel."""
    package = Path(__file__).parents[1]
    clone = package.parent / "sql"
    return clone if (clone / "env.py").is_file() else package / "_sql"


def upgrade(database: Database) -> str:
    """Bring the schema to this version. Of two at once one does it and the other waits for it."""
    for left in reversed(range(TRIES)):
        try:
            if current(database) != HEAD:
                _migrate(database)
            return HEAD
        except DBAPIError as error:
            # No lock holds over MariaDB's DDL and over a cluster of it: the one who is second
            # meets a table or a column of the first, and looks again a little later.
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
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)
        connection.commit()


def current(database: Database) -> str | None:
    """The migration the database is at, or None if it is empty."""

    with database.engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return None if found is None else str(found)


def require(database: Database) -> None:
    """Refuse to run on a schema that this code was not written for."""
    found = current(database)
    if found != HEAD:
        raise SchemaMismatch(found=found or "nothing", wanted=HEAD)
