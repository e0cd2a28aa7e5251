import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.mariadb import URL_VARIABLE, MariaDB, fresh_database

# How long an example takes depends on what else the machine does.
settings.register_profile("drumline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("drumline")

TEST_SECONDS = 300
"""The longest takes half a minute; a busy machine may take several times that."""


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """A test that hangs fails, and the run goes on."""

    def fail(*_: object) -> None:
        raise TimeoutError(f"the test has run for {TEST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(TEST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def mariadb_server_url() -> str:
    """The server that bin/test started. Shared: tests do not stop it."""
    url = os.environ.get(URL_VARIABLE)
    if not url:
        pytest.skip(f"MariaDB NOT tested: {URL_VARIABLE} is not set (bin/test sets it)")
    return url


@pytest.fixture
def mariadb_url(mariadb_server_url: str) -> Iterator[str]:
    """An empty database on MariaDB."""
    with fresh_database(mariadb_server_url) as url:
        yield url


@pytest.fixture(params=["sqlite", "mariadb"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, on each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'drumline.db'}"
    url: str = request.getfixturevalue("mariadb_url")
    return url


@pytest.fixture
def own_mariadb(mariadb_server_url: str) -> Iterator[MariaDB]:
    """A server for one test, to stop and kill. Skipped where the shared one is missing."""
    with closing(MariaDB()) as server:
        server.start()
        yield server
