"""The control socket as a caller has it, with a gateway that a test plays."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from drumline.client.control import LIVES, Control, ControlReply, ControlRequest, encode
from drumline.errors import NotReachable

MILLISECONDS = 20_000


def serve(endpoint: str, heard: threading.Event | None = None) -> ControlRequest:
    """Open, take one question and be gone; or answer it, and go when that was heard."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(endpoint)
        assert socket.poll(MILLISECONDS), "nobody asked"
        identity, frame = socket.recv_multipart()
        request = msgspec.msgpack.decode(frame, type=ControlRequest)
        if heard is not None:
            socket.send_multipart([identity, encode(ControlReply(request.id, {"done": 1}))])
            assert heard.wait(20)
    return request


@pytest.fixture
def endpoint() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dl-") as folder:
        yield f"ipc://{Path(folder) / 'control.sock'}"


def test_who_comes_after_a_gateway_that_died_is_asked_the_same(endpoint: str) -> None:
    seen: list[ControlRequest] = []
    heard = threading.Event()

    def die_and_come_back() -> None:
        seen.append(serve(endpoint))
        seen.append(serve(endpoint, heard))

    thread = threading.Thread(target=die_and_come_back)
    thread.start()
    control = Control(endpoint, timeout=15)
    try:
        assert control.call("batch.list", {}) == {"done": 1}
    finally:
        heard.set()
        control.close()
        thread.join()
    first, second = seen
    assert first == second


def test_a_gateway_that_died_and_does_not_come_back_is_said_to_be_gone(endpoint: str) -> None:
    thread = threading.Thread(target=serve, args=(endpoint,))
    thread.start()
    control = Control(endpoint, timeout=60)
    try:
        with pytest.raises(NotReachable, match="nobody answers"):
            control.call("batch.list", {})
    finally:
        control.close()
        thread.join()


def test_a_question_that_gateways_die_of_is_not_asked_for_ever(endpoint: str) -> None:
    seen: list[ControlRequest] = []

    def die_again_and_again() -> None:
        seen.extend(serve(endpoint) for _ in range(1 + LIVES))

    thread = threading.Thread(target=die_again_and_again)
    thread.start()
    control = Control(endpoint, timeout=60)
    try:
        with pytest.raises(NotReachable, match="it dies again and again"):
            control.call("batch.list", {})
    finally:
        control.close()
        thread.join()
    assert len(seen) == 1 + LIVES
