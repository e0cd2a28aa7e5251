"""What the tests of jobs share: a world whose clock stands still, and a gateway in it."""

from collections.abc import Iterator

import pytest

from drumline.store.database import Database
from tests.store.job_samples import ASYNC, HTTP
from tests.store.job_world import JobWorld, stopped_clock
from tests.store.stub_gateway import STRICT, StubGateway
from tests.store.world import SPEC


@pytest.fixture
def world(database: Database) -> Iterator[JobWorld]:
    with stopped_clock(database) as clock:
        yield JobWorld(database, clock)


@pytest.fixture
def gateway(world: JobWorld) -> StubGateway:
    world.announce(SPEC, STRICT, ASYNC, HTTP)
    return StubGateway(world.database)
