"""A TCP proxy between a node and its MariaDB server, which cuts, delays and resets connections."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import make_url

COMMIT = b"\x07\x00\x00\x00\x03COMMIT"
"""The packet of a COMMIT: its length, its number, the command for a query, the statement."""
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER so that a close sends a reset."""
DELAY_SECONDS = (0.05, 0.5)
CHUNK = 64 * 1024
CONNECT_SECONDS = 5.0


@dataclass(eq=False)
class Pair:
    """A connection of the node, and the one to the server that belongs to it."""

    client: socket.socket
    server: socket.socket
    is_reset: bool = False


class Proxy:
    """Forwards connections on a port of its own to a server. Faults are switched on and off."""

    def __init__(self, server_port: int, seed: int) -> None:
        self.server_port = server_port
        self.chance = random.Random(f"proxy {seed}")
        self.refuses = False
        """New connections are cut at once."""
        self.delays = False
        self.reset_share = 0.0
        """The share of the COMMITs after which the node's connection is reset."""
        self.cuts = 0
        self.delayed = 0
        self.resets = 0
        self._lock = threading.Lock()
        self._pairs: list[Pair] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, server_url: str) -> str:
        """The URL of a database as it is reached through this proxy."""
        return make_url(server_url).set(port=self.port).render_as_string(hide_password=False)

    def cut(self) -> None:
        """Cut every open connection."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self.cuts += 1
            _shut_down(pair.client)
            _shut_down(pair.server)

    def close(self) -> None:
        self.refuses = True
        _shut_down(self._listener)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            if self.refuses:
                self.cuts += 1
                client.close()
            else:
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.server_port), CONNECT_SECONDS)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = Pair(client, server)
        with self._lock:
            self._pairs.append(pair)
        replies = threading.Thread(target=self._forward, args=(pair, server, client), daemon=True)
        replies.start()
        self._forward(pair, client, server)
        replies.join()
        with self._lock:
            self._pairs.remove(pair)
        client.close()
        server.close()

    def _forward(self, pair: Pair, source: socket.socket, target: socket.socket) -> None:
        """Forward what `source` sends until it closes, then close both directions."""
        with suppress(OSError):
            while chunk := source.recv(CHUNK):
                if self.delays:
                    self.delayed += 1
                    time.sleep(self.chance.uniform(*DELAY_SECONDS))
                resets = chunk == COMMIT and self.chance.random() < self.reset_share
                if pair.is_reset:
                    break
                pair.is_reset = resets  # before the COMMIT is sent: its answer is not forwarded
                target.sendall(chunk)
                if resets:
                    self.resets += 1
                    source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    source.close()
                    return  # the server reads the COMMIT; its answer ends the other direction
        _shut_down(target)
        _shut_down(source)


def _shut_down(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
