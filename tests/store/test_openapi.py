"""The REST interface, called with generated requests that its description allows and does not.

There must be no server errors, and every response must match the description.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from drumline.domain.dispatch.status import WorkerStatus
from drumline.domain.release import RunEnd
from drumline.store.database import Database
from drumline.web import openapi
from tests.store.conftest import wipe
from tests.store.job_samples import ASYNC, HTTP, SAMPLE
from tests.store.stub_gateway import NODE, STRICT, UNDOES, StubGateway
from tests.store.world import SPEC, World
from tests.web_site import Site

EXAMPLES = 6
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


class Furnished:
    """A store with one row of every kind, so that requests find something."""

    def __init__(self, database: Database) -> None:
        world = World(database)
        world.announce(SPEC, STRICT, UNDOES, ASYNC, HTTP)
        gateway = StubGateway(database)
        task_id = gateway("task.schedule", type=SPEC.type, delay=3600)["task_id"]
        self.known: dict[str, Any] = {
            "job": gateway("job.create", **SAMPLE)["id"],
            "batch_id": gateway("batch.submit", batch_name="b", type=UNDOES.type, count=3)[
                "batch_id"
            ],
            "task_id": task_id,
            "type": STRICT.type,
            "worker": "worker",
            "name": "the-read",
        }
        keeper_id = world.keeper("worker", NODE)
        world.run(keeper_id, end=RunEnd.ERROR)
        gateway.workers = (WorkerStatus(keeper=keeper_id, name="worker"),)
        self.context = gateway.context
        self.site: Site


@pytest.fixture(scope="module")
def furnished(shared_sqlite: Database) -> Iterator[Furnished]:
    wipe(shared_sqlite)
    furnished = Furnished(shared_sqlite)
    with Site(furnished.context) as furnished.site:
        yield furnished


DESCRIPTION = schemathesis.openapi.from_dict(openapi.document())
OPERATIONS = [found.ok() for found in DESCRIPTION.get_all_operations() if isinstance(found, Ok)]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_response_matches_the_description(
    operation: Any, mode: GenerationMode, furnished: Furnished
) -> None:
    headers = {"Authorization": f"Bearer {furnished.site.tokens['admin']}"}
    base_url = f"http://127.0.0.1:{furnished.site.port}"

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), meets=st.booleans())
    def check(case: Case[Any], meets: bool) -> None:
        parameters = case.path_parameters
        for name in parameters:
            if meets and name in furnished.known:
                parameters[name] = furnished.known[name]
        case.call_and_validate(checks=CHECKS, headers=headers, base_url=base_url)

    check()
