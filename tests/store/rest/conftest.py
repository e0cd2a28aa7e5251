"""What the tests of the REST door share: a site over a desk on each database."""

from collections.abc import Iterator

import pytest

from tests.store.desk import STRICT, UNDOES, Desk
from tests.store.job_samples import ASYNC, HTTP
from tests.store.world import SPEC, World
from tests.web_site import Site


@pytest.fixture
def site(world: World) -> Iterator[Site]:
    world.announce(SPEC, STRICT, UNDOES, ASYNC, HTTP)
    with Site(Desk(world.database).context) as site:
        yield site
