"""docs/how-to/plugins.md shows the example plug-in; connectors.md shows valid settings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec

from drumline import config
from drumline.handlers.connect.panama import PanamaJob

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin-lights"


def snippets(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / "how-to" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_every_snippet_is_the_plugins_own_code() -> None:
    code = "".join(path.read_text() for path in sorted(PLUGIN.rglob("*.py")))
    found = snippets("plugins.md", "python")
    assert len(found) == 9
    for snippet in found:
        assert snippet in code, snippet


def test_entry_point_is_the_plugins_own() -> None:
    (snippet,) = snippets("plugins.md", "toml")
    shown = tomllib.loads(snippet)["project"]
    real = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    assert shown.items() <= real.items()


def test_cluster_and_description_of_the_page_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "drumline.toml"
    file.write_text(snippets("connectors.md", "toml")[0])
    assert config.load({}, file).connect[0].az == "a"
    job = msgspec.json.decode(snippets("connectors.md", "json")[0], type=PanamaJob)
    assert job.source.kind == "mysql"
