"""The code in docs/how-to/handlers.md and the examples works."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from drumline.handlers import registry
from drumline.testing import run

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own for each test."""
    monkeypatch.setattr(registry, "registry", registry.Registry())
    monkeypatch.setattr("drumline.testing.registry", registry.registry)


def test_every_snippet_of_the_handlers_page_runs() -> None:
    text = (ROOT / "docs/how-to/handlers.md").read_text()
    snippets = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(snippets) == 6
    names: dict[str, Any] = {"__name__": "handlers_page"}
    for snippet in snippets:
        exec(compile(snippet, "docs/how-to/handlers.md", "exec"), names)  # noqa: S102
    assert {spec.type for spec in registry.registry.manifest()} == {
        "mail.send",
        "mail.poll",
        "mail.fetch",
        "mail.print",
        "switch_zone",
    }
    assert run("mail.print", {"to": "a", "copies": 2}).result == 2


def test_the_functions_of_the_examples() -> None:
    from examples import handlers

    assert run(handlers.greet, {"name": "Ada"}).result == {"greeting": "Hello, Ada!"}
    assert isinstance(run(handlers.unsteady, attempt=2, catch=True).error, ConnectionError)
    assert run(handlers.unsteady, attempt=3).result == "needed 3 attempts"
    assert run(handlers.wait, {"seconds": 0}).ok


def test_the_class_of_the_examples_changes_refuses_late_writes_and_rolls_back(
    tmp_path: Path,
) -> None:
    from examples.switch import Superseded, SwitchZone

    file = tmp_path / "databases.json"
    shutil.copy(ROOT / "examples/databases.json", file)

    def zones() -> dict[str, str]:
        found = json.loads(file.read_text())["databases"]
        return {name: database["zone"] for name, database in found.items()}

    param = {"file": str(file), "zone": "b"}
    assert zones() == {"db-1": "a", "db-2": "a", "db-3": "b"}
    done = run(SwitchZone, param, target_id="db-1", fence=3)
    assert done.steps == ("build_param", "is_finished", "process")
    assert zones() == {"db-1": "b", "db-2": "a", "db-3": "b"}
    assert run(SwitchZone, param, target_id="db-3", fence=3).steps[-1] == "is_finished"

    late = run(SwitchZone, param, target_id="db-2", fence=2, catch=True)
    assert isinstance(late.error, Superseded)
    assert zones()["db-2"] == "a"

    run(SwitchZone, param, target_id="db-1", fence=4, rollback=True, before_update=done.before)
    assert zones() == {"db-1": "a", "db-2": "a", "db-3": "b"}
