"""`drumline db current`: the schema version of the database."""

from __future__ import annotations

from drumline.cli import groups, output

MISMATCH_EXIT_CODE = 5


@groups.db.command("current", epilog="drumline db current --json")
def current() -> int:
    """Show the schema version. Exit 5 if this version of Drumline needs another one."""
    from drumline import config
    from drumline.store import schema
    from drumline.store.access import opened

    with opened(config.load().database, must_exist=True) as database:
        found = schema.current(database)
    fits = found == schema.HEAD
    verdict = "as required" if fits else f"required is {schema.HEAD}: run `drumline db upgrade`"
    data = {"current": found, "needed": schema.HEAD}
    output.print_result(data, f"The schema is at {found or 'nothing'}, {verdict}.")
    return 0 if fits else MISMATCH_EXIT_CODE
