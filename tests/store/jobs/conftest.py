"""What the tests of jobs share: a world whose clock stands still."""

from collections.abc import Iterator

import pytest

from drumline.store.database import Database
from tests.store.job_world import JobWorld, stopped_clock


@pytest.fixture
def world(database: Database) -> Iterator[JobWorld]:
    with stopped_clock(database) as clock:
        yield JobWorld(database, clock)
