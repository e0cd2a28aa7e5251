"""Silent peers, detected by a watcher that may itself have been paused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.liveness import SilenceDetector

LIMIT, GAP = 4.0, 1.0

steps = st.lists(
    st.tuples(
        st.sampled_from(["check", "check", "check", "a", "b"]),
        st.sampled_from([0.25, 0.5, 1.0, 1.25, 3.0, 10.0]),
    ),
    max_size=60,
)


@given(steps)
def test_time_in_which_the_watcher_was_paused_does_not_count(
    happened: list[tuple[str, float]],
) -> None:
    """Compared with a model that restarts every peer's time after a pause."""
    detector: SilenceDetector[str] = SilenceDetector(LIMIT, GAP)
    now, checked = 0.0, None
    heard: dict[str, float] = {}
    for what, seconds in happened:
        now += seconds
        if what != "check":
            detector.record_message(what, now)
            heard[what] = now
            continue
        if checked is not None and now - checked > GAP:
            heard = dict.fromkeys(heard, now)  # a pause: the time of every peer starts again
        checked = now
        silent = detector.silent_peers(now)
        assert set(silent) == {peer for peer, at in heard.items() if now - at > LIMIT}


@given(st.floats(0, 1e6), st.integers(1, 40))
def test_a_silent_peer_is_found_at_the_limit_by_frequent_checks(start: float, checks: int) -> None:
    detector: SilenceDetector[str] = SilenceDetector(LIMIT, GAP)
    detector.record_message("peer", start)
    found = [start + n / 4 for n in range(checks) if detector.silent_peers(start + n / 4)]
    assert found == [start + n / 4 for n in range(checks) if (start + n / 4) - start > LIMIT]


def test_after_a_pause_every_peer_has_the_whole_limit_again() -> None:
    detector: SilenceDetector[str] = SilenceDetector(LIMIT, GAP)
    detector.record_message("peer", 0.0)
    assert detector.silent_peers(0.5) == []
    assert detector.silent_peers(60.0) == []
    for tick in range(1, 17):
        assert detector.silent_peers(60.0 + tick * 0.25) == []
    assert detector.silent_peers(64.5) == ["peer"]


def test_short_gaps_between_checks_count_as_silence() -> None:
    """Gaps that are shorter than a pause."""
    detector: SilenceDetector[str] = SilenceDetector(LIMIT, GAP)
    detector.record_message("peer", 0.0)
    assert [detector.silent_peers(float(n)) for n in range(1, 6)] == [[], [], [], [], ["peer"]]


def test_messages_reset_the_silence_and_forgotten_peers_are_not_reported() -> None:
    detector: SilenceDetector[str] = SilenceDetector(LIMIT, GAP)
    for peer in ("lives", "silent", "left"):
        detector.record_message(peer, 0.0)
    detector.forget("left")
    detector.forget("never seen")
    for tick in range(1, 21):
        now = tick * 0.25
        detector.record_message("lives", now)
        silent = detector.silent_peers(now)
    assert silent == ["silent"]


def test_the_time_of_all_peers_can_be_restarted() -> None:
    detector: SilenceDetector[int] = SilenceDetector(LIMIT, GAP)
    detector.record_message(1, 0.0)
    detector.silent_peers(0.0)
    detector.restart(3.9)
    ticks = [(n / 4, detector.silent_peers(n / 4)) for n in range(1, 36)]
    assert next(at for at, silent in ticks if silent) == pytest.approx(8.0)
