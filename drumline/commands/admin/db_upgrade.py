"""`drumline db upgrade`: migrate the database to the schema of this version."""

from __future__ import annotations

from drumline.cli import groups, output


@groups.db.command("upgrade", epilog="drumline db upgrade")
def upgrade() -> None:
    """Create or migrate the tables. Safe to repeat and to run concurrently."""
    from drumline import config
    from drumline.node import run_dir
    from drumline.store import schema
    from drumline.store.access import opened

    settings = config.load()
    if not settings.database_url:
        run_dir.make_run_dir(settings)  # the database file is in it
    with opened(settings.database) as database:
        before = schema.current(database)
        after = schema.upgrade(database)
    change = "up to date" if before == after else f"migrated from {before or 'nothing'}"
    output.print_result(
        {"before": before, "current": after}, f"The schema is at {after}: {change}."
    )
