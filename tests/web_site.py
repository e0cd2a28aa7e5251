"""A web server on a free port, on the test's database and dispatcher."""

import json
import socket
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection
from types import TracebackType
from typing import Any, NamedTuple, Self

from drumline.commands import Context
from drumline.domain.roles import Role
from drumline.errors import NotFound
from drumline.store.admin import tokens
from drumline.store.tx import Tx
from drumline.web.app import make_app
from drumline.web.server import Server

PROBLEM = "application/problem+json"


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Site:
    """Serves inside its `with` block. `by` names the role whose token a request carries."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.tokens = {role.value: tokens.new_token() for role in Role}
        for role in Role:
            context.db.write(partial(self._create_token, role=role))
        self.server = Server(make_app(context))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.server.serve_on, args=(self.listener,))

    def _create_token(self, tx: Tx, role: Role) -> None:
        name = f"the-{role}"
        with suppress(NotFound):
            tokens.revoke(tx, name)  # created by an earlier Site on this database
        tokens.create(tx, name, role, tokens.hash_of(self.tokens[role]))

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.server.stop()
        self.thread.join(10)
        self.listener.close()

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        by: str | None = "admin",
        raw: bytes | Iterable[bytes] | None = None,
        **headers: str,
    ) -> Reply:
        """Send a request to a path under /api/v1, or to any path that begins with two slashes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if by is not None:
            sent["Authorization"] = f"Bearer {self.tokens.get(by, by)}"
        if body is not None:
            raw = json.dumps(body).encode()
        if raw is not None:
            sent.setdefault("Content-Type", "application/json")
        target = path[1:] if path.startswith("//") else f"/api/v1{path}"
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, target, raw, sent)
            response = connection.getresponse()
            return Reply(response.status, dict(response.headers.items()), response.read())
        finally:
            connection.close()


def require_problem(reply: Reply, status: int, words: str, field: str | None = None) -> None:
    """Require a problem document with these words."""
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == PROBLEM
    problem = reply.document
    assert problem["status"] == status and problem["title"] and problem["type"]
    assert words in problem["detail"]
    assert problem.get("field") == field
