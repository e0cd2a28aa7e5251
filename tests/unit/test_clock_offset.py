"""The database's clock as a process reads it."""

import pytest

from drumline.store.database import clock_offset


@pytest.mark.parametrize(
    ("before", "theirs", "after", "offset"),
    [
        (1_000, 1_000, 1_000, 0),
        (1_000, 1_000, 51_000, 0),  # the answer was late
        (1_000, 51_000, 51_000, 0),  # the question was late
        (1_000, 2_001_500, 2_000, 2_000_000),
        (2_001_000, 1_500, 2_002_000, -2_000_000),
    ],
)
def test_a_slow_reading_is_no_offset(before: int, theirs: int, after: int, offset: int) -> None:
    assert clock_offset(before, theirs, after) == offset
