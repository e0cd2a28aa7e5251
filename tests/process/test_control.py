"""The client's side of the control socket, against a gateway that is played by the test."""

import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import zmq

from drumline.client.control import (
    MAX_RESTARTS,
    Control,
    ControlReply,
    ControlRequest,
    encode,
    error_reply,
)
from drumline.errors import DrumlineError, NotReachable, StoreUnavailable, WrongUse

MILLISECONDS = 20_000


def serve(endpoint: str, received: threading.Event | None = None) -> ControlRequest:
    """Receive one request and end: without a reply, or after the reply was received."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(endpoint)
        assert socket.poll(MILLISECONDS), "no request came"
        identity, frame = socket.recv_multipart()
        request = msgspec.msgpack.decode(frame, type=ControlRequest)
        if received is not None:
            socket.send_multipart([identity, encode(ControlReply(request.id, {"done": 1}))])
            assert received.wait(20)
    return request


@pytest.fixture
def endpoint() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dl-") as folder:
        yield f"ipc://{Path(folder) / 'control.sock'}"


def test_a_restarted_gateway_gets_the_same_request_again(endpoint: str) -> None:
    seen: list[ControlRequest] = []
    received = threading.Event()

    def restart_once() -> None:
        seen.append(serve(endpoint))
        seen.append(serve(endpoint, received))

    thread = threading.Thread(target=restart_once)
    thread.start()
    control = Control(endpoint, timeout=15)
    try:
        assert control.call("batch.list", {}) == {"done": 1}
    finally:
        received.set()
        control.close()
        thread.join()
    first, second = seen
    assert first == second


def test_a_gateway_that_does_not_come_back_cannot_be_reached(endpoint: str) -> None:
    thread = threading.Thread(target=serve, args=(endpoint,))
    thread.start()
    control = Control(endpoint, timeout=60)
    try:
        with pytest.raises(NotReachable, match="nothing listens"):
            control.call("batch.list", {})
    finally:
        control.close()
        thread.join()


def test_a_request_that_gateways_do_not_survive_is_given_up(endpoint: str) -> None:
    seen: list[ControlRequest] = []

    def restart_repeatedly() -> None:
        seen.extend(serve(endpoint) for _ in range(1 + MAX_RESTARTS))

    thread = threading.Thread(target=restart_repeatedly)
    thread.start()
    control = Control(endpoint, timeout=60, tries=3)
    try:
        with pytest.raises(NotReachable, match="restarted 3 times while the request was pending"):
            control.call("batch.list", {})
    finally:
        control.close()
        thread.join()
    assert len(seen) == 1 + MAX_RESTARTS


def serve_all(
    endpoint: str, errors: Sequence[DrumlineError | None], received: threading.Event
) -> list[ControlRequest]:
    """Reply to one request after another with an error or with data; end when that was received."""
    requests = []
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.bind(endpoint)
        for error in errors:
            assert socket.poll(MILLISECONDS), "no request came"
            identity, frame = socket.recv_multipart()
            request = msgspec.msgpack.decode(frame, type=ControlRequest)
            requests.append(request)
            done = ControlReply(request.id, {"done": 1})
            reply = done if error is None else error_reply(request.id, error)
            socket.send_multipart([identity, encode(reply)])
        assert received.wait(20)
    return requests


AWAY = StoreUnavailable(reason="server has gone away")


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ((AWAY, AWAY, None), None),
        ((NotReachable(what="The dispatcher", reason="it restarts"), None), None),
        ((AWAY, AWAY, AWAY), StoreUnavailable),
        ((WrongUse(field="limit", reason="too large"),), WrongUse),
    ],
)
def test_a_request_is_repeated_under_its_id_while_something_cannot_be_reached(
    endpoint: str, errors: tuple[DrumlineError | None, ...], raised: type[DrumlineError] | None
) -> None:
    received = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        gateway = pool.submit(serve_all, endpoint, errors, received)
        control = Control(endpoint, timeout=20, tries=3)
        try:
            if raised is None:
                assert control.call("batch.list", {}) == {"done": 1}
            else:
                with pytest.raises(raised):
                    control.call("batch.list", {})
        finally:
            received.set()
            control.close()
        requests = gateway.result(20)
    assert len(requests) == len(errors)
    assert len({request.id for request in requests}) == 1
