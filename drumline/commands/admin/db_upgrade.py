"""`drumline db upgrade`: bring the database's schema to this version."""

from __future__ import annotations

from drumline.cli import groups, terminal


@groups.db.command("upgrade", epilog="drumline db upgrade")
def upgrade() -> None:
    """Make the tables, or bring them up to date. Safe to call again, and by two at once."""
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
    said = "is up to date" if before == after else f"was brought from {before or 'nothing'} here"
    terminal.answer({"before": before, "current": after}, f"The schema is at {after}: it {said}.")
