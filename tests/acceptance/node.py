"""A node as its operator sees it from outside: its kinds of processes, and its pages."""

import http.client
from contextlib import closing

from tests.stack import Stack

EVERYWHERE = "0.0.0.0"  # noqa: S104  # that is what is tested
KINDS = {"supervisord", "ticker", "dispatcher", "reaper", "worker", "runner", "scanner", "gateway"}


def get(stack: Stack, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", stack.http_port, timeout=20)
    with closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def figures(stack: Stack) -> dict[str, float]:
    """What /metrics says, by name and labels."""
    status, text = get(stack, "/metrics")
    assert status == 200
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}
