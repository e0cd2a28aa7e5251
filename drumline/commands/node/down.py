"""`drumline down`: drain and stop all processes of this node. Needs no gateway."""

from __future__ import annotations

import click

from drumline.cli import groups


@groups.root.command("down", epilog="drumline down")
def down() -> None:
    """Drain and stop all processes of this node."""
    from drumline import config
    from drumline.cli.status_line import StatusLine
    from drumline.node import run_dir
    from drumline.node.shutdown import drain

    settings = config.load()
    path = settings.run_path
    running = len(run_dir.live_processes(path))
    if running:
        try:
            with StatusLine() as line:
                drain(settings, line.show)
        except KeyboardInterrupt:
            click.echo("The processes continue to drain; `drumline status` shows them.", err=True)
            raise
    if groups.wants_json():
        click.echo(f'{{"stopped": {running}}}')
    else:
        click.echo(f"Drumline in {path} is down." if running else f"Nothing is running in {path}.")
