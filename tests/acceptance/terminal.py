"""Command lines in tests, and the gateway that replies to them.

Most run in this process, through the function that the entry point calls; tests of the process
itself (imports, signals, pipes) start one.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from drumline.cli import main
from tests.store.world import World

ENTRY_POINT = Path(sys.executable).parent / "drumline"
SUBMIT = ("batch", "submit", "june", "--type", "type")


class Done(NamedTuple):
    """The result of a command line."""

    code: int
    out: str
    err: str


class RunningGateway(NamedTuple):
    """A gateway process: its database, and the environment in which the CLI finds it."""

    world: World
    environment: dict[str, str]


class Terminal:
    """Runs command lines in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd

    def __call__(self, *words: str) -> Done:
        code = main.run(main.tree(*words[:1]), list(words))
        out, err = self.capfd.readouterr()
        return Done(code, out, err)

    def data(self, *words: str) -> dict[str, object]:
        """The JSON of a command that succeeds."""
        done = self(*words, "--json")
        assert done.code == 0, done
        found = json.loads(done.out)
        assert isinstance(found, dict)
        return found


def refuses(done: Done, code: int, *words: str) -> None:
    assert done.code == code, done
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err, done.err
