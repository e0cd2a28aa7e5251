"""Item sources as a runner opens them: a file, a list, and a real HTTP server."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.reaper import Reaper
from drumline.config import Settings
from drumline.domain.sweeps.partition import ItemSource
from drumline.errors import Conflict, DrumlineError, WrongUse
from drumline.handlers.item_sources import OpenedSource, open_source

LINES = [f"item {n} ü" for n in range(5000)]
BODY = "".join(f"{line}\n" for line in LINES).encode()


class Server:
    """Serves one body and records the requests."""

    def __init__(self) -> None:
        self.body = BODY
        self.headers: dict[str, str] = {"ETag": '"one"'}
        self.breaks_at: int | None = None
        self.ranges = True
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range", "")
                server.asked.append(wanted)
                start = int(wanted[6:-1]) if wanted and server.ranges else 0
                if self.path == "/elsewhere":
                    self.send_response(302)
                    self.send_header("Location", "/")
                    self.end_headers()
                    return
                self.send_response(206 if start else 404 if self.path == "/none" else 200)
                body = server.body[start:]
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: server.breaks_at])
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def opened(source: ItemSource, folder: Path, loopback: bool = True) -> OpenedSource:
    settings = Settings(run_dir=str(folder), http_allow_loopback=loopback)
    return open_source(7, source, lambda: False, settings)


def read(found: OpenedSource) -> list[str]:
    with found.items as items:
        return items.read(0, items.total)


def test_a_url_is_fetched_once_and_read_by_index(server: Server, tmp_path: Path) -> None:
    source = ItemSource(server.url, None)
    first = opened(source, tmp_path)
    assert read(first) == LINES
    server.breaks_at = 0
    again = opened(ItemSource(server.url, None, first.identity, 5000), tmp_path)
    assert again.items[4711] == LINES[4711], "its body was not asked for again"
    again.items.close()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_broke_off_is_resumed(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.ranges, server.breaks_at = ranges, 50_000
    with pytest.raises(WrongUse, match="cannot be fetched"):
        opened(ItemSource(server.url, None), tmp_path)
    server.breaks_at = None
    assert read(opened(ItemSource(server.url, None), tmp_path)) == LINES
    assert any(asked.startswith("bytes=") for asked in server.asked)


def test_content_that_is_not_what_was_counted_is_refused(server: Server, tmp_path: Path) -> None:
    first = opened(ItemSource(server.url, None), tmp_path)
    first.items.close()
    server.headers["ETag"] = '"two"'
    with pytest.raises(Conflict, match="has changed since it was counted"):
        opened(ItemSource(server.url, None, first.identity, 5000), tmp_path)


def test_content_without_an_identity_is_compared_by_its_length(
    server: Server, tmp_path: Path
) -> None:
    server.headers = {}
    first = opened(ItemSource(server.url, None), tmp_path)
    assert read(first) == LINES
    elsewhere = tmp_path / "another node"
    again = opened(ItemSource(server.url, None, first.identity, 5000), elsewhere)
    assert read(again) == LINES
    server.body += b"one more\n"
    third = tmp_path / "a third"
    with pytest.raises(Conflict, match="has changed"):
        opened(ItemSource(server.url, None, first.identity, 5000), third)


@pytest.mark.parametrize(
    ("path", "message"), [("none", "returned 404"), ("elsewhere", "returned 302")]
)
def test_redirects_and_errors_are_refused(
    server: Server, tmp_path: Path, path: str, message: str
) -> None:
    with pytest.raises(WrongUse, match=message):
        opened(ItemSource(server.url + path, None), tmp_path)


def test_the_address_rules_hold_for_sources(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DrumlineError, match="loopback"):
        opened(ItemSource(server.url, None), tmp_path, loopback=False)
    assert server.asked == []
    with pytest.raises(DrumlineError, match="metadata"):
        opened(ItemSource("http://169.254.169.254/latest", None), tmp_path)
    with pytest.raises(WrongUse, match="ftp://"):
        opened(ItemSource("ftp://127.0.0.1/x", None), tmp_path)


def test_a_stop_ends_a_download(server: Server, tmp_path: Path) -> None:
    settings = Settings(run_dir=str(tmp_path), http_allow_loopback=True)
    with pytest.raises(Conflict, match="stopped while they were fetched"):
        open_source(7, ItemSource(server.url, None), lambda: True, settings)


def test_lists_and_files(tmp_path: Path) -> None:
    assert read(opened(ItemSource(None, ("a", "", "c")), tmp_path)) == ["a", "", "c"]
    file = tmp_path / "items.txt"
    file.write_bytes(BODY)
    first = opened(ItemSource(str(file), None), tmp_path)
    assert read(first) == LINES
    file.write_bytes(BODY + b"more\n")
    with pytest.raises(Conflict, match="has changed"):
        opened(ItemSource(str(file), None, first.identity, 5000), tmp_path)
    with pytest.raises(WrongUse, match="cannot be read"):
        opened(ItemSource(str(tmp_path / "none"), None), tmp_path)


def test_old_cached_sources_are_deleted(tmp_path: Path) -> None:
    opened(ItemSource(None, ("a",)), tmp_path).items.close()
    old, *_, new = sorted((tmp_path / "items").iterdir())
    os.utime(old, (0, 0))
    node = SimpleNamespace(settings=Settings(run_dir=str(tmp_path)))
    Reaper.delete_cached_items(node, 3600)  # type: ignore[arg-type]  # all that it needs
    assert not old.exists() and new.exists()
