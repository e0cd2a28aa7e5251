"""Name resolution, address checks and certificates of HTTP calls."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web

from drumline.handlers.http import connector as connector_module
from drumline.handlers.http.addresses import AddressRules, parse_allowlist
from drumline.handlers.http.retry import CallOutcome
from tests.unit.loopback import (
    TEST_SECONDS,
    RawServer,
    call_once,
    calling,
    echo_host,
    in_loop,
    serving,
)

OPENSSL = shutil.which("openssl")


# --- names and addresses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
     "http://localhost:{port}/", "http://0.0.0.0:{port}/", "http://169.254.169.254/",
     "http://[::ffff:7f00:1]:{port}/"],
)  # fmt: skip
def test_every_spelling_of_this_machine_is_refused(url: str) -> None:
    @in_loop
    async def go() -> None:
        async with serving(echo_host) as origin, calling(AddressRules()) as call:
            port = origin.rpartition(":")[2]
            for _ in range(2):  # a cached refusal must not be read as permission
                result = await call(url.format(port=port))
                assert (result.outcome, result.response) == (CallOutcome.REFUSED, None)
                assert result.error is not None and "may not be called" in result.error

    go()


@in_loop
async def test_name_is_resolved_once_and_sent_as_host() -> None:
    lookups: list[str] = []

    def lookup(host: str, port: int) -> Sequence[str]:
        lookups.append(host)
        return ["127.0.0.1"] if len(lookups) == 1 else ["169.254.169.254"]

    async with serving(echo_host) as origin, calling(lookup=lookup) as call:
        port = origin.rpartition(":")[2]
        result = await call(f"http://name.example:{port}/")
        assert result.response is not None
        assert result.response.body == f"name.example:{port}"
    assert lookups == ["name.example"]


@in_loop
async def test_name_that_later_resolves_to_a_refused_address_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def goodbye(request: web.Request) -> web.Response:
        return web.Response(headers={"Connection": "close"})

    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1", "127.0.0.2"]])
    rules = AddressRules(allowlist=parse_allowlist(["127.0.0.1"]))
    monkeypatch.setattr(connector_module, "DNS_CACHE", 0)  # every connection resolves again
    async with serving(goodbye) as origin, calling(rules, lookup=lambda *_: next(answers)) as call:
        url = f"http://name.example:{origin.rpartition(':')[2]}/"
        outcomes = [(await call(url)).outcome for _ in range(3)]
    assert outcomes == [CallOutcome.SUCCESS, CallOutcome.REFUSED, CallOutcome.REFUSED]


@in_loop
async def test_refusal_is_returned_to_all_calls_that_wait_for_the_name() -> None:
    lookups = 0

    def lookup(host: str, port: int) -> Sequence[str]:
        nonlocal lookups
        lookups += 1
        return ["10.0.0.1", "127.0.0.1"]

    async with calling(AddressRules(), lookup=lookup) as call:
        results = await asyncio.gather(*(call("http://name.example/") for _ in range(50)))
    assert {result.outcome for result in results} == {CallOutcome.REFUSED}
    assert lookups <= 2


@in_loop
async def test_allowlist_permits_a_name_that_resolves_to_this_machine() -> None:
    rules = AddressRules(allowlist=parse_allowlist(["name.example"]))
    async with (
        serving(echo_host) as origin,
        calling(rules, lookup=lambda *_: ["127.0.0.1"]) as call,
    ):
        port = origin.rpartition(":")[2]
        assert (await call(f"http://name.example:{port}/")).outcome is CallOutcome.SUCCESS
        assert (await call(f"http://other.example:{port}/")).outcome is CallOutcome.REFUSED
        assert (await call(f"http://127.0.0.1:{port}/")).outcome is CallOutcome.REFUSED


@in_loop
async def test_unknown_name_is_a_connection_error() -> None:
    def lookup(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with calling(lookup=lookup) as call:
        result = await call("http://nowhere.example/")
    assert (result.outcome, result.status_code) == (CallOutcome.CONNECTION, None)
    assert result.error is not None and "cannot be resolved" in result.error


@in_loop
async def test_hanging_name_server_does_not_delay_other_calls() -> None:
    import threading

    release = threading.Event()

    def lookup(host: str, port: int) -> Sequence[str]:
        if host == "slow.example":
            release.wait(TEST_SECONDS)
        return ["127.0.0.1"]

    try:
        async with serving(echo_host) as origin, calling(lookup=lookup) as call:
            port = origin.rpartition(":")[2]
            slow = asyncio.create_task(call(f"http://slow.example:{port}/", timeout=0.5))
            assert (await call(f"http://fast.example:{port}/")).outcome is CallOutcome.SUCCESS
            assert (await slow).outcome is CallOutcome.TIMEOUT
    finally:
        release.set()


# --- TLS -----------------------------------------------------------------------------------------


@in_loop
async def test_tls_handshake_has_the_name_and_not_the_address() -> None:
    hellos: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hellos.append(await reader.read(4_096))

    server = RawServer(listen)
    async with server.running(), calling(lookup=lambda *_: ["127.0.0.1"]) as call:
        result = await call(f"https://name.example:{server.port}/")
    assert result.outcome in (CallOutcome.CONNECTION, CallOutcome.TLS)
    assert b"name.example" in hellos[0]


@in_loop
async def test_server_without_tls_is_a_tls_error() -> None:
    async with serving(echo_host) as origin:
        result = await call_once(origin.replace("http:", "https:"))
    assert result.outcome is CallOutcome.TLS


@pytest.mark.skipif(OPENSSL is None, reason="openssl is needed to make the certificate")
def test_untrusted_certificate_is_refused(tmp_path: Path) -> None:
    subprocess.run(
        [str(OPENSSL), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2",
         "-subj", "/CN=name.example", "-addext", "subjectAltName=DNS:name.example"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    requests = 0

    @in_loop
    async def go() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            requests += bool(await reader.read(1))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        async with calling(lookup=lambda *_: ["127.0.0.1"]) as call:
            result = await call(f"https://name.example:{port}/")
        server.close()
        assert result.outcome is CallOutcome.TLS
        assert result.error is not None and "certificate" in result.error

    go()
    assert requests == 0
