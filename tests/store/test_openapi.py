"""The REST door, tried with what its own description allows and with what it does not.

Nothing may break, and every answer must be one that the description has.
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
from tests.store.desk import NODE, STRICT, UNDOES, Desk
from tests.store.job_samples import ASYNC, HTTP, SAMPLE
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
    """A store in which there is one of everything, so that not all is refused as unknown."""

    def __init__(self, database: Database) -> None:
        world = World(database)
        world.announce(SPEC, STRICT, UNDOES, ASYNC, HTTP)
        desk = Desk(database)
        task_id = desk("task.schedule", type=SPEC.type, delay=3600)["task_id"]
        self.known: dict[str, Any] = {
            "job": desk("job.create", **SAMPLE)["id"],
            "batch_id": desk("batch.submit", batch_name="b", type=UNDOES.type, count=3)["batch_id"],
            "task_id": task_id,
            "type": STRICT.type,
            "worker": "worker",
            "name": "the-read",
        }
        keeper_id = world.keeper("worker", NODE)
        world.run(keeper_id, end=RunEnd.ERROR)
        desk.workers = (WorkerStatus(keeper=keeper_id, name="worker"),)
        self.context = desk.context
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
def test_every_answer_is_as_described(
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
