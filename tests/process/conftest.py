"""Fixtures: a node with jobs on each database, a service for HTTP jobs, a runner."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from tests.mariadb import fresh_database
from tests.process.job_stack import JobStack, Service
from tests.process.runner_harness import Harness


@pytest.fixture(scope="module", params=["sqlite", "mariadb"])
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JobStack]:
    folder = tmp_path_factory.mktemp("witness")
    database: AbstractContextManager[str] = nullcontext("")
    if request.param == "mariadb":
        database = fresh_database(request.getfixturevalue("mariadb_server_url"))
    failed = request.session.testsfailed
    with database as url, JobStack(folder, url, heartbeat_interval=0.5) as stack:
        yield stack
        if request.session.testsfailed > failed:
            stack.show_logs()


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
