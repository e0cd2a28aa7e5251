"""uvicorn, set up for a node: quiet, bounded, and stopped from another thread."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp

GOODBYE_SECONDS = 3
TICK_SECONDS = 1.0
WAITING_MOST = 200


class Server(uvicorn.Server):
    """It looks up once a second for the date it sends, not ten times: an idle node is to be idle,
    and those looks were most of what an idle gateway cost."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http="h11",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=WAITING_MOST,
                timeout_graceful_shutdown=GOODBYE_SECONDS,
            )
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()

    def serve_on(self, listener: socket.socket) -> None:
        """Serve until asked to stop."""
        self.run(sockets=[listener])

    def stop(self) -> None:
        """From any thread: let what is being answered be answered, for a moment, and end."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._woken.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), TICK_SECONDS)
