"""The schedule of a job: a cron expression, daily times, or a delay after each run.

As text: `*/15 * * * *`, `@daily 08:00,17:30`, `@after 90s`. Times are UTC microseconds. A firing is
identified by its *scheduled* time, so that two nodes that compute it mean the same firing; jitter
only delays the moment at which its run becomes due.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from zoneinfo import ZoneInfo

from drumline.domain.jobs.cron import (
    DAY,
    HORIZON_US,
    SECOND_US,
    CronExpression,
    Spans,
    firing_spans,
    firings_of,
    first_firing,
)
from drumline.domain.jobs.cron_syntax import BadSchedule

MAX_DAILY_TIMES = 24
MAX_DELAY = 366 * DAY
MAX_JITTER = 3_600
MIN_LEAD = 5 * SECOND_US
FIRST_LEAD = 10 * SECOND_US
"""See materialise_until()."""

_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_DELAY = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
_UNITS = (("d", DAY), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class DailyTimes:
    """The same times every day; the rule for chosen hours applies to clock changes."""

    seconds: tuple[int, ...]
    """Since midnight, ascending."""

    every_hour = False

    @staticmethod
    def parse(text: str) -> DailyTimes:
        seconds = set()
        for item in text.split(","):
            match = _TIME.fullmatch(item.strip())
            if match is None:
                reason = f"{item.strip()!r} is not a time of the day as HH:MM or HH:MM:SS"
                raise BadSchedule(field="cron_expr", reason=reason)
            hour, minute, second = (int(part or 0) for part in match.groups())
            seconds.add(hour * 3_600 + minute * 60 + second)
        if len(seconds) > MAX_DAILY_TIMES:
            reason = f"it has {len(seconds)} times a day, at most {MAX_DAILY_TIMES} are allowed"
            raise BadSchedule(field="cron_expr", reason=reason)
        return DailyTimes(tuple(sorted(seconds)))

    @property
    def normalised(self) -> str:
        return "@daily " + ",".join(_clock_text(second) for second in self.seconds)

    def local_spans(self, lo: int, hi: int) -> Spans:
        for midnight in range(lo // DAY * DAY, hi, DAY):
            first = bisect_left(self.seconds, lo - midnight)
            if part := self.seconds[first : bisect_left(self.seconds, hi - midnight)]:
                yield midnight, part


@dataclass(frozen=True, slots=True)
class AfterCompletion:
    """Each run is due a fixed time after the end of the previous one, whatever its outcome."""

    delay_us: int

    @staticmethod
    def parse(text: str) -> AfterCompletion:
        match = _DELAY.fullmatch(text.strip())
        if match is None or not any(match.groups()):
            reason = f"{text.strip()!r} is not a delay such as 90s, 5m or 1h30m"
            raise BadSchedule(field="cron_expr", reason=reason)
        parts = zip(match.groups(), _UNITS, strict=True)
        seconds = sum(int(count or 0) * size for count, (_, size) in parts)
        if not 1 <= seconds <= MAX_DELAY:
            reason = f"the delay {text.strip()} is not between 1s and {MAX_DELAY // DAY}d"
            raise BadSchedule(field="cron_expr", reason=reason)
        return AfterCompletion(seconds * SECOND_US)

    @property
    def normalised(self) -> str:
        rest, text = self.delay_us // SECOND_US, ""
        for unit, size in _UNITS:
            count, rest = divmod(rest, size)
            text += f"{count}{unit}" if count else ""
        return f"@after {text}"


@dataclass(frozen=True, slots=True)
class FiringCount:
    """The number of firings in a period, the first of them, and the newest ones."""

    count: int = 0
    first: int = 0
    newest: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """The complete schedule of a job; it fires from starts_at to ends_at, both included."""

    when: CronExpression | DailyTimes | AfterCompletion
    zone: ZoneInfo
    starts_at: int | None = None
    ends_at: int | None = None
    jitter_us: int = 0

    @staticmethod
    def parse(
        text: str,
        timezone: str = "UTC",
        *,
        starts_at: int | None = None,
        ends_at: int | None = None,
        jitter_seconds: float = 0,
    ) -> Schedule:
        when = _parse_when(text)
        zone = parse_timezone(timezone)
        if starts_at is not None and ends_at is not None and ends_at < starts_at:
            raise BadSchedule(field="ends_at", reason="it is before starts_at")
        if not 0 <= jitter_seconds <= MAX_JITTER:  # also refuses NaN
            reason = f"{jitter_seconds} is not between 0 and {MAX_JITTER}"
            raise BadSchedule(field="jitter_seconds", reason=reason)
        return Schedule(when, zone, starts_at, ends_at, round(jitter_seconds * SECOND_US))

    @property
    def text(self) -> str:
        """The normalised text, from which parse() makes the same schedule."""
        return self.when.normalised

    @property
    def by_clock(self) -> bool:
        """Firings are known ahead. Otherwise each end of a run, or a skip, makes the next one."""
        return not isinstance(self.when, AfterCompletion)

    def first_after(self, enabled_us: int) -> int | None:
        """The first firing after a job was enabled; immediate if the schedule is a delay."""
        if self.by_clock:
            return self.next_after(enabled_us)
        return self._until_end(max(enabled_us, self.starts_at or 0))

    def next_after(self, t_us: int) -> int | None:
        """The next firing after t_us; for a fixed delay, t_us is when the last run ended."""
        if isinstance(self.when, AfterCompletion):
            return self._until_end(max(t_us + self.when.delay_us, self.starts_at or 0))
        return first_firing(self._spans(t_us, max(t_us, self.starts_at or 0) + HORIZON_US))

    def between(self, start_us: int, end_us: int, limit: int | None = None) -> Iterator[int]:
        """The first `limit` firings in (start_us, end_us], ascending; none of a delay."""
        return islice(firings_of(self._spans(start_us, end_us)), limit)

    def count_firings(self, start_us: int, end_us: int, keep: int) -> FiringCount:
        """Count the firings in (start_us, end_us] and keep the newest.

        Counts whole spans: a year of one firing a second takes 8,760 steps, not 31 million.
        """
        count = kept = first = 0
        tail: deque[tuple[int, tuple[int, ...]]] = deque()
        for base, offsets in self._spans(start_us, end_us):
            first = first if count else (base + offsets[0]) * SECOND_US
            count += len(offsets)
            tail.append((base, tuple(offsets)))
            kept += len(offsets)
            while tail and kept - len(tail[0][1]) >= keep:
                kept -= len(tail.popleft()[1])
        return FiringCount(count, first, tuple(firings_of(iter(tail)))[max(kept - keep, 0) :])

    def due_at(self, job_id: int, scheduled_us: int) -> int:
        """When the run of a firing is due: with a jitter that is the same on every node."""
        if not self.jitter_us:
            return scheduled_us
        digest = blake2b(b"%d %d" % (job_id, scheduled_us), digest_size=8).digest()
        return scheduled_us + int.from_bytes(digest, "big") % (self.jitter_us + 1)

    def _spans(self, start_us: int, end_us: int) -> Spans:
        if isinstance(self.when, AfterCompletion):
            return iter(())
        if self.starts_at is not None:
            start_us = max(start_us, self.starts_at - 1)
        if self.ends_at is not None:
            end_us = min(end_us, self.ends_at)
        return firing_spans(self.when, start_us, end_us, self.zone)

    def _until_end(self, t_us: int) -> int | None:
        return None if self.ends_at is not None and t_us > self.ends_at else t_us


def parse_timezone(name: str) -> ZoneInfo:
    # right/ counts leap seconds, and localtime differs between hosts.
    if name.startswith(("right/", "posix/")) or name in ("localtime", "posixrules"):
        raise BadSchedule(field="timezone", reason=f"{name!r} is not the name of a time zone")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        reason = f"there is no time zone {name!r}; a valid name is Europe/Berlin or UTC"
        raise BadSchedule(field="timezone", reason=reason) from None


def _parse_when(text: str) -> CronExpression | DailyTimes | AfterCompletion:
    kind, rest = [*text.split(maxsplit=1), "", ""][:2]
    match kind.lower():
        case "@daily":
            return DailyTimes.parse(rest)
        case "@after":
            return AfterCompletion.parse(rest)
        case word if word.startswith("@"):
            reason = f"{kind!r} is not known; use a cron expression, @daily HH:MM or @after 90s"
            raise BadSchedule(field="cron_expr", reason=reason)
        case _:
            return CronExpression.parse(text)


def _clock_text(second: int) -> str:
    text = f"{second // 3_600:02}:{second // 60 % 60:02}"
    return f"{text}:{second % 60:02}" if second % 60 else text


def materialise_until(fired_until: int, now: int, step: int) -> int:
    """Up to when the firings of a job are materialised: two steps ahead.

    A job whose firings end within MIN_LEAD first gets only those of FIRST_LEAD, so that many new
    jobs do not delay each other.
    """
    is_short = fired_until < now + MIN_LEAD
    return now + (min(2 * step, FIRST_LEAD) if is_short else 2 * step)
