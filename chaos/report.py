"""The page that a run prints: what ran, which faults happened, which laws were broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from chaos.history import Called, FaultInjected, History, ItemDone, Record
from chaos.laws import LAWS, Violation

SHOWN = 5
"""Violations of one law that are printed."""


def page(history: History, violations: Sequence[Violation], replay: str) -> str:
    return "\n".join(_lines(history, violations, replay))


def _lines(history: History, violations: Sequence[Violation], replay: str) -> Iterator[str]:
    runs = history.runs()
    calls = list(history.of(Called))
    unknown = sum(call.answer is None and call.error is None for call in calls)
    snapshot = history.snapshot()
    yield f"runs of handlers   {len(runs):>7,}"
    yield f"items of sweeps    {sum(1 for _ in history.of(ItemDone)):>7,}"
    yield f"commands           {len(calls):>7,}  {unknown} with an unknown outcome"
    refused = Counter(call.error for call in calls if call.error is not None)
    for error, count in refused.most_common(SHOWN):
        yield f"  refused {count:>9}  {error}"
    if snapshot is not None:
        states = Counter(row.status for row in snapshot.tasks)
        yield f"tasks              {len(snapshot.tasks):>7,}  " + ", ".join(
            f"{count} {state}" for state, count in states.most_common()
        )
    faults = Counter(fault.kind for fault in history.of(FaultInjected))
    yield f"faults             {sum(faults.values()):>7,}  " + ", ".join(
        f"{kind} {count}" for kind, count in sorted(faults.items())
    )
    broken = Counter(violation.law for violation in violations)
    yield ""
    for law in LAWS:
        name = law.__name__
        yield f"{'BROKEN' if broken[name] else 'kept':<7} {name.replace('_', ' ')}"
        shown = [violation for violation in violations if violation.law == name][:SHOWN]
        for violation in shown:
            yield f"          {violation.sentence}"
            yield from (f"            {_short(record)}" for record in violation.history)
        if broken[name] > len(shown):
            yield f"          and {broken[name] - len(shown)} more"
    yield ""
    yield f"Replay with: {replay}"


def _short(record: Record) -> str:
    fields = msgspec.structs.asdict(record)
    words = " ".join(f"{name}={value}" for name, value in fields.items() if name != "at")
    return f"{record.at:.3f} {type(record).__name__} {words}"[:160]
