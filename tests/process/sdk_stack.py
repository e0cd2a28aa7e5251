"""A stack for the SDK tests: its handlers, and clients that record the commands they call."""

from __future__ import annotations

from typing import Any

import pytest

from drumline import Client
from tests.stack import Stack

WAIT = 60.0

HANDLERS = """
import time
from pathlib import Path
from drumline import Change, Handler, handler, register

@handler("t.about")
def about(task):
    return {"target": task.target_id, "name": task.target_name, "param": task.param,
            "batch": task.batch and [task.batch.name, task.batch.env, task.batch.extra_info]}

@handler("t.gate", timeout=600)
def gate(task):
    while not Path(task.param).exists():
        time.sleep(0.01)

@handler("t.once")
def once(task):
    with open(task.param, "a") as file:
        file.write("x")

class Note(Handler):
    types = ("t.note",)
    def build_param(self, task):
        return Change(Path(task.target_id).read_text(), task.param)
    def process(self, task):
        Path(task.target_id).write_text(task.param)
    def rollback(self, task):
        Path(task.target_id).write_text(task.before_update)

register("t.file", Note)
"""


def connected(stack: Stack, **options: Any) -> Client:
    return Client(f"ipc://{stack.run_path / 'control.sock'}", **options)


def database_url(stack: Stack) -> str:
    return stack.environment.get(
        "DRUMLINE_DATABASE_URL", f"sqlite:///{stack.run_path / 'drumline.db'}"
    )


def calls(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records the commands that a client calls from now on."""
    done: list[str] = []
    really = client.call

    def call(command: str, /, **arguments: Any) -> dict[str, Any]:
        done.append(command)
        return really(command, **arguments)

    monkeypatch.setattr(client, "call", call)
    return done
