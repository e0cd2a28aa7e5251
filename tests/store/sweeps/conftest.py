"""What the tests of sweeps share: a world with their handlers, and a desk in it."""

import pytest

from drumline.store.database import Database
from tests.store.desk import Desk
from tests.store.sweep_world import HOOKED, LOOPS, PLAIN, PREPARED, SweepWorld
from tests.store.world import SPEC


@pytest.fixture
def world(database: Database) -> SweepWorld:
    world = SweepWorld(database)
    world.announce(PLAIN, LOOPS, HOOKED, PREPARED, SPEC)
    return world


@pytest.fixture
def desk(world: SweepWorld) -> Desk:
    return Desk(world.database)
