"""docs/reference/metrics.md lists every metric, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/metrics.md"
SOURCES = ("drumline/telemetry/metrics.py", "drumline/web/metrics.py")


def test_the_page_lists_the_metrics_that_exist() -> None:
    code = "".join((ROOT / source).read_text() for source in SOURCES)
    defined = {
        name + ("_total" if kind == "Counter" else "")
        for kind, name in re.findall(r"(\w+)\(\s*\"(drumline_\w+)\"", code)
    }
    assert set(re.findall(r"`(drumline_\w+)", PAGE.read_text())) == defined
