"""What the tests of sweeps share: a world with their handlers, and a gateway in it."""

import pytest

from drumline.store.database import Database
from tests.store.stub_gateway import StubGateway
from tests.store.sweep_world import HOOKED, LOOPS, PLAIN, PREPARED, SweepWorld
from tests.store.world import SPEC


@pytest.fixture
def world(database: Database) -> SweepWorld:
    world = SweepWorld(database)
    world.announce(PLAIN, LOOPS, HOOKED, PREPARED, SPEC)
    return world


@pytest.fixture
def gateway(world: SweepWorld) -> StubGateway:
    return StubGateway(world.database)
