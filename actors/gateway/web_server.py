"""The gateway's second door: HTTP, in a thread of its own with an event loop of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from drumline.commands import Context
from drumline.config import Settings
from drumline.node import run_dir
from drumline.web import listen

if TYPE_CHECKING:
    from drumline.web.server import Server

log = structlog.get_logger()

STOP_SECONDS = 5.0


class WebServer:
    """Listens from the moment it is made; answers once it is started and has woken up."""

    def __init__(self, settings: Settings, context: Context, died: Callable[[], None]) -> None:
        listen.require_secret(settings, run_dir.read_token(settings.run_path))
        self._listener = listen.bound(settings)
        self._listener.listen(listen.BACKLOG)
        self._context = context
        self._died = died
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        self._stopping = False
        self._thread.start()

    def stop(self) -> None:
        """Let what is being answered be answered, for a moment."""
        self._stopping = True
        if self._server is not None:
            self._server.stop()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            log.exception("The web server died.", action="web_died")
        if not self._stopping:
            self._died()

    def _serve(self) -> None:
        # Imported here: 0.2 s that the control socket, already open, need not wait for.
        from drumline.web.app import make_app
        from drumline.web.server import Server

        self._server = Server(make_app(self._context))
        if not self._stopping:
            self._server.serve_on(self._listener)
