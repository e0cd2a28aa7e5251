"""`drumline db check`: is the schema whole, and do the batches' counters tell the truth?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from drumline.cli import groups, terminal

if TYPE_CHECKING:
    from drumline.store.batch.counters import Differences
    from drumline.store.database import Database

PAGE = 100
FAILED = 1


@groups.db.command("check", epilog="drumline db check\ndrumline db check --repair")
@click.option("--repair", is_flag=True, help="Recount the batches whose counters are wrong.")
def check(repair: bool) -> int:
    """Check the schema, and recount every batch. Safe while Drumline runs."""
    from drumline import config
    from drumline.store import schema
    from drumline.store.access import opened
    from drumline.store.batch import counters

    with opened(config.load().database, must_exist=True) as database:
        schema.require(database)
        missing = counters.missing_parts(database)
        checked, wrong = (0, {}) if missing else recounted(database, repair)
    data = {
        "schema_missing": missing,
        "batches": checked,
        "wrong": [{"batch_id": i, "counters": found} for i, found in wrong.items()],
        "repaired": repair and bool(wrong),
    }
    lines = [f"The schema lacks {part}." for part in missing]
    for batch_id, found in wrong.items():
        said = ", ".join(f"{name} {counter}, counted {n}" for name, (counter, n) in found.items())
        lines.append(f"Batch {batch_id}: {said}{' (repaired)' if repair else ''}.")
    if not missing:
        lines.append(f"{checked:,} batches checked, {len(wrong):,} wrong.")
    terminal.answer(data, "\n".join(lines))
    return FAILED if missing or (wrong and not repair) else 0


def recounted(database: Database, repair: bool) -> tuple[int, dict[int, Differences]]:
    """Hold every batch against its tasks; how many there are, and those that are wrong."""
    from drumline.cli.status_line import StatusLine
    from drumline.store.batch import batches

    wrong: dict[int, Differences] = {}
    checked = 0
    with StatusLine(chatty=False) as line:
        for batch_id in every_batch(database):
            found = look(database, batch_id)
            if found:
                wrong[batch_id] = found
                if repair:
                    database.write(partial(batches.recount, batch_id=batch_id))
            checked += 1
            line.say(f"{checked:,} batches checked, {len(wrong)} wrong")
    return checked, wrong


def every_batch(database: Database) -> Iterator[int]:
    """All batches by id, a page at a time."""
    from drumline.store.batch import counters

    ids = [0]
    while ids := database.read(partial(counters.page, after=ids[-1], limit=PAGE)):
        yield from ids


def look(database: Database, batch_id: int) -> Differences:
    """A cheap look first; only what seems wrong is looked at again while nothing can move."""
    from drumline.store.batch import counters

    if not database.read(lambda tx: counters.differences(tx, batch_id)):
        return {}
    return database.write(lambda tx: counters.settled(tx, batch_id))
