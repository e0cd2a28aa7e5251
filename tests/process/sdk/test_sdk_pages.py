"""The code on the SDK page and the commands of the examples work."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, NullPool, Table, create_engine

from tests.process.sdk_stack import WAIT, connected, database_url
from tests.stack import Stack

ROOT = Path(__file__).parents[3]
customer = Table("customer", MetaData(), Column("id", Integer, primary_key=True))


def test_every_snippet_of_the_sdk_page_runs(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs/how-to/sdk.md").read_text()
    snippets = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(snippets) == 10
    for name, value in stack.environment.items():
        if name.startswith("DRUMLINE_"):
            monkeypatch.setenv(name, value)
    url = database_url(stack)
    customer.create(create_engine(url, poolclass=NullPool))
    names: dict[str, Any] = {"__name__": "sdk_page", "database_url": url}
    for snippet in snippets:
        exec(compile(snippet, "docs/how-to/sdk.md", "exec"), names)  # noqa: S102
    names["engine"].dispose()
    with connected(stack) as client:
        (found,) = client.call("task.list", type="example.greet", limit=1)["tasks"][:1]
        assert client.task(found["id"]).wait(WAIT) in ("success", "cancel")


def test_every_command_of_the_examples_works(tmp_path: Path) -> None:
    text = (ROOT / "examples/README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [
        line
        for block in blocks
        for line in block.replace("\\\n", "").replace("/tmp", str(tmp_path)).splitlines()
    ]
    up, alias, *commands, down = lines
    words = shlex.split(up)
    assert words[:2] == ["bin/up", "--detach"]
    imports = tuple(words[i + 1] for i, word in enumerate(words) if word == "--import")
    assert (alias, down) == ("alias drumline=.venv/bin/drumline", "drumline down")
    zones: list[list[str]] = []
    with Stack(imports=imports) as stack:
        for command in commands:
            done = subprocess.run(
                ["/bin/sh", "-c", command.replace("drumline ", ".venv/bin/drumline ", 1)],
                cwd=ROOT,
                env=stack.environment,
                capture_output=True,
                text=True,
                timeout=WAIT,
            )
            if "submit wrong" in command:
                assert done.returncode == 2
                assert "param.file: is missing" in done.stderr
                continue
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            if command.startswith("cat "):
                found = json.loads(done.stdout)["databases"]
                zones.append([database["zone"] for database in found.values()])
    assert zones == [["b", "b", "b"], ["a", "a", "b"]]
