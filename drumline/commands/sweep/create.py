"""`drumline sweep create`: one call of a handler for every index, or for every line of a source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click
import msgspec

from drumline.cli import gateway, groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Text128, as_json
from drumline.commands.sweep.show import said, shown
from drumline.commands.sweep.watch import follow_to_end
from drumline.domain.sweeps.partition import MAX_EXTRA_BYTES
from drumline.domain.sweeps.sweep import (
    LARGEST_PARALLEL,
    LARGEST_PARTITIONS,
    LARGEST_RATE,
    LARGEST_TOTAL,
    LONGEST_NAME,
    SMALLEST_RATE,
    SweepDefinition,
)
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.domain.policy import HandlerSpec
    from drumline.store.tx import Tx

LIST_LIMIT = 1024 * 1024
"""Bytes of items in a list; more come from a file or a URL."""
MOST_THREADS = 256
"""Sync items that a partition runs at a time."""
CHECK_SECONDS = 60.0
"""How long the command line waits for a create hook."""


class SweepCreate(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.create"

    sweep_name: str = msgspec.field(name="name")
    type: str
    total: int | None = None
    items: str | tuple[str, ...] | None = None
    """A file or URL with one item a line, or the items themselves."""
    rate: float | None = None
    parallel: int | None = None
    errors: int | None = None
    partitions: int = 1
    extra: Any = None
    start: bool = False
    """Start it in the same breath, if it has no create hook."""
    creator: Text128 | None = None

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        region = context.settings.region
        spec = store.handlers.find_sweep(tx, region, self.type)
        listed = self.items if isinstance(self.items, tuple) else None
        definition = SweepDefinition(
            name=self.sweep_name,
            type=self.type,
            total=self.total,
            items="a list" if listed else self.items or None,  # type: ignore[arg-type]
            rate=self.rate,
            parallel=self.parallel,
            errors=self.errors,
            partitions=self.partitions,
        )
        check_threads(spec, self.parallel, self.partitions)
        values = {
            "name": definition.name,
            "type": spec.type,
            "first_index": 0,
            "end_index": self.total,
            "total": self.total,
            "items": None if listed else self.items,
            "item_list": None if listed is None else _list(listed),
            "rate": self.rate,
            "parallel": self.parallel,
            "errors": self.errors,
            "partitions": self.partitions,
            "extra": extra_json(self.extra),
            "creator": self.creator or context.actor or None,
        }
        sweep_id = store.sweeps.create(tx, region, values, spec)
        row = store.sweeps.get(tx, region, sweep_id)
        if self.start and row.checked:
            row = store.sweeps.start(tx, row, spec)
        return shown(tx, row)


def check_threads(spec: HandlerSpec, parallel: int | None, partitions: int) -> None:
    """Sync items need a thread each."""
    is_async = spec.sweep is not None and spec.sweep.is_async
    if parallel is not None and not is_async and parallel > MOST_THREADS * partitions:
        raise WrongUse(
            field="parallel",
            reason=f"{spec.type} is not async, and a partition runs at most "
            f"{MOST_THREADS} sync items at a time: use more partitions.",
        )


def extra_json(extra: Any) -> str | None:
    text = as_json(extra)
    if text is not None and len(text.encode()) > MAX_EXTRA_BYTES:
        raise WrongUse(
            field="extra",
            reason=f"{len(text.encode())} bytes of JSON are more than {MAX_EXTRA_BYTES}.",
        )
    return text


def _list(items: tuple[str, ...]) -> str:
    from drumline.sweep_items.reader import lines

    size = sum(len(chunk) for chunk in lines(items))  # refuses what would not come back as it is
    if size > LIST_LIMIT:
        raise WrongUse(
            field="items",
            reason=f"a list of {size:,} bytes is more than {LIST_LIMIT:,}: use a file.",
        )
    return msgspec.json.encode(items).decode()


def _rate(value: str) -> float:
    try:
        rate = float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a number of items a second") from None
    if not SMALLEST_RATE <= rate <= LARGEST_RATE:
        raise click.BadParameter(f"{value} is not between {SMALLEST_RATE:g} and {LARGEST_RATE:g}")
    return rate


_rate.__name__ = "rate"
RATE = _rate
PARALLEL = click.IntRange(1, LARGEST_PARALLEL)
ERRORS = click.IntRange(0, LARGEST_TOTAL)


def _items(value: str) -> str:
    """A URL as it is; a file by its whole path, since workers have another directory."""
    if "://" in value:
        return value
    path = Path(value).absolute()
    if not path.is_file():
        raise click.BadParameter(f"there is no file {value}")
    return str(path)


_items.__name__ = "file_or_url"


@groups.sweep.command(
    "create",
    epilog="""
        drumline sweep create june --type mail.all --total 1000000 --rate 500 --start
        drumline sweep create urls --type page.fetch --items urls.txt --parallel 20 --errors 100
        drumline sweep create big --type demo.sweep --total 10000000000 --partitions 4
    """,
)
@click.argument("sweep_name", metavar="NAME", type=terminal.text(LONGEST_NAME))
@click.option("--type", "type_", type=terminal.TYPE, required=True, help="The handler.")
@click.option("--total", type=click.IntRange(1, LARGEST_TOTAL), help="Every index below this.")
@click.option("--items", type=_items, metavar="FILE_OR_URL", help="Or every line of this.")
@click.option("--rate", type=RATE, metavar="N", help="Items a second, of the whole sweep.")
@click.option("--parallel", type=PARALLEL, metavar="N", help="Items at a time.")
@click.option("--errors", type=ERRORS, metavar="N", help="Stop at so many errors.")
@click.option("--partitions", type=click.IntRange(1, LARGEST_PARTITIONS), metavar="N",
              help="Parts that run on workers of their own; 1 if not said.")  # fmt: skip
@click.option("--extra", type=terminal.document, metavar="JSON", help="Data for the handler.")
@click.option("--start", is_flag=True, help="Start it at once.")
@click.option("--watch", is_flag=True, help="Start it, and follow it to its end.")
@terminal.changes
def create(
    sweep_name: str, type_: str, start: bool, watch: bool, request_id: str | None, **options: Any
) -> int:
    """Create a sweep: a handler is called once for every index, or every item."""
    if (options["total"] is None) == (options["items"] is None):
        raise click.UsageError("give --total or --items, one of the two")
    starts = start or watch
    arguments = options | {"name": sweep_name, "type": type_, "start": starts}
    made = terminal.change("sweep.create", arguments, request_id)
    if not made["checked"]:
        made = _checked(made["id"])
        if made["state"] == "failed":
            terminal.answer(made, said(made))
            return 5
        if starts:
            made = terminal.change("sweep.start", {"sweep": made["id"]}, None)
    if not watch:
        terminal.answer(made, said(made))
        return 0
    terminal.say(said(made))
    return follow_to_end(str(made["id"]))


def _checked(sweep_id: int) -> dict[str, Any]:
    """Wait for the create hook, which runs in a worker."""
    from drumline.client.polling import poll

    with gateway.connect() as client:
        for found in poll(lambda: client.call("sweep.show", sweep=sweep_id), CHECK_SECONDS):
            if found["checked"] or found["state"] == "failed":
                break
    return found
