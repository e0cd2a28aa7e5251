"""`drumline sweep create`: call a handler once for every index, or for every item of a source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click
import msgspec

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Text128, as_json
from drumline.commands.sweep.answers import SweepSummary, read_summary
from drumline.commands.sweep.show import format_sweep
from drumline.commands.sweep.watch import answer_or_follow
from drumline.domain.sweeps.definition import (
    LARGEST_PARALLEL,
    LARGEST_PARTITIONS,
    LARGEST_RATE,
    LARGEST_TOTAL,
    LONGEST_NAME,
    SMALLEST_RATE,
    SweepDefinition,
)
from drumline.domain.sweeps.partition import MAX_EXTRA_BYTES
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.domain.policy import HandlerSpec
    from drumline.store.tx import Tx

LIST_LIMIT = 1024 * 1024
"""Bytes of items in a list; larger lists must be a file or a URL."""
MAX_THREADS = 256
"""How many sync items a partition runs in parallel."""
CHECK_SECONDS = 60.0
"""How long the CLI waits for a create hook."""


class SweepCreate(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.create"

    sweep_name: str = msgspec.field(name="name")
    type: str
    total: int | None = None
    """The number of indexes, in place of items."""
    items: str | tuple[str, ...] | None = None
    """A file or URL with one item per line, or the items themselves."""
    rate: float | None = None
    """Maximum items per second, over all partitions."""
    parallel: int | None = None
    """Maximum items in parallel, over all partitions."""
    errors: int | None = None
    """The sweep stops when this many items have failed."""
    partitions: int = 1
    """The number of workers among which the items are divided."""
    extra: Any = None
    """Any data for the handler."""
    start: bool = False
    """Start the sweep at once, if it has no create hook."""
    creator: Text128 | None = None

    def change(self, tx: Tx, context: Context) -> SweepSummary:
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
        return read_summary(tx, row)


def check_threads(spec: HandlerSpec, parallel: int | None, partitions: int) -> None:
    """Refuse more parallel sync items than the partitions have threads for."""
    is_async = spec.sweep is not None and spec.sweep.is_async
    if parallel is not None and not is_async and parallel > MAX_THREADS * partitions:
        raise WrongUse(
            field="parallel",
            reason=f"{spec.type} is not async, and a partition runs at most "
            f"{MAX_THREADS} sync items at a time: use more partitions.",
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

    size = sum(
        len(chunk) for chunk in lines(items)
    )  # refuses items that would not be read back unchanged
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
    """A URL unchanged; a file by its absolute path, as workers have another working directory."""
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
@click.argument("sweep_name", metavar="NAME", type=option_types.text(LONGEST_NAME))
@click.option(
    "--type",
    "type_",
    type=option_types.TYPE,
    required=True,
    help="The sweep type, which names the handler.",
)
@click.option(
    "--total",
    type=click.IntRange(1, LARGEST_TOTAL),
    help="Sweep over the indexes from 0 to N-1.",
    metavar="N",
)
@click.option(
    "--items", type=_items, metavar="FILE_OR_URL", help="Sweep over the lines of a file or URL."
)
@click.option(
    "--rate", type=RATE, metavar="N", help="Maximum items per second, over all partitions."
)
@click.option(
    "--parallel", type=PARALLEL, metavar="N", help="Maximum items in parallel, over all partitions."
)
@click.option("--errors", type=ERRORS, metavar="N", help="Stop when N items have failed.")
@click.option("--partitions", type=click.IntRange(1, LARGEST_PARTITIONS), metavar="N",
              help="Divide the items among N workers; by default, 1.")  # fmt: skip
@click.option(
    "--extra", type=option_types.json_value, metavar="JSON", help="Any data for the handler."
)
@click.option("--start", is_flag=True, help="Start the sweep at once.")
@click.option("--watch", is_flag=True, help="Start the sweep and follow it until it ends.")
@option_types.request_id
def create(
    sweep_name: str, type_: str, start: bool, watch: bool, request_id: str | None, **options: Any
) -> int:
    """Create a sweep: call a handler once for every index or item."""
    if (options["total"] is None) == (options["items"] is None):
        raise click.UsageError("give either --total or --items")
    starts = start or watch
    arguments = options | {"name": sweep_name, "type": type_, "start": starts}
    sweep = gateway.change("sweep.create", arguments, request_id)
    if not sweep["checked"]:
        sweep = _wait_for_check(sweep["id"])
        if sweep["state"] == "failed":
            output.print_result(sweep, format_sweep(sweep))
            return 5
        if starts:
            sweep = gateway.change("sweep.start", {"sweep": sweep["id"]}, None)
    return answer_or_follow(sweep, watch)


def _wait_for_check(sweep_id: int) -> dict[str, Any]:
    """Wait for the create hook, which runs in a worker."""
    from drumline.client.polling import poll

    with gateway.connect() as client:
        for sweep in poll(lambda: client.call("sweep.show", sweep=sweep_id), CHECK_SECONDS):
            if sweep["checked"] or sweep["state"] == "failed":
                break
    return sweep
