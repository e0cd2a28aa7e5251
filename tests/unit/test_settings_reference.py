"""The settings' docstrings, and the page and the file that are made from them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from drumline.config import Settings, load, reference

ROOT = Path(__file__).parents[2]


def test_every_setting_is_documented_under_a_heading() -> None:
    documented = reference.settings()
    assert [setting.name for setting in documented] == list(Settings.__struct_fields__)
    for setting in documented:
        assert setting.section, setting.name
        assert setting.text.endswith("."), f"{setting.name} has no docstring"
        assert setting.valid, setting.name


def test_the_settings_page_is_up_to_date() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()
    assert page == reference.page(), "run bin/docs"


def test_bin_docs_writes_the_settings_page() -> None:
    command = re.search(r"-m (\S+) >docs/reference/settings.md", (ROOT / "bin/docs").read_text())
    assert command is not None
    done = subprocess.run(
        [sys.executable, "-m", command[1]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == reference.page()


@pytest.mark.parametrize(
    ("name", "default", "valid"),
    [
        ("http_port", "8127", "1 to 65535"),
        ("node", '""', "at most 64 characters"),
        ("queue_capacity", "1000", "1 or more"),
        ("lease", "8.0", "more than 0"),
        ("shell", "false", "true, false"),
        ("imports", "[]", "a list of texts"),
        ("connect", "[]", "a list of tables"),
    ],
)
def test_defaults_and_ranges_come_from_the_class(name: str, default: str, valid: str) -> None:
    (found,) = [setting for setting in reference.settings() if setting.name == name]
    assert (found.default, found.valid) == (default, valid)


def test_the_file_of_init_names_every_setting_and_changes_only_the_imports(tmp_path: Path) -> None:
    file = tmp_path / "drumline.toml"
    text = reference.init_file("handlers")
    file.write_text(text)
    assert load({}, file) == msgspec.structs.replace(Settings(), imports=("handlers",))
    set_lines = [line.removeprefix("# ") for line in text.splitlines() if " = " in line]
    top = "\n".join(set_lines[: len(Settings.__struct_fields__) - 2])
    defaults = msgspec.convert(tomllib.loads(top), Settings)
    assert defaults == msgspec.structs.replace(Settings(), imports=("handlers",))
    for name in Settings.__struct_fields__:
        assert f"\n# {name} = " in text or f"\n# [[{name}]]\n" in text or name == "imports"


def test_the_tables_of_the_file_of_init_are_valid_when_uncommented(tmp_path: Path) -> None:
    text = reference.init_file("handlers")
    examples = [setting.example for setting in reference.settings() if setting.example]
    for example in examples:
        commented = "".join(f"# {line}\n" for line in example.splitlines())
        assert commented in text
        text = text.replace(commented, example + "\n")
    file = tmp_path / "drumline.toml"
    file.write_text(text)
    settings = load({}, file)
    assert [hook.name for hook in settings.webhooks] == ["ops"]
    assert [cluster.name for cluster in settings.connect] == ["eu-1"]
