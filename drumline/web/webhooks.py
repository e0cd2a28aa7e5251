"""Delivers alarms to webhooks, in the event loop of the gateway's web server.

Every node of a region delivers; a node leases the rows that it delivers for `LEASE` seconds.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

import structlog
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar
from yarl import URL

from drumline.command_layer.base import Context
from drumline.domain.alarms import Webhook, retry_delay, sign_message, webhook_secret
from drumline.errors import DrumlineError, StoreUnavailable
from drumline.handlers.http.addresses import AddressRules
from drumline.handlers.http.connector import CheckedResolver, connector
from drumline.handlers.http.target import HttpTarget
from drumline.store.admin import alarms
from drumline.store.database import Database
from drumline.store.rows import AlarmRow
from drumline.store.tx import Tx
from drumline.telemetry import metrics

T = TypeVar("T")
log = structlog.get_logger()

TIMEOUT = 10.0
LEASE = 30.0
"""Seconds; longer than a delivery and the write of its result can take."""
MAX_DELIVERIES = 16
POLL_SECONDS = 1.0


@asynccontextmanager
async def deliver_in_background(context: Context) -> AsyncIterator[None]:
    """Deliver alarms in the background inside the context."""
    deliverer = WebhookDeliverer(context)
    work = asyncio.create_task(deliverer.run())
    try:
        yield
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await deliverer.close()


class WebhookDeliverer:
    """Delivers alarms until it is cancelled. Must be created inside its event loop."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self._database: Database = context.db
        self._thread = ThreadPoolExecutor(1, "alarms")
        """For the database. A shared pool's thread could lease an alarm after this has closed, and
        the next deliverer would wait for the end of that lease."""
        self._region = settings.region
        self._tries = settings.webhook_tries
        self._hooks = {hook.name: hook for hook in settings.webhooks}
        self._secrets = {hook.name: webhook_secret(hook, os.environ) for hook in settings.webhooks}
        self._rules = AddressRules.of(settings)
        self._resolver = CheckedResolver(self._rules)
        self._session = ClientSession(
            connector=connector(self._resolver),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=TIMEOUT),
            trust_env=False,
        )

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        await self._session.close()
        await self._resolver.close()

    async def run(self) -> None:
        while True:
            try:
                rows = await self._in_thread(self._lease)
            except StoreUnavailable as error:
                log.warning(
                    "Database unavailable; alarms are delayed",
                    action="alarms_wait",
                    error=str(error),
                )
                rows = []
            if rows:
                await asyncio.gather(*map(self._deliver, rows))
            else:
                await asyncio.sleep(POLL_SECONDS)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _lease(self) -> list[AlarmRow]:
        names = list(self._hooks)
        find = partial(alarms.read_due, region=self._region, hooks=names, limit=MAX_DELIVERIES)
        rows = self._database.read(find)
        return self._database.write(lambda tx: alarms.lease(tx, rows, LEASE)) if rows else []

    async def _deliver(self, row: AlarmRow) -> None:
        hook = self._hooks[row.hook]
        problem = await self._send(hook, row)
        tries = row.tries + 1
        if problem is None:
            result, write = "delivered", partial(alarms.delivered, row=row)
        elif tries < self._tries:
            wait = retry_delay(tries, random.random())
            result, write = "failed", partial(alarms.put_back, row=row, seconds=wait, error=problem)
        else:
            result, write = "given_up", partial(alarms.give_up, row=row, error=problem)
        metrics.webhooks.labels(result).inc()
        if problem is not None:
            log.warning("Alarm not delivered", action=f"alarm_{result}", webhook=hook.name,
                        event_id=row.event_id, tries=tries, error=problem)  # fmt: skip
        with suppress(StoreUnavailable):  # it is delivered once more, with the same id
            await self._in_thread(partial(self._write, write))

    def _write(self, write: partial[bool]) -> None:
        def transaction(tx: Tx) -> bool:
            return write(tx)

        self._database.write(transaction)

    async def _send(self, hook: Webhook, row: AlarmRow) -> str | None:
        """Send one request. Returns what went wrong, if anything did."""
        body, now = row.body.encode(), int(time.time())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": row.event_id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign_message(self._secrets[hook.name], row.event_id, now, body),
        }
        try:
            self._rules.check_target(HttpTarget.parse(str(URL(hook.url).origin())))
            async with self._session.post(
                hook.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                ok = 200 <= response.status < 300
                return None if ok else f"{hook.url} answered {response.status}"
        except (ClientError, OSError, DrumlineError) as error:  # a TimeoutError is an OSError
            return f"{hook.url}: {error or type(error).__name__}"
