"""The settings as text: the reference page and the file that `drumline init` writes.

Both are made from the fields of `Settings` and their docstrings, so neither can differ from the
code.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from textwrap import TextWrapper
from typing import Any, NamedTuple, cast

import msgspec

from drumline.config import Settings

PAGE = """\
# Settings

This page is made by `bin/docs` from the docstrings in `drumline/config/__init__.py`.

Drumline reads `drumline.toml` in the working directory, or the file that `DRUMLINE_CONFIG` names.
Environment variables come second and win: `DRUMLINE_HTTP_PORT=8200` sets `http_port`. Lists are
separated by commas there, and tables are JSON. `drumline init` writes a file with every setting at
its default; `drumline config show` prints the values in effect and where each comes from.

A change takes effect when Drumline is stopped and started again.
"""

INIT_FILE = """\
# Settings of Drumline. Lines that are commented out show the defaults, or an example of a table.
# Environment variables override this file: DRUMLINE_HTTP_PORT=8200 sets http_port.
# `drumline config show` prints the values in effect.
"""

WRAPPER = TextWrapper(width=97, break_long_words=False, break_on_hyphens=False)
HEADING = re.compile(r"\s*# --- (.+) ---")


class Setting(NamedTuple):
    """One field of `Settings`."""

    section: str
    name: str
    text: str
    """What it does, in one paragraph."""
    example: str
    """TOML that sets it, for a setting that is a list of tables."""
    default: str
    """As TOML."""
    valid: str


@cache
def settings() -> tuple[Setting, ...]:
    """All settings in the order of their class."""
    source = inspect.getsource(Settings)
    statements = cast(ast.ClassDef, ast.parse(source).body[0]).body
    lines = source.splitlines()
    struct = cast(msgspec.inspect.StructType, msgspec.inspect.type_info(Settings))
    fields = {field.name: field for field in struct.fields}
    found, section, line = [], "", 0
    for statement, following in pairwise(statements):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        for text in lines[line : statement.lineno]:
            if heading := HEADING.fullmatch(text):
                section = heading[1]
        line = statement.lineno
        name = statement.target.id
        paragraph, _, example = _docstring(following).partition("\n\n")
        field = fields[name]
        found.append(
            Setting(
                section=section,
                name=name,
                text=" ".join(paragraph.split()),
                example=example,
                default=_toml(field.default),
                valid=_valid(field.type),
            )
        )
    return tuple(found)


def page() -> str:
    """The reference page, in Markdown."""
    return PAGE + "".join(_page_sections())


def init_file(handler_module: str) -> str:
    """The settings file of a new project whose handlers are in this module."""
    parts, section = [INIT_FILE], ""
    for setting in settings():
        if setting.section != section:
            section = setting.section
            parts.append(f"\n# --- {section} ---\n")
        parts.append("\n" + _commented(setting.text))
        if setting.name == "imports":
            parts.append(f"imports = {json.dumps([handler_module])}\n")
        else:
            parts.append(_commented(setting.example or f"{setting.name} = {setting.default}"))
    return "".join(parts)


def _page_sections() -> Iterator[str]:
    section = ""
    for setting in settings():
        if setting.section != section:
            section = setting.section
            yield f"\n## {section}\n\n| setting | default | valid | |\n|---|---|---|---|\n"
        yield f"| `{setting.name}` | `{setting.default}` | {setting.valid} | {setting.text} |\n"


def _docstring(statement: ast.stmt) -> str:
    match statement:
        case ast.Expr(ast.Constant(str(text))):
            return inspect.cleandoc(text)
    return ""


def _commented(text: str) -> str:
    lines = (line for part in text.splitlines() for line in WRAPPER.wrap(part))
    return "".join(f"# {line}\n" for line in lines)


def _toml(value: object) -> str:
    """A default. TOML and JSON write text, numbers, truth values and empty lists alike."""
    return msgspec.json.encode(value).decode()


def _valid(kind: Any) -> str:
    """The values that a field takes, from its constraints."""
    match kind:
        case msgspec.inspect.BoolType():
            return "true, false"
        case msgspec.inspect.StrType(min_length=low, max_length=high):
            return _range(low, high, "text", " characters")
        case msgspec.inspect.IntType(ge=low, le=high):
            return _range(low, high, "a whole number", "")
        case msgspec.inspect.FloatType(gt=0):
            return "more than 0"
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.StructType()):
            return "a list of tables"
        case msgspec.inspect.VarTupleType():
            return "a list of texts"
    raise TypeError(f"no words for {kind}")


def _range(low: int | None, high: int | None, otherwise: str, unit: str) -> str:
    if low is not None and high is not None:
        return f"{low} to {high}{unit}"
    if high is not None:
        return f"at most {high}{unit}"
    return otherwise if low is None else f"{low} or more{unit}"


if __name__ == "__main__":
    print(page(), end="")
