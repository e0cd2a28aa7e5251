"""Catch-up: missed firings run or are counted, by mode, grace and bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.domain.jobs.catch_up import (
    CatchUpMode,
    CatchUpPlan,
    ListedFirings,
    Misfire,
    plan_catch_up,
)
from drumline.domain.jobs.schedule import Schedule

MINUTE = 60_000_000
EVERY_MINUTE = Schedule.parse("* * * * *")
NONE, COMPACT, FULL = CatchUpMode.NONE, CatchUpMode.COMPACT, CatchUpMode.FULL


def minutes(*which: int) -> tuple[int, ...]:
    return tuple(n * MINUTE for n in which)


@pytest.mark.parametrize(
    ("mode", "bound", "run", "misfire"),
    [
        (NONE, 3, (), (8, 1, 8)),
        (COMPACT, 3, (8,), (7, 1, 7)),
        (FULL, 3, (6, 7, 8), (5, 1, 5)),
        (FULL, 8, (1, 2, 3, 4, 5, 6, 7, 8), None),
        (FULL, 99, (1, 2, 3, 4, 5, 6, 7, 8), None),
        (FULL, 0, (), (8, 1, 8)),
    ],
)
@pytest.mark.parametrize("source", [EVERY_MINUTE, ListedFirings(minutes(*range(20)))])
def test_firings_past_their_grace_are_handled_by_the_mode(
    source: Schedule | ListedFirings,
    mode: CatchUpMode,
    bound: int,
    run: tuple[int, ...],
    misfire: tuple[int, int, int] | None,
) -> None:
    # Minutes 1 to 10 are due at 10:30; 9 and 10 are within the grace of 90 s and run in any mode.
    found = plan_catch_up(
        source,
        fired_until=0,
        now=10 * MINUTE + MINUTE // 2,
        grace_us=MINUTE * 3 // 2,
        mode=mode,
        bound=bound,
    )
    expected = misfire and Misfire(misfire[0], misfire[1] * MINUTE, misfire[2] * MINUTE)
    assert found == CatchUpPlan(minutes(*run, 9, 10), expected)


def test_a_firing_exactly_at_its_grace_runs() -> None:
    for late, run in ((0, (1,)), (1, ())):
        found = plan_catch_up(
            EVERY_MINUTE,
            fired_until=0,
            now=MINUTE + 10 + late,
            grace_us=10,
            mode=NONE,
            bound=1,
        )
        assert found.to_fire == minutes(*run)
        assert (found.misfire is None) == bool(run)


@pytest.mark.parametrize("mode", CatchUpMode)
def test_firings_from_before_the_last_change_are_ignored(mode: CatchUpMode) -> None:
    found = plan_catch_up(
        EVERY_MINUTE,
        fired_until=0,
        now=10 * MINUTE,
        grace_us=2 * MINUTE,
        mode=mode,
        bound=99,
        changed_at=6 * MINUTE,
    )
    gone = Misfire(1, 7 * MINUTE, 7 * MINUTE) if mode is NONE else None
    assert found == CatchUpPlan(minutes(*([8, 9, 10] if mode is NONE else [7, 8, 9, 10])), gone)


@pytest.mark.parametrize("mode", CatchUpMode)
def test_no_misfire_if_no_firing_was_missed(mode: CatchUpMode) -> None:
    for until in (10 * MINUTE, 12 * MINUTE):
        found = plan_catch_up(
            EVERY_MINUTE, fired_until=until, now=10 * MINUTE, grace_us=0, mode=mode, bound=9
        )
        assert found == CatchUpPlan((), None)


@given(
    st.integers(0, 50 * MINUTE),
    st.integers(0, 50 * MINUTE),
    st.integers(0, 20 * MINUTE),
    st.integers(0, 50 * MINUTE),
    st.sampled_from(CatchUpMode),
    st.integers(0, 10),
)
@settings(max_examples=200)
def test_every_firing_is_run_or_counted_as_missed(
    until: int, now: int, grace: int, changed: int, mode: CatchUpMode, bound: int
) -> None:
    found = plan_catch_up(
        EVERY_MINUTE,
        fired_until=until,
        now=now,
        grace_us=grace,
        mode=mode,
        bound=bound,
        changed_at=changed,
    )
    due = list(EVERY_MINUTE.between(max(until, changed), now))
    missed = found.misfire.count if found.misfire else 0
    assert list(found.to_fire) == due[missed:]
    if found.misfire:
        assert (found.misfire.first, found.misfire.last) == (due[0], due[missed - 1])
    old = sum(now - t > grace for t in due)
    assert missed == max(old - {NONE: 0, COMPACT: 1, FULL: bound}[mode], 0)


def test_the_reason_of_a_misfire_names_count_and_times() -> None:
    assert Misfire(3, 0, 2 * MINUTE).reason == (
        "3 firings were missed, from 1970-01-01T00:00:00+00:00 to 1970-01-01T00:02:00+00:00"
    )
    assert Misfire(1, 1, 1).reason.startswith(
        "1 firing was missed, from 1970-01-01T00:00:00.000001"
    )
