"""Free TCP ports for the servers that tests start."""

import os
import random
import socket
from contextlib import suppress

FIRST, SLICES, SLICE = 20_000, 8, 1_500
"""Below the ports that the system gives to outgoing connections: among those, another connection
could take a server's port while it is down, and a client could connect to itself."""


def free_port() -> int:
    """A port that was free just now. Pytest's parallel workers take theirs from different ranges,
    because one that has not bound its port yet does not show."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = FIRST + worker % SLICES * SLICE
    while True:
        port = random.randrange(first, first + SLICE)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
