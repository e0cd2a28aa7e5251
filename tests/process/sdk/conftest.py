"""Fixtures of the SDK tests: one stack on each database, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from drumline import Client
from tests.mariadb import fresh_database
from tests.process.sdk_stack import HANDLERS, connected
from tests.stack import Stack, shared_by_tests


@pytest.fixture(scope="package", params=["sqlite", "mariadb"])
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    settings: dict[str, Any] = {
        "workers": 2,
        "handlers": HANDLERS,
        "imports": ("examples.handlers", "examples.switch"),
    }
    if request.param == "sqlite":
        with shared_by_tests(Stack(**settings), request) as stack:
            yield stack
    else:
        server: str = request.getfixturevalue("mariadb_server_url")
        with (
            fresh_database(server) as url,
            shared_by_tests(Stack(url, **settings), request) as stack,
        ):
            yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with connected(stack) as client:
        yield client
