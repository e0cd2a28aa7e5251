"""Submit a batch: in one message if it fits into one, else chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from drumline.errors import Conflict, DrumlineError, NotFound, NotReachable, WrongUse

if TYPE_CHECKING:
    from drumline.client.chunks import Chunk
    from drumline.client.client import Client


def submit(
    client: Client,
    batch: Mapping[str, Any],
    tasks: Mapping[str, Any],
    chunks: Iterable[Chunk],
    request_id: str,
    on_progress: Callable[[int], object] = lambda done: None,
) -> dict[str, Any]:
    """Submit a batch and return the reply, with the batch's id and the number of its tasks.

    `batch` describes the batch and `tasks` what its tasks have in common. Every chunk has a request
    id of its own: repeated after an interruption, the submission continues where it stopped. A
    batch that cannot be loaded completely is discarded.
    """
    chunks = iter(chunks)
    first, second = next(chunks, None), next(chunks, None)
    if first is None:
        raise WrongUse(reason="a batch needs at least one target")
    if second is None:
        with first.naming_source():
            arguments = {**batch, **tasks, **first.arguments}
            return client.call("batch.submit", request_id=request_id, **arguments)
    opened = client.call("batch.open", request_id=f"{request_id}.open", **batch)
    which = {"batch_id": opened["batch_id"]}
    try:
        for number, chunk in enumerate(chain((first, second), chunks), 1):
            with chunk.naming_source():
                arguments = {**which, **tasks, **chunk.arguments}
                client.call("batch.load", request_id=f"{request_id}.{number}", **arguments)
            on_progress(chunk.done)
    except NotFound:
        raise Conflict(
            reason=f"request {request_id} was given up before; use another request id"
        ) from None
    except NotReachable:
        raise  # the same request id can continue
    except BaseException:
        with suppress(DrumlineError):
            client.call("batch.discard", request_id=f"{request_id}.discard", **which)
        raise
    return client.call("batch.start", request_id=f"{request_id}.start", **which)
