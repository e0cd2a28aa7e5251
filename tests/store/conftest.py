from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import NullPool, create_engine, event

from drumline.store import schema
from drumline.store.columns import metadata
from drumline.store.database import Database
from tests.mariadb import fresh_database
from tests.store.caller import HANDLERS, Caller, order
from tests.store.stub_gateway import STRICT, UNDOES, StubGateway
from tests.store.world import SPEC, World


def open_database(url: str) -> Database:
    """A database as the processes use it, except that SQLite need not survive a power cut."""
    database = Database(url)
    if database.dialect.name == "sqlite":

        @event.listens_for(database.engine, "connect")
        def in_a_hurry(connection: object, _: object) -> None:
            connection.execute("PRAGMA synchronous=OFF")  # type: ignore[attr-defined]

    return database


# Each kind is migrated once and its engine kept: to migrate MariaDB takes a second, and to compile
# all statements anew for each test takes half of the tests' time.


@pytest.fixture(scope="session")
def shared_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with closing(open_database(f"sqlite:///{tmp_path_factory.mktemp('store')}/drumline.db")) as it:
        schema.upgrade(it)
        yield it


@pytest.fixture(scope="session")
def shared_mariadb(mariadb_server_url: str) -> Iterator[Database]:
    with fresh_database(mariadb_server_url) as url, closing(open_database(url)) as it:
        schema.upgrade(it)
        yield it


@pytest.fixture
def sqlite_database(shared_sqlite: Database) -> Database:
    """A migrated SQLite file without rows."""
    wipe(shared_sqlite)
    return shared_sqlite


@pytest.fixture
def mariadb_database(shared_mariadb: Database) -> Database:
    """A migrated database on MariaDB without rows."""
    wipe(shared_mariadb)
    return shared_mariadb


@pytest.fixture(params=["sqlite", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    """A migrated database without rows, on each kind in turn."""
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


@pytest.fixture
def gateway(world: World) -> StubGateway:
    world.announce(SPEC, UNDOES, STRICT)
    return StubGateway(world.database)


@pytest.fixture
def caller(world: World) -> Iterator[Caller]:
    world.announce(*HANDLERS)
    engine = create_engine(
        world.database.engine.url.set(drivername=world.database.engine.url.drivername),
        poolclass=NullPool,
    )
    order.create(engine)
    yield Caller(world, engine)
    order.drop(engine)
    engine.dispose()


def wipe(database: Database) -> None:
    """Delete every row. What ids come next does not matter to any test."""
    database.write(lambda tx: [tx.execute(table.delete()) for table in metadata.sorted_tables])
