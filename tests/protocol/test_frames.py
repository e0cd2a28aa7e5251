"""The runner's pipe: complete frames, however they are split, and tickets for one reader each."""

import os
import random
import socket
import threading
from typing import get_args

import pytest

from drumline.domain.task import DueTask
from drumline.runner.frames import (
    Channel,
    Frame,
    Ticket,
    ToKeeper,
    ToRunner,
    encode_frame,
    encode_tickets,
    read_ticket,
)
from tests.protocol.samples import sample

KINDS: tuple[type[Frame], ...] = (*get_args(ToRunner), *get_args(ToKeeper))


def test_every_frame_has_one_direction() -> None:
    assert set(KINDS) == set(Frame.__subclasses__())
    assert not set(get_args(ToRunner)) & set(get_args(ToKeeper))


@pytest.mark.parametrize("direction", [ToRunner, ToKeeper])
@pytest.mark.parametrize("most", [1, 7, 64, 100_000])
def test_frames_arrive_complete_however_they_are_split(direction: object, most: int) -> None:
    chance = random.Random(most)
    frames = [sample(direction, chance) for _ in range(40)]
    stream = b"".join(encode_frame(frame) for frame in frames)
    here, there = socket.socketpair()
    channel = Channel(there, direction)
    received: list[Frame] = []
    sent = 0
    while sent < len(stream):
        piece = stream[sent : sent + chance.randint(1, most)]
        here.sendall(piece)
        sent += len(piece)
        received += channel.receive() or []
    assert received == frames
    here.close()
    assert channel.receive() is None
    there.close()


def test_a_closed_end_differs_from_an_incomplete_frame() -> None:
    here, there = socket.socketpair()
    channel = Channel(there, ToKeeper)
    here.sendall(encode_frame(sample(get_args(ToKeeper)[0], random.Random(1)))[:-1])
    assert channel.receive() == []
    here.close()
    assert channel.receive() is None
    there.close()


def test_each_ticket_is_read_by_one_of_two_readers() -> None:
    """The runner, which starts tasks, and the keeper, which takes them back."""
    chance = random.Random(5)
    dues = [sample(DueTask, chance) for _ in range(500)]
    out, into = os.pipe()
    os.set_blocking(out, False)
    taken: tuple[list[Ticket], list[Ticket]] = ([], [])
    finished = threading.Event()

    def reader(mine: list[Ticket]) -> None:
        while True:
            over = finished.is_set()
            ticket = read_ticket(out)
            if ticket is not None:
                mine.append(ticket)
            elif over:
                return

    readers = [threading.Thread(target=reader, args=(mine,)) for mine in taken]
    for thread in readers:
        thread.start()
    for start in range(0, len(dues), 50):
        os.write(into, encode_tickets(dues[start : start + 50]))
    finished.set()
    for thread in readers:
        thread.join()
    os.close(out)
    os.close(into)
    found = [(ticket.task_id, ticket.fence) for mine in taken for ticket in mine]
    assert sorted(found) == sorted((due.id, due.fence) for due in dues)
