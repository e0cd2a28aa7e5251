"""The gateway's web server: REST and dashboard, in a thread with an event loop of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from drumline.commands import Context
from drumline.config import Settings
from drumline.node import run_dir
from drumline.web import listener

if TYPE_CHECKING:
    from drumline.web.server import Server

log = structlog.get_logger()

STOP_SECONDS = 5.0


class WebServer:
    """Listens once constructed; connections wait until its thread has imported the web server."""

    def __init__(
        self, settings: Settings, context: Context, on_failure: Callable[[], None]
    ) -> None:
        listener.require_token(settings, run_dir.read_token(settings.run_path))
        self._listener = listener.open_listener(settings)
        self._listener.listen(listener.BACKLOG)
        self._context = context
        self._on_failure = on_failure
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        self._stopping = False
        self._thread.start()

    def stop(self) -> None:
        """Stop; requests in progress have STOP_SECONDS to be answered."""
        self._stopping = True
        if self._server is not None:
            self._server.stop()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            log.exception("Web server failed", action="web_failed")
        if not self._stopping:
            self._on_failure()

    def _serve(self) -> None:
        # Imported in this thread: it takes 0.2 s, during which the control socket already serves.
        from drumline.web.app import make_app
        from drumline.web.server import Server

        self._server = Server(make_app(self._context))
        if not self._stopping:
            self._server.serve_on(self._listener)
