"""The proxy forwards, cuts, delays, and resets a connection after a COMMIT that still arrives."""

import socket
import time
from collections.abc import Iterator

import pytest

from chaos.proxy import COMMIT, DELAY_SECONDS, Proxy


class Server:
    """Accepts one connection."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(10.0)
        self.port: int = self.listener.getsockname()[1]
        self.end: socket.socket | None = None

    def accept(self) -> socket.socket:
        self.end, _ = self.listener.accept()
        self.end.settimeout(10.0)
        return self.end

    def close(self) -> None:
        if self.end is not None:
            self.end.close()
        self.listener.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port, seed=1)
    yield proxy
    proxy.close()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), 10.0) as client:
        yield client


def test_bytes_are_forwarded_in_both_directions(server: Server, client: socket.socket) -> None:
    end = server.accept()
    client.sendall(b"query")
    assert end.recv(100) == b"query"
    end.sendall(b"rows")
    assert client.recv(100) == b"rows"


def test_a_cut_ends_open_connections(server: Server, client: socket.socket, proxy: Proxy) -> None:
    end = server.accept()
    client.sendall(b"query")
    assert end.recv(100) == b"query"
    proxy.cut()
    assert client.recv(100) == b""
    assert end.recv(100) == b""
    assert proxy.cuts == 1


def test_packets_are_delayed(server: Server, client: socket.socket, proxy: Proxy) -> None:
    proxy.delays = True
    end = server.accept()
    sent = time.monotonic()
    client.sendall(b"query")
    assert end.recv(100) == b"query"
    assert time.monotonic() - sent >= DELAY_SECONDS[0]
    assert proxy.delayed == 1


def test_a_commit_arrives_and_its_answer_does_not(
    server: Server, client: socket.socket, proxy: Proxy
) -> None:
    proxy.reset_share = 1.0
    end = server.accept()
    client.sendall(COMMIT)
    assert end.recv(100) == COMMIT
    with pytest.raises(ConnectionResetError):
        client.recv(100)
    end.sendall(b"OK")
    assert end.recv(100) == b""
    assert proxy.resets == 1


def test_the_url_names_the_port_of_the_proxy(proxy: Proxy) -> None:
    url = proxy.url("mysql+pymysql://root@127.0.0.1:3306/chaos")
    assert url == f"mysql+pymysql://root@127.0.0.1:{proxy.port}/chaos"
