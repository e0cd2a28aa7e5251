"""Polling the states of many connectors with few requests.

A few connectors are polled one by one; for more, one request reads the states of all. So waiting
for 2,000 connectors costs Connect five requests per second instead of ten thousand.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from drumline.handlers.connect.client import Connect, ConnectError, ConnectorReport
from drumline.handlers.connect.states import ConnectorFailed, StableState, WantedState

SINGLE_REQUESTS_LIMIT = 4
UNREACHABLE_SECONDS = 10.0
"""Seconds for which a cluster may be unreachable during a wait, because its workers restart too."""


@dataclass(slots=True)
class _Waiter:
    name: str
    stable: StableState
    future: asyncio.Future[None]


class StatePoller:
    """Polls one cluster in one event loop, only while a task waits."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._waiters: dict[int, _Waiter] = {}
        self._polling: asyncio.Task[None] | None = None

    async def until(self, name: str, target: WantedState) -> None:
        """Wait until a connector's state is stable. The task's timeout is the limit."""
        cluster = self._connect.cluster
        loop = asyncio.get_running_loop()
        waiter = _Waiter(name, StableState(target, cluster.settle), loop.create_future())
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
        reached = clock()
        while self._waiters:
            waiters = list(self._waiters.values())
            try:
                found = await self._statuses({waiter.name for waiter in waiters})
            except Exception as error:  # any error must reach the waiting tasks
                unreachable = isinstance(error, ConnectError) and not error.status
                if not unreachable or clock() - reached > UNREACHABLE_SECONDS:
                    for waiter in waiters:
                        self._finish(waiter, error)
            else:
                now = reached = clock()
                for waiter in waiters:
                    self._check(waiter, found.get(waiter.name), now)
            await asyncio.sleep(self._connect.cluster.poll)

    async def _statuses(self, names: set[str]) -> dict[str, ConnectorReport | None]:
        if len(names) > SINGLE_REQUESTS_LIMIT:
            return dict(await self._connect.statuses())
        return {name: await self._connect.status(name) for name in names}

    def _check(self, waiter: _Waiter, status: ConnectorReport | None, now: float) -> None:
        try:
            if waiter.stable.update(status, now):
                self._finish(waiter, None)
        except ConnectorFailed as error:
            self._finish(waiter, error)

    @staticmethod
    def _finish(waiter: _Waiter, error: Exception | None) -> None:
        if waiter.future.done():
            return
        if error is None:
            waiter.future.set_result(None)
        else:
            waiter.future.set_exception(error)
