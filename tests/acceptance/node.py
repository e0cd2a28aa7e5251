"""The processes and the HTTP pages of a node, as an operator sees them."""

import http.client
from contextlib import closing

from tests.stack import Stack

EVERYWHERE = "0.0.0.0"  # noqa: S104  # the address under test
KINDS = {"supervisord", "ticker", "dispatcher", "reaper", "worker", "runner", "scanner", "gateway"}


def get(stack: Stack, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", stack.http_port, timeout=20)
    with closing(connection):
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def figures(stack: Stack) -> dict[str, float]:
    """The values of /metrics by name and labels."""
    status, text = get(stack, "/metrics")
    assert status == 200
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}
