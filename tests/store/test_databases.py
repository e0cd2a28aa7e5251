"""The databases that tests are given behave as those tests take for granted."""

import pytest
from sqlalchemy import Column, Engine, MetaData, NullPool, String, Table, create_engine, select
from sqlalchemy.exc import OperationalError

from tests.mariadb import MariaDB

note = Table("note", MetaData(), Column("text", String(100), primary_key=True))


def connect(url: str) -> Engine:
    return create_engine(url, poolclass=NullPool)


def test_a_committed_row_stays_and_a_rolled_back_one_does_not(database_url: str) -> None:
    engine = connect(database_url)
    note.create(engine)
    with engine.begin() as connection:
        connection.execute(note.insert(), {"text": "kept 🥁"})
    with engine.connect() as connection:
        connection.execute(note.insert(), {"text": "undone"})
        connection.rollback()
    with engine.connect() as connection:
        assert connection.scalars(select(note.c.text)).all() == ["kept 🥁"]


def test_mariadb_has_the_settings_of_production(mariadb_url: str) -> None:
    query = "SELECT @@innodb_flush_log_at_trx_commit, @@character_set_database, @@skip_name_resolve"
    with connect(mariadb_url).connect() as connection:
        assert connection.exec_driver_sql(query).one() == (1, "utf8mb4", 1)


def test_an_own_mariadb_keeps_what_was_committed_when_it_ends(own_mariadb: MariaDB) -> None:
    engine = connect(own_mariadb.create_database("notes"))
    note.create(engine)
    for end in (own_mariadb.kill, own_mariadb.stop):
        with engine.begin() as connection:
            connection.execute(note.insert(), {"text": end.__name__})
        end()
        with pytest.raises(OperationalError):
            engine.connect()
        own_mariadb.start()
    with engine.connect() as connection:
        assert connection.scalars(select(note.c.text)).all() == ["kill", "stop"]
