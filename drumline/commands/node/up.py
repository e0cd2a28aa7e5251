"""`drumline up`: start all processes of this node, and drain and stop them on Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from drumline.cli import groups
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import Context, QueryCommand

if TYPE_CHECKING:
    from drumline.cli.status_line import StatusLine
    from drumline.config import Settings
    from drumline.node.launch import StartedNode

REFRESH_SECONDS = 2.0
HOW_TO_STOP = "Ctrl-C drains and stops everything."
NEXT_STEPS = """
Next:
  {drumline} batch show {batch}
  {drumline} batch submit hello --type demo.sleep --param '{{"seconds": 0.1}}' --count 100 --watch
  {drumline} init          writes drumline.toml and example handlers
  {drumline} top           watches processes, queue and rates
  {drumline} down          drains and stops everything\
"""


class NodeReadiness(Answer, frozen=True, kw_only=True):
    """Why a node is not ready for work; empty if it is."""

    missing: list[str]


class NodeReady(QueryCommand, frozen=True, kw_only=True):
    """Show what is missing before this node is ready for work."""

    name: ClassVar[str] = "node.ready"

    def answer(self, context: Context) -> NodeReadiness:
        from drumline.node import readiness

        return NodeReadiness(missing=readiness.missing(context))


@groups.root.command(
    "up",
    epilog="""
        drumline up
        drumline up --detach --workers 8
        drumline up --database mysql://user:password@host/drumline --import myhandlers
    """,
)
@click.option("--detach", is_flag=True, help="Return when the node is ready for work.")
@click.option("--demo", is_flag=True, help="Also submit 1,000 demo tasks and watch them finish.")
@click.option("--workers", type=click.IntRange(1, 1024), metavar="N", help="Start N workers.")
@click.option("--database", metavar="URL", help="sqlite:///FILE or mysql://USER@HOST/NAME.")
@click.option(
    "--import",
    "imports",
    metavar="MODULE",
    multiple=True,
    help="A Python module with handlers; may be repeated.",
)
def up(
    detach: bool, demo: bool, workers: int | None, database: str | None, imports: tuple[str, ...]
) -> int:
    """Migrate the database and start all processes. Ctrl-C drains and stops them."""
    from drumline.cli.status_line import StatusLine
    from drumline.node import launch, run_dir, shutdown, supervisor

    settings = _settings(demo, workers, database, imports)
    path = run_dir.make_run_dir(settings)
    lock = supervisor.acquire_lock(path)
    if lock is None:
        _require_health(settings, detach)
        _print_addresses(settings, run_dir.ensure_api_token(path), "Drumline is already up")
        return _run_demo(settings) if demo else 0
    _interrupt_on_signals()
    with StatusLine() as line:
        try:
            started = launch.start(settings, lock, line.show)
        except launch.StartFailed as error:
            line.print(error.log)
            raise
    try:
        _print_addresses(settings, started.token, "Drumline is up")
        code = _run_demo(settings) if demo else 0
        if not detach:
            _wait_for_end(settings, started)
        return code
    except KeyboardInterrupt:
        with StatusLine() as line:
            _report_on_signals(settings, line)
            shutdown.drain(settings, line.show)
        click.echo("All processes have drained and stopped.", err=True)
    return 0


def _settings(
    demo: bool, workers: int | None, database: str | None, imports: tuple[str, ...]
) -> Settings:
    """The settings, overridden by the command line."""
    from drumline import config

    overrides = {"WORKERS": workers, "DATABASE_URL": database, "HTTP_ALLOW_LOOPBACK": demo or None}
    environment = dict(os.environ)
    environment |= {config.PREFIX + k: str(v) for k, v in overrides.items() if v is not None}
    settings = config.load(environment)
    if imports:
        modules = dict.fromkeys((*settings.imports, *imports))
        settings = config.load(environment | {config.PREFIX + "IMPORTS": ",".join(modules)})
    return settings


def _require_health(settings: Settings, detach: bool) -> None:
    """Accept a running node only with --detach, and only if it is ready."""
    from drumline.client.control import Control
    from drumline.errors import Conflict, NotReachable

    path = settings.run_path
    advice = "`drumline status` shows it, `drumline down` stops it"
    if not detach:
        raise Conflict(reason=f"Drumline is already up in {path}; {advice}")
    control = Control(settings.endpoint("control"), timeout=5.0)
    try:
        missing = control.call("node.ready", {})["missing"]
    except NotReachable as error:
        missing = [str(error)]
    finally:
        control.close()
    if missing:
        raise Conflict(
            reason=f"Drumline is up in {path} but not ready: {', '.join(missing)}; {advice}"
        )


def _print_addresses(settings: Settings, token: str, head: str) -> None:
    from drumline.masking import mask_url
    from drumline.node.run_dir import TOKEN

    host = f"[{settings.http_host}]" if ":" in settings.http_host else settings.http_host
    url, file = f"http://{host}:{settings.http_port}", settings.run_path / TOKEN
    if groups.wants_json():
        import msgspec

        addresses = {"url": url, "token_file": str(file), "run_dir": str(settings.run_path)}
        click.echo(msgspec.json.encode(addresses))
        return
    click.echo(f"{head} with {settings.worker_count} workers.")
    click.echo(f"  url        {url}")
    click.echo(f"  api token  {token}  (kept in {_short(file)})")
    click.echo(f"  database   {mask_url(settings.database)}")
    click.echo(f"  logs       {_short(settings.run_path / 'log')}/")


def _run_demo(settings: Settings) -> int:
    """Run the demo batch. Returns the exit code."""
    from drumline.client.client import Client
    from drumline.node import demo
    from drumline.node.supervisor import find_drumline

    with Client(settings.endpoint("control")) as client:
        batch = demo.run(client)
    done = batch["counts"].get("success", 0)
    click.echo(f"{done:,} of {batch['total']:,} tasks done in {batch['seconds']:.1f} s.", err=True)
    if done != batch["total"]:
        return 1
    for line in NEXT_STEPS.format(
        batch=batch["id"], drumline=_short(find_drumline() or Path("drumline"))
    ).splitlines():
        click.echo(line, err=True)
    return 0


def _wait_for_end(settings: Settings, started: StartedNode) -> None:
    """Show the node's figures until Ctrl-C or until `drumline down` is called elsewhere."""
    from drumline.cli.status_line import StatusLine
    from drumline.client.control import Control
    from drumline.commands.node.top import summarise_node

    control = Control(settings.endpoint("control"), timeout=2.0)
    try:
        with StatusLine() as line:
            line.show(HOW_TO_STOP)
            while not started.has_ended(REFRESH_SECONDS):
                if sys.stderr.isatty():
                    line.show(f"{summarise_node(control)}. {HOW_TO_STOP}")
    finally:
        control.close()


def _interrupt_on_signals() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C."""

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def _report_on_signals(settings: Settings, line: StatusLine) -> None:
    """From now on, answer Ctrl-C with what is being waited for."""
    from drumline.node.shutdown import drain_limit

    def tell(number: int, _: object) -> None:
        line.print(
            f"Running tasks have {settings.drain_seconds:g} s to finish, then they return to "
            f"the queue. All processes stop within {drain_limit(settings):g} s."
        )

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, tell)


def _short(path: Path) -> Path:
    """A path, relative to the working directory if it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
