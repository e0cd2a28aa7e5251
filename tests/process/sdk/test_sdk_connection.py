"""Connections of the SDK: threads, forks, lost replies, a restarted gateway, no gateway."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from drumline import Client
from drumline.errors import NotReachable, WrongUse
from tests.process.sdk_stack import WAIT, connected
from tests.stack import Stack


def test_threads_share_a_client(client: Client) -> None:
    def work(n: int) -> Any:
        return client.schedule("demo.echo", n).result(WAIT)

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(work, range(60))) == list(range(60))
    assert len(client._idle) <= 12


def test_a_client_works_in_a_forked_child(client: Client) -> None:
    client.schedule("demo.noop")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if client.schedule("demo.echo", 3).result(WAIT) == 3 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.schedule("demo.echo", 4).result(WAIT) == 4


def test_a_change_without_a_reply_is_repeated_and_made_once(stack: Stack, tmp_path: Path) -> None:
    """The gateway is suspended while the first message is in its pipe, and continues only when the
    second has been sent: it receives both."""
    gateway = stack.processes()["gateway"][0]
    trace = tmp_path / "trace"
    sent: list[str] = []
    with connected(stack, timeout=1.0) as client:
        client.call("batch.list", limit=1)
        control = client._idle[0]
        really = control._exchange

        def exchange(request: Any) -> Any:
            sent.append(request.id)
            if len(sent) == 2:
                threading.Timer(0.2, os.kill, (gateway, signal.SIGCONT)).start()
            return really(request)

        control._exchange = exchange  # type: ignore[method-assign]
        os.kill(gateway, signal.SIGSTOP)
        try:
            task = client.schedule("t.once", str(trace))
        finally:
            os.kill(gateway, signal.SIGCONT)
        assert task.wait(WAIT) == "success"
    assert len(sent) >= 2
    assert sent[0] == sent[1]
    newest = stack.call("task.list", type="t.once", limit=2)["tasks"]
    same = [
        one for one in newest if stack.call("task.show", task_id=one["id"])["param"] == str(trace)
    ]
    assert len(same) == 1
    assert trace.read_text() == "x"


def test_a_change_repeated_with_its_request_id_is_made_once(client: Client) -> None:
    first = client.schedule("demo.echo", 1, request_id="sdk-once-1")
    second = client.schedule("demo.echo", 1, request_id="sdk-once-1")
    assert first.id == second.id
    streams = [
        client.submit_batch(
            "again", "demo.noop", targets=map(str, range(6000)), request_id="sdk-once-2"
        )
        for _ in range(2)
    ]
    assert streams[0].id == streams[1].id
    assert streams[0].wait(WAIT) == "success"
    assert streams[0].total == 6000


def test_wait_survives_a_restart_of_the_gateway(stack: Stack, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    # A short timeout: a killed gateway does not reply to a pending request.
    with connected(stack, timeout=2.0) as client, ThreadPoolExecutor(1) as pool:
        task = client.schedule("t.gate", str(gate))
        waiting = pool.submit(task.wait, WAIT)
        killed = stack.kill("gateway")
        stack.wait_restart("gateway", killed)
        gate.touch()
        assert waiting.result(WAIT) == "success"


def test_without_a_gateway_the_error_names_the_socket() -> None:
    with (
        Client("ipc:///tmp/drumline-none.sock") as client,
        pytest.raises(NotReachable, match=r"drumline-none\.sock; is Drumline up"),
    ):
        client.schedule("demo.noop")


def test_a_closed_client_raises_an_error(stack: Stack) -> None:
    client = connected(stack)
    client.call("batch.list")
    client.close()
    with pytest.raises(WrongUse, match="closed"):
        client.call("batch.list")
