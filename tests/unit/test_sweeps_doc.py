"""docs/how-to/sweeps.md does what it says."""

import re
from pathlib import Path
from typing import Any

import pytest

from drumline.handlers import registry
from drumline.testing import run_sweep

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sweeps.md"


def test_every_snippet_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "registry", registry.Registry())
    for module in ("drumline.testing", "drumline.handlers.sweep_registry"):
        monkeypatch.setattr(f"{module}.registry", registry.registry)
    snippets = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(snippets) == 4
    names: dict[str, Any] = {"__name__": "sweeps_page"}
    for snippet in snippets:
        exec(compile(snippet, "docs/how-to/sweeps.md", "exec"), names)  # noqa: S102
    assert run_sweep("users.sum", 5).extra == {"sum": 10}
    assert run_sweep("report.export", 1, extra={"a": 1}).log == [(0, "page 0 of report_17")]
    assert run_sweep("report.export", 1, extra={"building": True}).waits == (30.0,)
