"""A chaos run on a weakened node breaks a law, which shows that the checker would find a bug.

These take minutes and run with DRUMLINE_LONG_TESTS=1.
"""

import os

import pytest

from chaos import laws
from chaos.__main__ import run
from chaos.mutations import MUTATIONS

pytestmark = pytest.mark.skipif(
    not os.environ.get("DRUMLINE_LONG_TESTS"), reason="long; DRUMLINE_LONG_TESTS=1 runs it"
)

CASES: dict[str, tuple[int, float, tuple[str, ...], int]] = {
    # Four suspensions of 4.7 to 5.6 s, after which the dispatcher gives the tasks to others.
    "fencing-off": (51, 40.0, ("stop-worker",), 3),
    # The only worker gets every bundle that is sent again, and every task that is queued twice.
    "dedupe-off": (51, 20.0, ("stop-worker",), 1),
    "black-box-removed-early": (3, 40.0, ("kill-runner", "kill-worker"), 3),
}
"""The seed, the length, the faults and the number of workers with which each mutation shows."""


def test_every_mutation_has_a_case() -> None:
    assert CASES.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("mutation", CASES)
def test_a_mutation_breaks_a_law(mutation: str) -> None:
    seed, seconds, kinds, workers = CASES[mutation]
    history = run(seed, seconds, "sqlite", kinds, workers, mutation=mutation)
    assert len(history.faults()) >= 2
    assert laws.check(history)


@pytest.mark.parametrize("mutation", CASES)
def test_the_same_faults_break_no_law_without_the_mutation(mutation: str) -> None:
    seed, seconds, kinds, workers = CASES[mutation]
    assert laws.check(run(seed, seconds, "sqlite", kinds, workers)) == []
