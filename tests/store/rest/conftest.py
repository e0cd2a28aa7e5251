"""Fixtures of the REST tests: a web server on each database."""

from collections.abc import Iterator

import pytest

from tests.store.job_samples import ASYNC, HTTP
from tests.store.stub_gateway import STRICT, UNDOES, StubGateway
from tests.store.world import SPEC, World
from tests.web_site import Site


@pytest.fixture
def site(world: World) -> Iterator[Site]:
    world.announce(SPEC, STRICT, UNDOES, ASYNC, HTTP)
    with Site(StubGateway(world.database).context) as site:
        yield site
