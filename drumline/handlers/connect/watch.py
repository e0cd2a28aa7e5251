"""Waiting for many connectors at once without asking for each of them all the time.

With a few that are waited for, each is asked; with many, one request asks for all. Waiting for
2,000 connectors so costs Connect five requests a second instead of ten thousand.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from drumline.handlers.connect.client import Connect, ConnectError, ConnectorReport
from drumline.handlers.connect.states import ConnectorFailed, Settling, WantedState

FEW = 4
PATIENCE = 10.0
"""Seconds that a cluster may be away while connectors are waited for: its workers restart too."""


@dataclass(slots=True)
class _Waiter:
    name: str
    settling: Settling
    future: asyncio.Future[None]


class Watch:
    """One per cluster and event loop. It asks only while somebody waits."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._waiters: dict[int, _Waiter] = {}
        self._polling: asyncio.Task[None] | None = None

    async def until(self, name: str, target: WantedState) -> None:
        """Until a connector has settled there. The task's own timeout is the limit."""
        cluster = self._connect.cluster
        loop = asyncio.get_running_loop()
        waiter = _Waiter(name, Settling(target, cluster.settle), loop.create_future())
        self._waiters[id(waiter)] = waiter
        if self._polling is None or self._polling.done():
            self._polling = loop.create_task(self._poll())
        try:
            await waiter.future
        finally:
            self._waiters.pop(id(waiter), None)

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    async def _poll(self) -> None:
        clock = asyncio.get_running_loop().time
        heard = clock()
        while self._waiters:
            waiters = list(self._waiters.values())
            try:
                found = await self._statuses({waiter.name for waiter in waiters})
            except Exception as error:  # whatever it is: nobody must wait for one who is gone
                away = isinstance(error, ConnectError) and not error.status
                if not away or clock() - heard > PATIENCE:
                    for waiter in waiters:
                        self._end(waiter, error)
            else:
                now = heard = clock()
                for waiter in waiters:
                    self._look(waiter, found.get(waiter.name), now)
            await asyncio.sleep(self._connect.cluster.poll)

    async def _statuses(self, names: set[str]) -> dict[str, ConnectorReport | None]:
        if len(names) > FEW:
            return dict(await self._connect.statuses())
        return {name: await self._connect.status(name) for name in names}

    def _look(self, waiter: _Waiter, status: ConnectorReport | None, now: float) -> None:
        try:
            if waiter.settling.look(status, now):
                self._end(waiter, None)
        except ConnectorFailed as error:
            self._end(waiter, error)

    @staticmethod
    def _end(waiter: _Waiter, error: Exception | None) -> None:
        if waiter.future.done():
            return
        if error is None:
            waiter.future.set_result(None)
        else:
            waiter.future.set_exception(error)
