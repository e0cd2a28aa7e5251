"""`drumline sweep watch`: follow a sweep until it has finished or was stopped."""

from __future__ import annotations

from typing import Any

import click

from drumline.cli import gateway, groups, progress, terminal
from drumline.cli.progress import ProgressReport
from drumline.commands.sweep.show import said
from drumline.domain.sweeps.sweep import ACTIVE, LONGEST_NAME


@groups.sweep.command(
    "watch",
    epilog="""
        drumline sweep watch june
        drumline sweep watch 12 && echo all done
    """,
)
@click.argument("sweep", metavar="SWEEP", type=terminal.text(LONGEST_NAME))
def watch(sweep: str) -> int:
    """Follow a sweep until it is finished, stopped or refused. Exit 1 unless it is finished."""
    return follow_to_end(sweep)


def follow_to_end(sweep: str) -> int:
    """Follow a sweep and print its result; the exit code."""
    with gateway.connect() as client:
        found = progress.follow(
            lambda: client.call("sweep.show", sweep=sweep), _report, lambda it: not _is_active(it)
        )
    terminal.answer(found, said(found))
    return 0 if found["state"] == "finished" else 1


def _is_active(found: dict[str, Any]) -> bool:
    return found["state"] in ACTIVE


def _report(found: dict[str, Any]) -> ProgressReport:
    pace = progress.pace(found["speed"], found["eta_seconds"])
    percent = f"{found['done'] / found['total']:6.1%} " if found["total"] else ""
    return ProgressReport(
        title=f"sweep {found['name']} {found['state']}",
        status=found["state"],
        total=found["total"],
        done=found["done"],
        amount=f"{percent}{found['done']:,}",
        line=f"{said(found)}, {pace}",
        failed=terminal.counted(found["errors"], "error") if found["errors"] else "",
        pace=pace if _is_active(found) else "",
    )
