"""`drumline completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import click

from drumline.cli import groups, output
from drumline.errors import DrumlineError

SHELLS = ("bash", "zsh", "fish")


@groups.root.command(
    "completion",
    epilog="""
        source <(drumline completion bash)
        drumline completion zsh > ~/.zfunc/_drumline
        drumline completion fish > ~/.config/fish/completions/drumline.fish
    """,
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise DrumlineError(reason=f"there is no completion for {shell}")
    script = kind(groups.root, {}, "drumline", "_DRUMLINE_COMPLETE").source()
    output.print_result({"shell": shell, "script": script}, script)
