"""Who is silent, judged by a watcher that may itself have been asleep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.liveness import SilenceDetector

LIMIT, GAP = 4.0, 1.0

steps = st.lists(
    st.tuples(
        st.sampled_from(["look", "look", "look", "a", "b"]),
        st.sampled_from([0.25, 0.5, 1.0, 1.25, 3.0, 10.0]),
    ),
    max_size=60,
)


@given(steps)
def test_nobody_is_judged_by_time_that_the_watcher_missed(
    happened: list[tuple[str, float]],
) -> None:
    """Told apart by adding up, for each peer, only the time that was watched."""
    watch: SilenceDetector[str] = SilenceDetector(LIMIT, GAP)
    now, looked = 0.0, None
    heard: dict[str, float] = {}
    for what, seconds in happened:
        now += seconds
        if what != "look":
            watch.record_message(what, now)
            heard[what] = now
            continue
        if looked is not None and now - looked > GAP:
            heard = dict.fromkeys(heard, now)  # it slept: everyone's time begins again
        looked = now
        silent = watch.silent_peers(now)
        assert set(silent) == {peer for peer, at in heard.items() if now - at > LIMIT}


@given(st.floats(0, 1e6), st.integers(1, 40))
def test_a_silent_peer_is_found_in_time_by_a_watcher_that_looks_often(
    start: float, looks: int
) -> None:
    watch: SilenceDetector[str] = SilenceDetector(LIMIT, GAP)
    watch.record_message("peer", start)
    found = [start + n / 4 for n in range(looks) if watch.silent_peers(start + n / 4)]
    assert found == [start + n / 4 for n in range(looks) if (start + n / 4) - start > LIMIT]


def test_after_a_pause_everyone_gets_the_whole_limit_again() -> None:
    watch: SilenceDetector[str] = SilenceDetector(LIMIT, GAP)
    watch.record_message("peer", 0.0)
    assert watch.silent_peers(0.5) == []
    assert watch.silent_peers(60.0) == []
    for tick in range(1, 17):
        assert watch.silent_peers(60.0 + tick * 0.25) == []
    assert watch.silent_peers(64.5) == ["peer"]


def test_a_pause_does_not_excuse_for_ever() -> None:
    """Short pauses, each within what is normal, are watched time."""
    watch: SilenceDetector[str] = SilenceDetector(LIMIT, GAP)
    watch.record_message("peer", 0.0)
    assert [watch.silent_peers(float(n)) for n in range(1, 6)] == [[], [], [], [], ["peer"]]


def test_being_heard_is_life_and_being_forgotten_is_no_death() -> None:
    watch: SilenceDetector[str] = SilenceDetector(LIMIT, GAP)
    for peer in ("lives", "silent", "left"):
        watch.record_message(peer, 0.0)
    watch.forget("left")
    watch.forget("never seen")
    for tick in range(1, 21):
        now = tick * 0.25
        watch.record_message("lives", now)
        silent = watch.silent_peers(now)
    assert silent == ["silent"]


def test_an_excuse_can_be_given_from_outside() -> None:
    watch: SilenceDetector[int] = SilenceDetector(LIMIT, GAP)
    watch.record_message(1, 0.0)
    watch.silent_peers(0.0)
    watch.restart(3.9)
    ticks = [(n / 4, watch.silent_peers(n / 4)) for n in range(1, 36)]
    assert next(at for at, silent in ticks if silent) == pytest.approx(8.0)
