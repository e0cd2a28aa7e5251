"""A receiver of webhooks on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Told(NamedTuple):
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Answers as it is told to, the last answer for ever. Remembers all that it heard."""

    def __init__(self, *answers: int) -> None:
        self.told: list[Told] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                place = min(len(receiver.told), len(answers) - 1)
                receiver.told.append(Told({k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(answers[place])
                self.send_header("Content-Length", "0")
                self.send_header("Location", "/elsewhere")  # for those who follow redirects
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/alarms?of=all"

    def of(self, name: str, value: object) -> list[Told]:
        """What was told of one thing."""
        return [one for one in list(self.told) if json.loads(one.body)["data"].get(name) == value]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)
