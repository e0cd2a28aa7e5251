"""The tree of the CLI: a command's file hangs its CLI half on one of these.

    @groups.batch.command("show", epilog="drumline batch show 12")
    @click.argument("batch_id", metavar="ID", type=groups.ID)
    def show(batch_id: int) -> None:
        "One line of help."

Every command gets `--json` by itself (`wants_json()` asks for it), and its epilog is its examples,
one a line, printed as they stand.
"""

from __future__ import annotations

from typing import Any

import click

ID = click.IntRange(1, 2**63 - 1)
"""What tables count their rows by."""

_JSON = "drumline.json"


def wants_json() -> bool:
    """Did the caller of the running command ask for JSON?"""
    context = click.get_current_context(silent=True)
    return bool(context is not None and context.meta.get(_JSON))


class CliCommand(click.Command):
    """A command of Drumline: it takes --json, and shows its examples."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not any("--json" in option.opts for option in self.params):
            self.params.append(_json_option())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(self.epilog, formatter)


class CliGroup(click.Group):
    """A noun: its commands are what can be done with it."""

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
        help="Print the answer as JSON.",
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
batch = CliGroup("batch", help="Change many targets at once, watch it, retry it, roll it back.")
task = CliGroup("task", help="Single tasks: schedule them, look at them, steer them.")
job = CliGroup("job", help="What recurs: cron, timers, fixed delays.")
sweep = CliGroup("sweep", help="One call for every index or item, at a set rate.")
worker = CliGroup("worker", help="The processes that run tasks.")
queue = CliGroup("queue", help="What waits for a worker, and what is paused.")
handlers = CliGroup("handlers", help="What the workers can run.")
token = CliGroup("token", help="API tokens: who may ask over HTTP, and for what.")
audit = CliGroup("audit", help="What operators did: who, what, when, with what result.")
db = CliGroup("db", help="The database's schema.")
config = CliGroup("config", help="The settings.")

GROUPS = (batch, task, job, sweep, worker, queue, handlers, token, audit, db, config)
