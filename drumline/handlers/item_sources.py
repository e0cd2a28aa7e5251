"""Opens the source of a sweep's items; each node indexes a source once.

A source that is not the one whose items were counted is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout
from yarl import URL

from drumline.config import Settings, load
from drumline.domain.sweeps.partition import ItemSource
from drumline.errors import Conflict, WrongUse
from drumline.handlers.http.addresses import AddressRules
from drumline.handlers.http.connector import CheckedResolver, connector
from drumline.handlers.http.target import HttpTarget
from drumline.sweep_items.builder import Builder, build, index_file
from drumline.sweep_items.reader import (
    FOLDER,
    Items,
    file_identity,
    lines,
    open_items,
    url_identity,
)

READ_TIMEOUT = 60.0
"""Seconds without data from the server after which the download fails."""


class OpenedSource(NamedTuple):
    items: Items
    identity: str


def open_source(
    sweep_id: int,
    source: ItemSource,
    is_stopped: Callable[[], bool],
    settings: Settings | None = None,
) -> OpenedSource:
    """The items of a source. Refused if its content is not what was counted."""
    settings = settings or load()
    cache = settings.run_path / FOLDER
    if source.listed is not None:
        opened = _open_list(cache, source.listed)
    elif "://" in (source.items or ""):
        opened = asyncio.run(
            _Download(settings, cache, sweep_id, source.items or "", is_stopped).open()
        )
    else:
        path = Path(source.items or "")
        opened = OpenedSource(index_file(cache, path), file_identity(path))
    known = (source.identity, source.total)
    if source.total is not None and known != (opened.identity, opened.items.total):
        opened.items.close()
        raise Conflict(
            field="items", reason=f"{source.items or 'the list'} has changed since it was counted."
        )
    return opened


def _open_list(cache: Path, listed: tuple[str, ...]) -> OpenedSource:
    whole = b"".join(lines(listed))
    identity = f"list {hashlib.sha256(whole).hexdigest()}"

    def content(offset: int) -> Iterator[bytes]:
        yield whole[offset:]

    return OpenedSource(build(cache, identity, content), identity)


class _Download:
    """The body of a URL that the address rules allow. A download that broke off is resumed."""

    def __init__(
        self,
        settings: Settings,
        cache: Path,
        sweep_id: int,
        url: str,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.rules = AddressRules.of(settings)
        self.cache = cache
        self.url = url
        self.own_identity = f"url {url} of sweep {sweep_id}"
        """Used if the server sends nothing to recognise the content by: it is then fetched once for
        each sweep."""
        self.is_stopped = is_stopped

    async def open(self) -> OpenedSource:
        scheme = URL(self.url).scheme
        if scheme not in ("http", "https"):
            raise WrongUse(
                field="items", reason=f"{scheme}:// URLs are not supported; use http or https."
            )
        self.rules.check_target(HttpTarget.parse(str(URL(self.url).origin())))
        resolver = CheckedResolver(self.rules)
        timeout = ClientTimeout(total=None, sock_connect=READ_TIMEOUT, sock_read=READ_TIMEOUT)
        async with ClientSession(
            connector=connector(resolver),
            timeout=timeout,
            trust_env=False,
            headers={"Accept-Encoding": "identity"},  # a download is resumed at a byte offset
        ) as session:
            try:
                return await self._open(session)
            except (ClientError, OSError) as error:
                raise WrongUse(
                    field="items", reason=f"{self.url} cannot be fetched: {error}."
                ) from error
            finally:
                await resolver.close()

    async def _open(self, session: ClientSession) -> OpenedSource:
        async with session.get(self.url, allow_redirects=False) as response:
            self._check_status(response, 200)
            identity = _identity(self.url, response) or self.own_identity
            items = open_items(self.cache, identity)
            if items is not None:
                return OpenedSource(items, identity)
            with Builder(self.cache, identity, wait=True) as builder:
                items = open_items(self.cache, identity)  # built during the wait?
                if items is not None:
                    builder.discard()
                    return OpenedSource(items, identity)
                if identity == self.own_identity:
                    builder.restart()
                if builder.offset:
                    return OpenedSource(await self._resume(session, builder, identity), identity)
                return OpenedSource(await self._feed(response, builder, 0), identity)

    async def _resume(self, session: ClientSession, builder: Builder, identity: str) -> Items:
        """Fetch the rest of a download that broke off, or fetch all and skip the part on disk."""
        headers = {"Range": f"bytes={builder.offset}-"}
        async with session.get(self.url, headers=headers, allow_redirects=False) as response:
            if response.status == 206 and _identity(self.url, response, rest=True) == identity:
                return await self._feed(response, builder, 0)
        async with session.get(self.url, allow_redirects=False) as response:
            self._check_status(response, 200)
            if _identity(self.url, response) != identity:
                raise Conflict(field="items", reason=f"{self.url} changed while it was fetched.")
            return await self._feed(response, builder, builder.offset)

    async def _feed(self, response: ClientResponse, builder: Builder, skip: int) -> Items:
        async for chunk in response.content.iter_any():
            if self.is_stopped():
                raise Conflict(
                    field="items", reason="the sweep was stopped while they were fetched."
                )
            if len(chunk) <= skip:
                skip -= len(chunk)
                continue
            builder.feed(chunk[skip:])
            skip = 0
        return builder.finish()

    def _check_status(self, response: ClientResponse, wanted: int) -> None:
        if response.status != wanted:
            raise WrongUse(
                field="items",
                reason=f"{self.url} returned {response.status}, not {wanted}.",
            )


def _identity(url: str, response: ClientResponse, rest: bool = False) -> str | None:
    """The identity of the content. For the rest of a download only the ETag proves that it belongs
    to the part on disk."""
    headers = response.headers
    if rest and "ETag" not in headers:
        return None
    return url_identity(
        url,
        etag=headers.get("ETag", ""),
        modified=headers.get("Last-Modified", ""),
        length=headers.get("Content-Length", ""),
    )
