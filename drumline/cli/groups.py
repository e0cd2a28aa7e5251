"""The groups of the CLI. The file of a command adds its CLI half to one of them.

    @groups.batch.command("show", epilog="drumline batch show 12")
    @click.argument("batch_id", metavar="ID", type=groups.ID)
    def show(batch_id: int) -> None:
        "One line of help."

Every command has `--json` (see `wants_json`). Its epilog is its examples, one a line, printed as
they are.
"""

from __future__ import annotations

from typing import Any

import click

ID = click.IntRange(1, 2**63 - 1)
"""Ids of rows."""

_JSON = "drumline.json"


def wants_json() -> bool:
    """Whether the running command was called with `--json`."""
    context = click.get_current_context(silent=True)
    return bool(context is not None and context.meta.get(_JSON))


class CliCommand(click.Command):
    """A command with --json and with examples in its help."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not any("--json" in option.opts for option in self.params):
            self.params.append(_json_option())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(self.epilog, formatter)


class CliGroup(click.Group):
    """The commands of one noun."""

    command_class = CliCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            import difflib

            close = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"there is no command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(self.epilog, formatter)


def _json_option() -> click.Option:
    def keep(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[_JSON] = value

    return click.Option(
        ["--json"],
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="Print the result as JSON.",
    )


def _write_examples(text: str | None, formatter: click.HelpFormatter) -> None:
    if text:
        formatter.write_paragraph()
        formatter.write_text("Examples:")
        for line in text.strip().splitlines():
            formatter.write(f"  {line.strip()}\n")


root = CliGroup(
    "drumline",
    help="A durable job scheduler: batches with rollback, one-shot tasks, jobs and sweeps.",
    epilog="""
        drumline batch submit june --type demo.noop --count 1000 --watch
        drumline task schedule demo.echo --in 5 --param '{"hello": "you"}'
        drumline COMMAND --help
    """,
)
batch = CliGroup(
    "batch", help="Submit one task for each of many targets; watch, retry and roll back the batch."
)
task = CliGroup("task", help="Schedule single tasks, list, show, cancel and retry them.")
job = CliGroup("job", help="Recurring work: cron expressions, intervals, fixed delays.")
sweep = CliGroup("sweep", help="One call for each index or item, at a limited rate.")
worker = CliGroup("worker", help="The processes that run tasks.")
queue = CliGroup("queue", help="Tasks that wait for a worker, and paused types.")
handlers = CliGroup("handlers", help="The handlers of the workers.")
token = CliGroup("token", help="API tokens and their roles.")
audit = CliGroup("audit", help="The changes that operators made: who, what, when, and the result.")
db = CliGroup("db", help="The schema of the database.")
config = CliGroup("config", help="The settings.")

GROUPS = (batch, task, job, sweep, worker, queue, handlers, token, audit, db, config)
