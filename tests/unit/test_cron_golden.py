"""The meaning of stored schedules: expressions with their normalised text and first firings.

Never regenerate cron_golden.txt. A line that fails means that an upgrade of croniter, of the time
zones or of Drumline would change when the jobs of users run.
"""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from drumline.domain.jobs.cron import CronExpression
from tests.unit.cron_cases import shown, us

GOLDEN = Path(__file__).with_name("cron_golden.txt").read_text().splitlines()


@pytest.mark.parametrize("line", GOLDEN)
def test_a_stored_schedule_keeps_its_meaning(line: str) -> None:
    text, normalised, zone, start, expected = line.split(" | ")
    firings = expected.split()
    cron = CronExpression.parse(text)
    assert cron.normalised == normalised
    assert CronExpression.parse(normalised) == cron
    one_by_one, moment = [], us(start, zone)
    for _ in firings:
        following = cron.next_after(moment, ZoneInfo(zone))
        assert following is not None
        one_by_one.append(shown(following, zone))
        moment = following
    assert one_by_one == firings
    assert [
        shown(t, zone) for t in cron.between(us(start, zone), moment, ZoneInfo(zone))
    ] == firings
