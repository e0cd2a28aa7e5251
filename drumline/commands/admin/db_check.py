"""`drumline db check`: check the schema, and recount the tasks of every batch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from drumline.cli import groups, output

if TYPE_CHECKING:
    from drumline.store.batch.counters import Differences
    from drumline.store.database import Database

PAGE = 100
FAILED_EXIT_CODE = 1


@groups.db.command("check", epilog="drumline db check\ndrumline db check --repair")
@click.option("--repair", is_flag=True, help="Correct the counters that are wrong.")
def check(repair: bool) -> int:
    """Check the schema, and the counters of every batch. Safe while Drumline is running."""
    from drumline import config
    from drumline.store import schema
    from drumline.store.access import opened
    from drumline.store.batch import counters

    with opened(config.load().database, must_exist=True) as database:
        schema.require(database)
        missing = counters.missing_from_schema(database)
        checked, wrong = (0, {}) if missing else check_counters(database, repair)
    data = {
        "schema_missing": missing,
        "batches": checked,
        "wrong": [{"batch_id": i, "counters": found} for i, found in wrong.items()],
        "repaired": repair and bool(wrong),
    }
    lines = [f"The schema lacks {part}." for part in missing]
    for batch_id, found in wrong.items():
        differences = ", ".join(
            f"{name} {counter}, counted {n}" for name, (counter, n) in found.items()
        )
        lines.append(f"Batch {batch_id}: {differences}{' (repaired)' if repair else ''}.")
    if not missing:
        lines.append(f"{checked:,} batches checked, {len(wrong):,} wrong.")
    output.print_result(data, "\n".join(lines))
    return FAILED_EXIT_CODE if missing or (wrong and not repair) else 0


def check_counters(database: Database, repair: bool) -> tuple[int, dict[int, Differences]]:
    """Compare the counters of every batch with its tasks.

    Returns the number of batches and the differences by batch.
    """
    from drumline.cli.status_line import StatusLine
    from drumline.store.batch import batches

    wrong: dict[int, Differences] = {}
    checked = 0
    with StatusLine(log_steps=False) as line:
        for batch_id in batch_ids(database):
            found = find_differences(database, batch_id)
            if found:
                wrong[batch_id] = found
                if repair:
                    database.write(partial(batches.recount, batch_id=batch_id))
            checked += 1
            line.show(f"{checked:,} batches checked, {len(wrong)} wrong")
    return checked, wrong


def batch_ids(database: Database) -> Iterator[int]:
    """The ids of all batches, read page by page."""
    from drumline.store.batch import counters

    ids = [0]
    while ids := database.read(partial(counters.next_batches, after=ids[-1], limit=PAGE)):
        yield from ids


def find_differences(database: Database, batch_id: int) -> Differences:
    """Compare without locks first; compare again under locks only if the counters seem wrong."""
    from drumline.store.batch import counters

    if not database.read(lambda tx: counters.differences(tx, batch_id)):
        return {}
    return database.write(lambda tx: counters.locked_differences(tx, batch_id))
