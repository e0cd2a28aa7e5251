"""The `drumline` program: finds the command, and turns every error into one line and an exit code.

The commands are in `drumline/commands`. Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from drumline import commands
from drumline.cli import groups
from drumline.errors import DrumlineError

WRONG_USE = 2
INTERRUPTED = 130


def main() -> NoReturn:
    """The entry point. Ends the process with the exit code of the command."""
    words = sys.argv[1:]
    sys.exit(run(tree(words[0] if words else ""), words))


def tree(noun: str = "") -> click.Group:
    """The root group with the commands of a noun, or all commands if there is no such noun.

    Importing the file of a command takes about a millisecond, so a call imports those of its noun.
    """
    for module in commands.modules(noun) or commands.modules():
        for command in vars(module).get("CLI", ()):
            groups.root.add_command(command)
    for group in groups.GROUPS:
        if group.commands:
            groups.root.add_command(group)
    return groups.root


def run(root: click.Group, arguments: list[str]) -> int:
    """Run one command line and return its exit code; an error is one line on stderr."""
    try:
        code = root.main(arguments, prog_name="drumline", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return WRONG_USE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "drumline"
        return _print_error(f"{where}: {error.format_message()}", WRONG_USE)
    except click.ClickException as error:
        return _print_error(error.format_message(), error.exit_code)
    except click.Abort:
        return INTERRUPTED
    except DrumlineError as error:
        return _print_error(str(error), error.exit_code)
    return code if isinstance(code, int) else 0


def _print_error(text: str, code: int) -> int:
    click.echo(" ".join(text.split()), err=True)
    return code


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"drumline {version('drumline')}")
        ctx.exit()


groups.root.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_version,
        help="Print the version.",
    )
)
