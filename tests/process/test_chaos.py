"""A short chaos run: processes are killed and suspended, and no law is broken."""

import os

import pytest

from chaos import laws, plan
from chaos.__main__ import run

KINDS = [f"{verb}-{process}" for verb in ("kill", "stop") for process in plan.PROCESSES]


@pytest.mark.parametrize("database", plan.DATABASES)
def test_no_law_is_broken_while_processes_are_killed_and_suspended(database: str) -> None:
    if database == "mariadb" and "DRUMLINE_TEST_MARIADB_URL" not in os.environ:
        pytest.skip("MariaDB NOT tested: DRUMLINE_TEST_MARIADB_URL is not set (bin/test sets it)")
    history = run(seed=3, seconds=15, database=database, only=tuple(KINDS), workers=2)
    assert len(history.faults()) >= 2
    assert len(history.runs()) > 50
    assert laws.check(history) == []
