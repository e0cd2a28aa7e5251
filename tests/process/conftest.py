"""Fixtures: a node with jobs on each database, a service for HTTP jobs, a runner."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mariadb import fresh_database
from tests.process.job_stack import JobStack, Service
from tests.process.runner_harness import Harness
from tests.stack import shared_by_tests


@pytest.fixture(scope="module", params=["sqlite", "mariadb"])
def shared_database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database for the tests of a module, on each kind in turn; "" is the stack's file."""
    if request.param == "sqlite":
        yield ""
    else:
        with fresh_database(request.getfixturevalue("mariadb_server_url")) as url:
            yield url


@pytest.fixture(scope="module")
def stack(
    request: pytest.FixtureRequest,
    shared_database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[JobStack]:
    folder = tmp_path_factory.mktemp("witness")
    stack = JobStack(folder, shared_database_url, heartbeat_interval=0.5)
    with shared_by_tests(stack, request):
        yield stack


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "box")
    yield harness
    harness.close()
