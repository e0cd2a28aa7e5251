"""`drumline sweep watch`: follow a sweep until it has finished or was stopped."""

from __future__ import annotations

from typing import Any

import click

from drumline.cli import gateway, groups, option_types, output, progress
from drumline.cli.progress import ProgressReport
from drumline.commands.sweep.show import format_sweep
from drumline.domain.sweeps.definition import LONGEST_NAME
from drumline.domain.sweeps.states import ACTIVE


@groups.sweep.command(
    "watch",
    epilog="""
        drumline sweep watch june
        drumline sweep watch 12 && echo finished
    """,
)
@click.argument("sweep", metavar="SWEEP", type=option_types.text(LONGEST_NAME))
def watch(sweep: str) -> int:
    """Follow a sweep until it is finished, stopped or failed. Exit 1 unless it is finished."""
    return follow_to_end(sweep)


def answer_or_follow(answer: dict[str, Any], watch: bool) -> int:
    """Print the answer of a command, at once or when its sweep has ended. Returns the exit code."""
    if not watch:
        output.print_result(answer, format_sweep(answer))
        return 0
    output.print_note(format_sweep(answer))
    return follow_to_end(str(answer["id"]))


def follow_to_end(sweep: str) -> int:
    """Follow a sweep and print its result. Returns the exit code."""
    with gateway.connect() as client:
        last = progress.follow(
            lambda: client.call("sweep.show", sweep=sweep), _report, lambda it: not _is_active(it)
        )
    output.print_result(last, format_sweep(last))
    return 0 if last["state"] == "finished" else 1


def _is_active(sweep: dict[str, Any]) -> bool:
    return sweep["state"] in ACTIVE


def _report(sweep: dict[str, Any]) -> ProgressReport:
    pace = progress.pace(sweep["speed"], sweep["eta_seconds"])
    percent = f"{sweep['done'] / sweep['total']:6.1%} " if sweep["total"] else ""
    return ProgressReport(
        title=f"sweep {sweep['name']} {sweep['state']}",
        status=sweep["state"],
        total=sweep["total"],
        done=sweep["done"],
        amount=f"{percent}{sweep['done']:,}",
        line=f"{format_sweep(sweep)}, {pace}",
        failed=output.plural(sweep["errors"], "error") if sweep["errors"] else "",
        pace=pace if _is_active(sweep) else "",
    )
