"""Dependencies between modules point one way. Imports inside functions count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("actors", "protocol", "drumline", "bench")

USED_BY = {
    "drumline.domain": ("drumline.domain", "drumline.errors"),
    "drumline.sweep_items": ("drumline.sweep_items", "drumline.domain", "drumline.errors"),
    "protocol": ("protocol", "drumline.domain", "drumline.errors", "drumline.system"),
}
"""What the modules of a package may import of this project."""

REMAINING_CYCLES = (
    ("drumline.node.doctor", "drumline.node.doctor_database"),
    ("drumline.command_layer.audit_trail", "drumline.command_layer.base"),
    ("drumline.store.task.runs", "drumline.store.sweep.sweep_ends"),
)
"""Imports that close a cycle. Remove an entry together with its import."""

ACTOR_COMMAND = "drumline.commands.node.actor"
"""`drumline actor NAME` becomes the process of an actor: the one way from drumline to actors."""


@cache
def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> dict[str, frozenset[str]]:
    """The modules of this project that each module imports, at its top or in a function."""
    return {
        name: frozenset(_imported(ast.parse(path.read_text()))) for name, path in modules().items()
    }


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in modules():
                    yield full
                elif node.module in modules():
                    yield node.module


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only the type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from _executed(node)


def belongs(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    graph = {name: set(used) for name, used in imports().items()}
    for name, used in REMAINING_CYCLES:
        graph[name].remove(used)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("an import cycle: " + " imports ".join(reversed(error.args[1])))


def test_handlers_and_runner_do_not_import_each_other() -> None:
    assert not [
        (module, used)
        for module, names in imports().items()
        for used in names
        if belongs(module, "drumline.handlers") and belongs(used, "drumline.runner")
    ]


def test_drumline_does_not_import_the_actors() -> None:
    assert [
        (module, used)
        for module, names in sorted(imports().items())
        for used in names
        if belongs(used, "actors")
        and not belongs(module, "actors")
        and not belongs(module, "bench")
    ] == [(ACTOR_COMMAND, "actors.__main__")]


@pytest.mark.parametrize(("package", "allowed"), USED_BY.items(), ids=USED_BY)
def test_a_lower_layer_imports_only_what_is_below_it(
    package: str, allowed: tuple[str, ...]
) -> None:
    assert not [
        (module, used)
        for module, names in imports().items()
        for used in names
        if belongs(module, package) and not any(belongs(used, other) for other in allowed)
    ]
