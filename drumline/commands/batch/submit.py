"""`drumline batch submit`: submit a batch, one task for each target.

A small batch is one message. A large one is loaded in chunks (see `load`); if that fails, the batch
is discarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import gateway, groups, option_types, output, progress
from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.command_layer.fields import Priority, Timeout
from drumline.command_layer.targets import Target
from drumline.commands.batch import preview
from drumline.commands.batch.answers import BatchSubmitted
from drumline.commands.batch.load import BatchFields, BatchLoad, Count, Targets
from drumline.commands.batch.watch import answer_or_follow
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.client.chunks import Chunk
    from drumline.store.tx import Tx


class BatchSubmit(BatchFields, frozen=True, kw_only=True):
    """Submit a whole batch in one message and one transaction."""

    name: ClassVar[str] = "batch.submit"

    targets: Targets = ()
    count: Count = 0
    """Submit this number of identical tasks, in place of targets."""
    param: Any = None
    """The parameter of targets that have none of their own."""
    priority: Priority = 5
    timeout: Timeout | None = None
    """Seconds that one attempt may take; by default, what the handler declares."""

    def change(self, tx: Tx, context: Context) -> BatchSubmitted:
        batch_id = self.create(tx, context)
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
        store.operations.open_batch(tx, row, unowned=False)
        return BatchSubmitted(batch_id=batch_id, tasks=row.total)


# --- the CLI half --------------------------------------------------------------------------------


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
@click.argument("name", type=option_types.text(255))
@click.option(
    "--type",
    "type_",
    required=True,
    type=option_types.TYPE,
    help="Batch type: what to do with each target.",
)
@click.option(
    "--target-type",
    type=option_types.TYPE,
    help="Required if several target types have a handler for it.",
)
@click.option(
    "--targets",
    "file",
    metavar="FILE",
    help="A file with one target per line: JSON objects, or CSV with a header if its name ends in "
    f".csv. Fields: {', '.join(Target.__struct_fields__)}. `-` reads standard input.",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Submit N identical tasks.")
@click.option(
    "--param",
    type=option_types.json_value,
    metavar="JSON",
    help="The parameter of targets without one.",
)
@click.option(
    "--priority", type=option_types.PRIORITY, help="0 to 9; 9 is the most urgent, the default is 5."
)
@click.option(
    "--timeout",
    type=option_types.TIMEOUT,
    metavar="SECONDS",
    help="Maximum duration of an attempt.",
)
@click.option("--env", type=option_types.text(64), help="Label: environment.")
@click.option("--region", type=option_types.text(64), help="Must be this node's region.")
@click.option("--az", type=option_types.text(64), help="Label: availability zone.")
@click.option("--cmdb-service", type=option_types.text(255), help="Label: service in the CMDB.")
@click.option(
    "--creator", type=option_types.text(128), help="Who submits the batch; by default, you."
)
@click.option(
    "--extra", type=option_types.json_value, metavar="JSON", help="Any data for the handler."
)
@click.option(
    "--watch", is_flag=True, help="Wait until the batch is finished; exit 1 unless it succeeds."
)
@click.option("--dry-run", is_flag=True,
              help="Check all targets and show what the handler would change on the first ones; "
              "exit 1 if one of these would fail.")  # fmt: skip
@option_types.request_id
def submit(file: str | None, count: int | None, watch: bool, dry_run: bool, **options: Any) -> int:
    """Submit a batch: the same change for many targets."""
    from drumline.client import batch_load
    from drumline.client.client import user_name
    from drumline.client.control import new_request_id

    if (file is None) == (count is None):
        raise click.UsageError("give either --targets FILE or --count N")
    about = {
        "batch_name": options["name"],
        "type": options["type_"],
        "extra_info": options["extra"],
        "creator": options["creator"] or user_name(),
        **{n: options[n] for n in ("target_type", "env", "region", "az", "cmdb_service")},
    }
    work = {name: options[name] for name in ("param", "priority", "timeout")}
    chunks = iter(_chunks(file, count))
    first = next(chunks, None)  # read before the gateway is asked for anything
    if first is None:
        raise WrongUse(reason="a batch needs at least one target, and there is none in the file")
    chunks = chain((first,), chunks)
    if dry_run:
        with gateway.connect() as client:
            return preview.dry_run(client, about, work, chunks)
    request_id = options["request_id"] or new_request_id()
    hint = (
        "nothing runs before all is loaded; to continue, repeat the command with --request-id "
        f"{request_id}"
    )
    with (
        gateway.connect() as client,
        gateway.advice(hint),
        progress.loading_bar(f"loading batch {options['name']}", _total(file, count)) as show,
    ):
        reply = batch_load.submit(client, about, work, chunks, request_id, show)
    batch_id = reply["batch_id"]
    words = f"batch {batch_id}: {output.plural(reply['tasks'], 'task')} submitted"
    return answer_or_follow(batch_id, reply, words, watch)


def _chunks(file: str | None, count: int | None) -> Iterator[Chunk]:
    from drumline.client import chunks, target_files

    return chunks.of_count(count or 0) if file is None else target_files.read(file)


def _total(file: str | None, count: int | None) -> int | None:
    """What the progress bar counts to: tasks, or bytes of a file."""
    if file is None:
        return count
    with suppress(OSError):
        return None if file == "-" else Path(file).stat().st_size
    return None
