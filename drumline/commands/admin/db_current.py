"""`drumline db current`: which schema the database has."""

from __future__ import annotations

from drumline.cli import groups, terminal

MISMATCH = 5


@groups.db.command("current", epilog="drumline db current --json")
def current() -> int:
    """Show the schema's version. Exit code 5 if this version of Drumline needs another."""
    from drumline import config
    from drumline.store import schema
    from drumline.store.access import opened

    with opened(config.load().database, must_exist=True) as database:
        found = schema.current(database)
    fits = found == schema.HEAD
    said = "as it should be" if fits else f"needed is {schema.HEAD}: run `drumline db upgrade`"
    data = {"current": found, "needed": schema.HEAD}
    terminal.answer(data, f"The schema is at {found or 'nothing'}, {said}.")
    return 0 if fits else MISMATCH
