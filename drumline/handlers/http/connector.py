"""Connections to allowed addresses only.

A name is resolved once per connection and every address in the result is checked; aiohttp connects
to one of these addresses, with the name as Host and in the TLS handshake. A pooled connection leads
to the address that was checked when the connection was made.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from drumline.handlers.http.addresses import AddressRules, parse_address

Lookup = Callable[[str, int], Sequence[str]]
"""Resolves a name to addresses. Called in a thread."""

KEEP_ALIVE = 1.5
"""Seconds for which an idle connection is kept: less than common servers keep theirs (gunicorn 2,
Node and uvicorn 5). A request that is sent while the server closes the connection gets no
response, and it is unknown whether the server executed it; a job that fires every 5 s would meet
this often."""
DNS_CACHE = 5
DNS_THREADS = 16
"""Lookups have their own threads: unreachable name servers must not block the loop's executor."""
MAX_ADDRESSES = 32
WANTED_FILES = 16 * 1024
SPARE_FILES = 256


def system_lookup(host: str, port: int) -> Sequence[str]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(sockaddr[0]) for *_, sockaddr in infos]


class CheckedResolver(AbstractResolver):
    """Resolves names to allowed addresses, or raises AddressRefused."""

    def __init__(self, rules: AddressRules, lookup: Lookup = system_lookup) -> None:
        self._rules = rules
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(DNS_THREADS, thread_name_prefix="dns")
        self._allowlisted: set[str] = set()
        """Addresses of names that are on the allowlist."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self._threads, self._lookup, host, port)
        except UnicodeError as error:  # raised by the idna codec
            raise socket.gaierror(socket.EAI_NONAME, str(error)) from None
        answers = list(dict.fromkeys(answers))[:MAX_ADDRESSES]
        if self._rules.check_addresses(host, port, [parse_address(answer) for answer in answers]):
            self._allowlisted.update(answers)
        return [
            ResolveResult(
                hostname=host,
                host=answer,
                port=port,
                family=socket.AF_INET6 if ":" in answer else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for answer in answers
        ]

    def open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """The last check: no socket is created for an address that was not allowed before."""
        family, kind, proto, _, (host, port, *_) = info
        if host not in self._allowlisted:
            self._rules.check_address(parse_address(host), port)
        return socket.socket(family, kind, proto)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def connector(resolver: CheckedResolver) -> TCPConnector:
    return TCPConnector(
        resolver=resolver,
        socket_factory=resolver.open_socket,
        ttl_dns_cache=DNS_CACHE,
        keepalive_timeout=KEEP_ALIVE,
        limit=connection_limit(),
    )


def connection_limit() -> int:
    """The number of connections that may be open. Thousands need a higher limit on open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < WANTED_FILES:
        soft = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(16, soft - SPARE_FILES)
