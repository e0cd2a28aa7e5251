"""`drumline batch submit`: many targets, one change each.

A small batch is one message. A large one is loaded in pieces (see `batch_load`), and one that
cannot be loaded to its end is taken back: nothing is left of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click
import msgspec

from drumline.cli import groups, terminal
from drumline.command_layer import store, targets
from drumline.command_layer.base import Context
from drumline.command_layer.fields import Priority, Timeout
from drumline.command_layer.targets import PIECE, Target
from drumline.commands.batch import preview
from drumline.commands.batch.load import BatchLoad, BatchOpen, Count, Targets
from drumline.commands.batch.watch import told
from drumline.errors import Conflict, DrumlineError, NotFound, NotReachable, WrongUse, restore

if TYPE_CHECKING:
    from drumline.cli.terminal import Door
    from drumline.store.tx import Tx


class BatchSubmit(BatchOpen, frozen=True, kw_only=True):
    """A whole batch in one message and one transaction."""

    name: ClassVar[str] = "batch.submit"

    targets: Targets = ()
    count: Count = 0
    param: Any = None
    priority: Priority = 5
    timeout: Timeout | None = None

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        batch_id = super().change(tx, context)["batch_id"]
        load = BatchLoad(
            batch_id=batch_id,
            targets=self.targets,
            count=self.count,
            param=self.param,
            priority=self.priority,
            timeout=self.timeout,
        )
        load.load(tx, context, store.tables.ANYONE)
        row = store.batches.get(tx, batch_id)
        store.operations.open_batch(tx, row, spread=False)
        return {"batch_id": batch_id, "tasks": row.total}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        context.ring()


# --- the CLI half --------------------------------------------------------------------------------


class BatchChunk(msgspec.Struct):
    """Some of the targets, as arguments of a command."""

    arguments: dict[str, Any]
    done: int
    """How far we are with it, in the units of `_total`."""
    source: str = ""
    lines: list[int] = msgspec.field(default_factory=list)


@groups.batch.command(
    "submit",
    epilog="""
        drumline batch submit june --type mail.send --targets june.jsonl --watch
        drumline batch submit stop-all --type cdc_job_stop --target-type cdc --targets ids.csv
        drumline batch submit try --type demo.sleep --count 100 --param '{"seconds": 0.1}'
        drumline batch submit june --type mail.send --targets june.jsonl --dry-run
        generate-targets | drumline batch submit nightly --type mail.send --targets -
    """,
)
@click.argument("name", type=terminal.text(255))
@click.option("--type", "type_", required=True, type=terminal.TYPE, help="What to do: batch type.")
@click.option("--target-type", type=terminal.TYPE, help="Needed if several serve the batch type.")
@click.option(
    "--targets",
    "file",
    metavar="FILE",
    help="One target a line: JSON objects, or CSV with a header if it ends in .csv. Fields: "
    f"{', '.join(Target.__struct_fields__)}. `-` is standard input.",
)
@click.option("--count", type=click.IntRange(min=1), help="That many equal tasks.")
@click.option("--param", type=terminal.document, metavar="JSON", help="For targets without one.")
@click.option("--priority", type=terminal.PRIORITY, help="9 is the most urgent, 5 is usual.")
@click.option("--timeout", type=terminal.TIMEOUT, metavar="SECONDS", help="For each task.")
@click.option("--env", type=terminal.text(64), help="Label: environment.")
@click.option("--region", type=terminal.text(64), help="Must be this node's region.")
@click.option("--az", type=terminal.text(64), help="Label: availability zone.")
@click.option("--cmdb-service", type=terminal.text(255), help="Label: service in the CMDB.")
@click.option("--creator", type=terminal.text(128), help="Who wants it. Default: you.")
@click.option("--extra", type=terminal.document, metavar="JSON", help="More for the handler.")
@click.option("--watch", is_flag=True, help="Stay until it is finished. Exit 1 unless success.")
@click.option("--dry-run", is_flag=True,
              help="Check all targets and show what would become of the first ones. Exit 1 if "
              "one of those would fail.")  # fmt: skip
@terminal.changes
def submit(file: str | None, count: int | None, watch: bool, dry_run: bool, **options: Any) -> int:
    """Submit a batch: the same change for many targets."""
    if (file is None) == (count is None):
        raise click.UsageError("give either --targets FILE or --count N")
    about = {
        "batch_name": options["name"],
        "type": options["type_"],
        "extra_info": options["extra"],
        "creator": options["creator"] or terminal.user(),
        **{n: options[n] for n in ("target_type", "env", "region", "az", "cmdb_service")},
    }
    work = {name: options[name] for name in ("param", "priority", "timeout")}
    parts = _counted(count) if file is None else _read(file)
    with terminal.door() as door:
        if dry_run:
            return preview.dry_run(door, about, work, parts, _naming_lines)
        answer = _submit(door, about, work, parts, _total(file, count), options["request_id"])
    batch_id = answer["batch_id"]
    words = f"batch {batch_id}: {terminal.counted(answer['tasks'], 'task')} submitted"
    return told(batch_id, answer, words, watch)


def _counted(count: int | None) -> Iterator[BatchChunk]:
    done = 0
    while count is not None and done < count:
        n = min(PIECE, count - done)
        done += n
        yield BatchChunk({"count": n}, done)


def _read(file: str) -> Iterator[BatchChunk]:
    for piece in targets.read(file):
        yield BatchChunk({"targets": piece.targets}, piece.read, file, piece.lines)


def _total(file: str | None, count: int | None) -> int | None:
    if file is None:
        return count
    with suppress(OSError):
        return None if file == "-" else Path(file).stat().st_size
    return None


def _submit(
    door: Door,
    about: Mapping[str, Any],
    work: Mapping[str, Any],
    parts: Iterator[BatchChunk],
    total: int | None,
    request_id: str | None,
) -> dict[str, Any]:
    """In one message if it fits into one, else in pieces."""
    from drumline.client.control import new_request_id

    request_id = request_id or new_request_id()
    first, second = next(parts, None), next(parts, None)
    if first is None:
        raise WrongUse(reason="a batch needs at least one target, and there is none in the file")
    try:
        if second is None:
            with _naming_lines(first):
                return door.call("batch.submit", {**about, **work, **first.arguments}, request_id)
        return _in_pieces(door, about, work, chain((first, second), parts), total, request_id)
    except NotReachable as error:
        if not door.was_found:
            raise
        raise restore(
            error.code,
            f"{error} (nothing runs before all is loaded; to go on where it stopped, repeat the "
            f"command with --request-id {request_id})",
            error.details,
        ) from None


def _in_pieces(
    door: Door,
    about: Mapping[str, Any],
    work: Mapping[str, Any],
    parts: Iterator[BatchChunk],
    total: int | None,
    request_id: str,
) -> dict[str, Any]:
    """Every piece has a request id of its own: what is repeated goes on where it stopped."""
    batch = {"batch_id": door.call("batch.open", about, f"{request_id}.open")["batch_id"]}
    try:
        with terminal.bar(f"loading batch {batch['batch_id']}", total) as advance:
            for number, part in enumerate(parts, 1):
                with _naming_lines(part):
                    arguments = {**batch, **work, **part.arguments}
                    door.call("batch.load", arguments, f"{request_id}.{number}")
                advance(part.done)
    except NotFound:
        raise Conflict(
            reason=f"request {request_id} was given up before; use another --request-id"
        ) from None
    except NotReachable:
        raise
    except BaseException:
        with suppress(DrumlineError):
            door.call("batch.discard", batch, f"{request_id}.discard")
        raise
    return door.call("batch.start", batch, f"{request_id}.start")


@contextmanager
def _naming_lines(part: BatchChunk) -> Iterator[None]:
    """The gateway counts the targets of a message; a person wants the line of the file."""
    try:
        yield
    except WrongUse as error:
        index, reason = error.details.get("index"), error.details.get("reason")
        if index is None or reason is None or not part.lines:
            raise
        field = {name: value for name, value in error.details.items() if name == "field"}
        place = f"{part.source} line {part.lines[index]}"
        raise WrongUse(**field, reason=reason).within(place) from None
