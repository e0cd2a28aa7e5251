"""The client of a Connect cluster: its retries, waits and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from drumline.config.connect_clusters import ConnectCluster
from drumline.handlers.connect.client import Connect, ConnectError, UnknownOutcome, merge_config
from drumline.handlers.connect.state_poller import StatePoller
from drumline.handlers.connect.states import WantedState
from examples.connect_standin.cluster import Manners
from examples.connect_standin.faults import Fault
from examples.connect_standin.server import Server
from tests.connect_clusters import run_with_timeout

QUIET = Manners(delay=0.004, rebalance=0.0, events=0.0)


def with_client(
    test: Callable[[Server, Connect], Awaitable[None]],
    manners: Manners = QUIET,
    **settings: Any,
) -> None:
    async def main() -> None:
        async with Server("c", manners) as server:
            server.cluster.seed(["orders"])
            made = ConnectCluster(name="c", url=server.url, poll=0.003, settle=0.0, **settings)
            connect = Connect(made)
            try:
                await test(server, connect)
            finally:
                await connect.close()

    run_with_timeout(main())


def test_merge_config_sets_and_removes_keys() -> None:
    assert merge_config({"a": "1", "b": "2"}, {"b": None, "c": "3"}) == {"a": "1", "c": "3"}


def test_read_is_retried_and_change_waits_for_a_rebalance() -> None:
    async def test(server: Server, connect: Connect) -> None:
        server.faults = [Fault("GET", times=2), Fault("PUT", status=409, message="rebalance")]
        server.faults[1].times = 3
        assert (await connect.config("orders") or {})["tasks.max"] == "1"
        await connect.stop("orders")
        assert server.count("PUT", "/stop") == {"orders": 1}

    with_client(test)


def test_change_without_a_response_is_not_repeated() -> None:
    async def test(server: Server, connect: Connect) -> None:
        server.faults = [Fault("PUT", what="lose")]
        with pytest.raises(UnknownOutcome):
            await connect.stop("orders")
        assert server.count("PUT", "/stop") == {"orders": 1}

    with_client(test)


def test_unreachable_cluster_is_a_clear_error() -> None:
    async def test(server: Server, connect: Connect) -> None:
        await server.stop()
        with pytest.raises(ConnectError, match="cluster c: GET /connectors/orders/config: Client"):
            await connect.config("orders")

    with_client(test)


def test_redirect_to_a_login_page_is_an_error() -> None:
    async def test(server: Server, connect: Connect) -> None:
        server.faults = [Fault(".*", status=302, message="log in first")]
        for call in (connect.stop("orders"), connect.config("orders")):
            with pytest.raises(ConnectError, match="302 log in first"):
                await call

    with_client(test)


def test_poller_waits_for_a_cluster_that_is_temporarily_unreachable() -> None:
    async def test(server: Server, connect: Connect) -> None:
        watch = StatePoller(connect)
        server.faults = [Fault("GET", times=8)]  # more than the retries of one read
        server.cluster.aim(server.cluster.connectors["orders"], "STOPPED")
        await watch.until("orders", WantedState.STOPPED)
        server.faults = [Fault("GET", status=403, message="no")]
        with pytest.raises(ConnectError, match="403 no"):
            await watch.until("orders", WantedState.RUNNING)

    with_client(test)


def test_secret_in_an_error_response_is_masked() -> None:
    async def test(server: Server, connect: Connect) -> None:
        now = await connect.config("orders") or {}
        with pytest.raises(ConnectError) as caught:
            await connect.change_config("orders", {"standin.refuse": "database.password"}, now)
        assert "400 Connector configuration is invalid" in str(caught.value)
        assert "Invalid value *** for configuration database.password" in str(caught.value)

    with_client(test)


def test_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Server, connect: Connect) -> None:
        monkeypatch.delenv("CONNECT_PW", raising=False)
        with pytest.raises(ConnectError, match="CONNECT_PW is not set"):
            await connect.config("orders")
        monkeypatch.setenv("CONNECT_PW", "wrong")
        with pytest.raises(ConnectError, match="401") as caught:
            await connect.config("orders")
        assert "wrong" not in str(caught.value)
        await connect.close()
        monkeypatch.setenv("CONNECT_PW", "right")
        assert await connect.config("orders") is not None

    settings = {"username": "connect", "password_env": "CONNECT_PW"}
    with_client(test, Manners(rebalance=0.0, password="right"), **settings)  # noqa: S106


def test_connector_names_are_quoted() -> None:
    async def test(server: Server, connect: Connect) -> None:
        name = "a b/c?d=ü#%41"
        server.cluster.seed([name])
        assert (await connect.config(name) or {})["name"] == name
        await connect.stop(name)
        assert server.cluster.connectors[name].target == "STOPPED"

    with_client(test)


def test_poller_reads_all_connectors_with_one_request() -> None:
    async def test(server: Server, connect: Connect) -> None:
        names = [f"c{number}" for number in range(300)]
        server.cluster.seed(names)
        requests: list[str] = []
        original = connect._send

        async def counted(method: str, path: str, body: object) -> tuple[int, bytes]:
            requests.append(path)
            return await original(method, path, body)

        connect._send = counted  # type: ignore[method-assign]
        for name in names:
            server.cluster.aim(server.cluster.connectors[name], "STOPPED")
        watch = StatePoller(connect)
        await asyncio.gather(*(watch.until(name, WantedState.STOPPED) for name in names))
        assert len(requests) < 100, "300 connectors were polled"
        assert requests[0] == "/connectors?expand=status"

    with_client(test, Manners(delay=0.05, rebalance=0.0, events=0.0))


def test_cancelled_wait_is_removed_and_polling_stops() -> None:
    async def test(server: Server, connect: Connect) -> None:
        watch = StatePoller(connect)
        waiting = asyncio.create_task(watch.until("orders", WantedState.STOPPED))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not watch._waiters
        assert watch._polling is not None
        await watch._polling  # it ends when no waiter is left

    with_client(test)
