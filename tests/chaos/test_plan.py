"""The plan of faults follows from the seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.plan import DATABASES, KINDS, kinds_for, plan


@given(st.integers(0, 1000), st.sampled_from(DATABASES), st.floats(10, 600))
def test_a_seed_gives_one_plan(seed: int, database: str, seconds: float) -> None:
    planned = plan(seed, seconds, database)
    assert planned == plan(seed, seconds, database)
    assert planned, "a run without a fault shows nothing"
    assert [fault.at for fault in planned] == sorted(fault.at for fault in planned)
    for fault in planned:
        (shortest, longest), databases = KINDS[fault.kind]
        assert database in databases
        assert shortest <= fault.seconds <= longest


@pytest.mark.parametrize("database", DATABASES)
def test_a_long_run_has_every_kind_of_fault(database: str) -> None:
    kinds = {fault.kind for fault in plan(1, 600, database)}
    assert kinds == set(kinds_for(database))


def test_only_the_wanted_kinds_are_planned() -> None:
    assert {fault.kind for fault in plan(1, 300, "sqlite", ["kill-worker"])} == {"kill-worker"}
