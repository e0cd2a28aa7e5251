"""The pre-commit hooks and the workflow run what bin/test runs, and fetch nothing else."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text()
WORKFLOW = (ROOT / ".github/workflows/test.yml").read_text()


def test_every_hook_is_a_local_command_of_this_repository() -> None:
    assert re.findall(r"repo: (.+)", HOOKS) == ["local"]
    assert set(re.findall(r"language: (.+)", HOOKS)) == {"system"}
    entries = re.findall(r"entry: (.+)", HOOKS)
    assert [entry.partition(" --")[0] for entry in entries] == [
        ".venv/bin/ruff check",
        ".venv/bin/ruff format",
        ".venv/bin/mypy",
        "bin/test",
    ]
    assert "bin/test --quick" in entries
    for entry in entries:
        assert os.access(ROOT / entry.split()[0], os.X_OK), entry


def test_the_workflow_calls_bin_test_on_every_supported_python() -> None:
    assert re.findall(r"run: (.+)", WORKFLOW) == ["bin/test"]
    assert 'python: ["3.11", "3.12", "3.13"]' in WORKFLOW
    for action in re.findall(r"uses: (.+)", WORKFLOW):
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", action)


@pytest.mark.parametrize("text", [HOOKS, WORKFLOW], ids=["hooks", "workflow"])
def test_neither_names_a_host(text: str) -> None:
    assert "://" not in text
    assert not re.search(r"\b[a-z0-9-]+\.(com|org|io|net|dev)\b", text)
