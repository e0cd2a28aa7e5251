"""uvicorn, configured for a node: no logs, bounded concurrency, a thread-safe stop."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp

SHUTDOWN_SECONDS = 3
TICK_SECONDS = 1.0
MAX_CONCURRENCY = 200


class Server(uvicorn.Server):
    """Ticks once per second, where uvicorn ticks ten times for its Date header.

    These ticks were most of the CPU time of an idle gateway.
    """

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
                limit_concurrency=MAX_CONCURRENCY,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()

    def serve_on(self, listener: socket.socket) -> None:
        """Serve until asked to stop."""
        self.run(sockets=[listener])

    def stop(self) -> None:
        """Stop after the current requests or SHUTDOWN_SECONDS. May be called from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._woken.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), TICK_SECONDS)
