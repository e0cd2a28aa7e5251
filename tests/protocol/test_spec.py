"""SPEC.md says what the code does: every message, every field, in its order."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from actors import dispatcher_connection
from actors.dispatcher import dispatcher
from drumline.client import control
from drumline.domain.task import DueTask, TaskBody
from drumline.runner import frames
from protocol import messages, sockets
from protocol.messages import AnyMessage, Message

SPEC = (Path(sockets.__file__).parent / "SPEC.md").read_text()
SECTIONS = dict(re.findall(r"^#### (\w+)\n(.*?)(?=^#+ |\Z)", SPEC, re.MULTILINE | re.DOTALL))

PARTS: list[type[msgspec.Struct]] = [DueTask, TaskBody]
PARTS += [messages.HandlerSummary, messages.Timing, messages.LongRun]
PARTS += [control.ControlRequest, control.ControlReply]
PARTS += [*get_args(frames.ToRunner), *get_args(frames.ToKeeper), frames.Failure]


@pytest.mark.parametrize("kind", [*get_args(AnyMessage), *PARTS])
def test_every_struct_is_described_with_its_fields(kind: type[msgspec.Struct]) -> None:
    section = SECTIONS[kind.__name__]
    described = re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE)
    assert tuple(name for name, _ in described) == kind.__struct_fields__
    for field, (name, words) in zip(msgspec.structs.fields(kind), described, strict=True):
        optional = not field.required and field.default is not None
        assert (" = " in words) is optional, f"{kind.__name__}.{name}: its default"
    if not described and issubclass(kind, Message):
        assert "No fields." in section


@pytest.mark.parametrize("kind", get_args(AnyMessage))
def test_it_is_said_what_the_loss_of_every_message_means(kind: type[Message]) -> None:
    assert "\n*Lost" in SECTIONS[kind.__name__]


def test_nothing_is_described_that_there_is_not() -> None:
    assert set(SECTIONS) == {kind.__name__ for kind in (*get_args(AnyMessage), *PARTS)}


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"The version is `{messages.VERSION}`" in SPEC
    assert f"`version` | int = {control.VERSION} |" in SPEC
    assert f"at most {sockets.MAX_MESSAGE // 2**20} MiB" in SPEC
    assert f"{sockets.HIGH_WATER:,}" in SPEC
    assert f"not heard for {dispatcher.EXPIRE_SECONDS:g} s" in SPEC
    assert f"not confirmed within {dispatcher.RESEND_SECONDS:g} s" in SPEC
    assert f"every {dispatcher_connection.HELLO_SECONDS:g} s" in SPEC
