"""SPEC.md describes every message, with every field in its order."""

from typing import get_args

import msgspec
import pytest

from actors import dispatcher_connection
from actors.dispatcher import dispatcher
from drumline.client import control
from drumline.domain.dispatch.status import QueueStatus, WorkerStatus
from drumline.domain.policy import HandlerSpec, Retry, SweepTraits
from drumline.domain.sweeps.partition import (
    Checkpoint,
    ItemSource,
    LogLine,
    PartitionDirectives,
    PartitionInfo,
)
from drumline.domain.task import BatchInfo, DueTask, RunInfo, TaskBody
from drumline.runner import frames
from protocol import messages, sockets
from protocol.messages import AnyMessage, Message
from tests.protocol.spec import SECTIONS, TEXT, fields_of, is_map

PARTS: list[type[msgspec.Struct]] = [DueTask, TaskBody, BatchInfo, RunInfo, Retry]
PARTS += [messages.HandlerSummary, messages.Timing, messages.LongRun, QueueStatus, WorkerStatus]
PARTS += [control.ControlRequest, control.ControlReply]
PARTS += [*get_args(frames.ToRunner), *get_args(frames.ToKeeper), frames.Failure]
PARTS += [HandlerSpec, SweepTraits]
PARTS += [Checkpoint, PartitionInfo, PartitionDirectives, ItemSource, LogLine]


@pytest.mark.parametrize("kind", [*get_args(AnyMessage), *PARTS])
def test_every_struct_is_described_with_its_fields(kind: type[msgspec.Struct]) -> None:
    described = fields_of(kind.__name__)
    assert tuple(field.name for field in described) == kind.__struct_fields__
    assert is_map(kind.__name__) is not kind.__struct_config__.array_like
    for field, row in zip(msgspec.structs.fields(kind), described, strict=True):
        optional = not field.required and field.default is not None
        assert (row.default is not None) is optional, f"{kind.__name__}.{row.name}: its default"
    if not described and issubclass(kind, Message):
        assert "No fields." in SECTIONS[kind.__name__]


@pytest.mark.parametrize("kind", get_args(AnyMessage))
def test_the_loss_of_every_message_is_described(kind: type[Message]) -> None:
    assert "\n*Lost" in SECTIONS[kind.__name__]


def test_no_other_struct_is_described() -> None:
    assert set(SECTIONS) == {kind.__name__ for kind in (*get_args(AnyMessage), *PARTS)}


def test_the_numbers_equal_those_of_the_code() -> None:
    assert f"The version is `{messages.VERSION}`" in TEXT
    assert f"`version` | int = {control.VERSION} |" in TEXT
    assert f"at most {sockets.MAX_MESSAGE // 2**20} MiB" in TEXT
    assert f"{sockets.HIGH_WATER:,}" in TEXT
    assert f"not heard for {dispatcher.EXPIRE_SECONDS:g} s" in TEXT
    assert f"not confirmed within {dispatcher.RESEND_SECONDS:g} s" in TEXT
    assert f"every {dispatcher_connection.REGISTER_SECONDS:g} s" in TEXT
