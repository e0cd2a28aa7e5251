"""The page that a run prints: what ran, which faults happened, which laws were broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from chaos.context import NodeContext, in_words
from chaos.history import Called, FaultInjected, FaultMissed, History, ItemDone
from chaos.laws import LAWS, Violation

SHOWN = 5
"""Violations of one law that are printed."""
RECORDS = 20
"""Records around a violation that are printed."""


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
    missed = Counter(f"{fault.kind} ({fault.reason})" for fault in history.of(FaultMissed))
    yield f"not injected       {sum(missed.values()):>7,}  " + ", ".join(
        f"{fault} {count}" for fault, count in sorted(missed.items())
    )
    broken = Counter(violation.law for violation in violations)
    context = NodeContext(history)
    begin = history.records[0].at if history.records else 0.0
    yield ""
    for law in LAWS:
        name = law.__name__
        yield f"{'BROKEN' if broken[name] else 'kept':<7} {name.replace('_', ' ')}"
        shown = [violation for violation in violations if violation.law == name][:SHOWN]
        for violation in shown:
            yield f"          {violation.sentence}"
            for record in context.around(violation)[:RECORDS]:
                mark = ">" if record in violation.history else " "
                yield f"          {mark} {record.at - begin:8.3f} s  {in_words(record)}"[:180]
        if broken[name] > len(shown):
            yield f"          and {broken[name] - len(shown)} more"
    yield ""
    yield f"Replay with: {replay}"
