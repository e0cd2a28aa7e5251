"""`drumline config show`: every setting, its value and its source."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from drumline.cli import groups, output


@groups.config.command("show", epilog="drumline config show\ndrumline config show --json")
def show() -> None:
    """Show the effective settings. Secrets are masked."""
    import msgspec

    from drumline import config
    from drumline.masking import mask_setting

    values = msgspec.to_builtins(config.load())
    sources = _sources()
    settings = [
        {"name": name, "value": mask_setting(name, value), "source": sources.get(name, "default")}
        for name, value in values.items()
    ]
    rows = [(item["name"], item["value"], item["source"]) for item in settings]
    output.print_table(settings, ("setting", "value", "source"), rows, "There are no settings.")


def _sources() -> dict[str, str]:
    """The source of each setting that is not a default. The settings have been validated."""
    from drumline.config import FILE_NAME, PREFIX, Settings

    file = Path(os.environ.get(PREFIX + "CONFIG") or FILE_NAME)
    found = {}
    if file.is_file():
        found = dict.fromkeys(tomllib.loads(file.read_text()), str(file))
    for name in Settings.__struct_fields__:
        variable = PREFIX + name.upper()
        if variable in os.environ:
            found[name] = variable
    return found
