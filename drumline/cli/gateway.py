"""How commands reach the gateway of this node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.errors import NotReachable, restore

if TYPE_CHECKING:
    from drumline.client.client import Client


@contextmanager
def connect() -> Iterator[Client]:
    """A client of the gateway. Without a gateway it fails at once instead of trying again."""
    from drumline import config
    from drumline.client.client import Client

    endpoint = config.load().endpoint("control")
    path = Path(endpoint.removeprefix("ipc://"))
    if not path.exists():
        raise NotReachable(what="The gateway", reason=f"there is no {path}; is Drumline up?")
    with Client(endpoint) as client:
        yield client


def query(command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Execute a query command."""
    with connect() as client:
        return client.call(command, **arguments)


def change(command: str, arguments: Mapping[str, Any], request_id: str | None) -> dict[str, Any]:
    """Execute a change command. If it gets no reply, the error says how to repeat it safely."""
    from drumline.client.control import new_request_id

    request_id = request_id or new_request_id()
    with connect() as client, advice(f"to repeat this safely: --request-id {request_id}"):
        return client.call(command, request_id=request_id, **arguments)


@contextmanager
def advice(words: str) -> Iterator[None]:
    """Add advice to the error of a gateway that cannot be reached."""
    try:
        yield
    except NotReachable as error:
        raise restore(error.code, f"{error} ({words})", error.details) from None
