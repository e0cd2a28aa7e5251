"""A receiver of webhooks on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Delivery(NamedTuple):
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Answers with the given status codes in order, then with the last; keeps the deliveries."""

    def __init__(self, *answers: int) -> None:
        self.deliveries: list[Delivery] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                index = min(len(receiver.deliveries), len(answers) - 1)
                headers = {k.lower(): v for k, v in self.headers.items()}
                receiver.deliveries.append(Delivery(headers, body))
                self.send_response(answers[index])
                self.send_header("Content-Length", "0")
                self.send_header(
                    "Location", "/elsewhere"
                )  # a client that follows redirects would call it
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/alarms?of=all"

    def matching(self, name: str, value: object) -> list[Delivery]:
        """The deliveries whose data has this field with this value."""
        return [
            delivery
            for delivery in list(self.deliveries)
            if json.loads(delivery.body)["data"].get(name) == value
        ]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)
