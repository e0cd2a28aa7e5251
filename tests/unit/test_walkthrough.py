"""docs/walkthrough.md names functions that exist, and follows a task in at most 20 hops."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/walkthrough.md").read_text()
SECTIONS = ("A task", "A firing of an HTTP job", "An item of a sweep")
MAX_HOPS = 20


MESSAGES = ("protocol/messages.py", "drumline/runner/frames.py")


class Hop(NamedTuple):
    """A numbered line of the page."""

    number: int
    paths: tuple[str, ...]
    """The file of the hop, and those of the functions that the sentence locates."""
    names: tuple[str, ...]
    """The functions, classes and columns that the sentence names."""


def hops(section: str) -> list[Hop]:
    """The hops of a section; fails on a line that is not one."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = []
    for item in re.findall(r"^\d+\. .*(?:\n {3,}.*)*", text, re.MULTILINE):
        match = re.match(r"(\d+)\. \*\*\w+\*\* `[\w/]+\.py:[\w.]+` ", item)
        assert match is not None, f"not a hop: {item}"
        paths = re.findall(r"`([\w/]+\.py):", item)
        names = re.findall(r"`([A-Za-z_][\w.]*)`", item)
        found.append(Hop(int(match[1]), tuple(paths), tuple(names)))
    return found


@cache
def definitions(path: str) -> frozenset[str]:
    """The functions of a module, and the methods of its classes as `Class.method`."""
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, functions):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{n.name}" for n in node.body if isinstance(n, functions)}
    return frozenset(found)


@pytest.mark.parametrize("location", sorted(set(re.findall(r"`([\w/]+\.py:[\w.]+)`", PAGE))))
def test_the_function_exists(location: str) -> None:
    path, _, function = location.partition(":")
    assert (ROOT / path).is_file(), f"there is no {path}"
    assert function in definitions(path), f"{path} has no {function}"


@pytest.mark.parametrize("section", SECTIONS)
def test_hops_are_numbered_and_few(section: str) -> None:
    numbers = [hop.number for hop in hops(section)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 12 <= len(numbers) <= MAX_HOPS


@pytest.mark.parametrize("section", SECTIONS)
def test_the_names_of_a_hop_are_in_its_code_or_that_of_its_neighbours(section: str) -> None:
    found = hops(section)
    code = ["", *(source(hop.paths) for hop in found), ""]
    missing = [
        f"hop {hop.number}: {name}"
        for hop, *around in zip(found, code, code[1:], code[2:], strict=False)
        for name in hop.names
        if not re.search(
            rf"\b{re.escape(name.rpartition('.')[2])}\b", "".join([*around, source(MESSAGES)])
        )
    ]
    assert missing == []


@cache
def source(paths: tuple[str, ...]) -> str:
    return "".join((ROOT / path).read_text() for path in paths)
