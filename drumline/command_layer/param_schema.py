"""Checks a parameter against the schema that a handler announced, when the task is submitted.

The keywords that msgspec writes into the schemas of Python types are checked, and
`patternProperties`, with which a handler can refuse values by the names of their keys, such as a
plain password. Other keywords are ignored: the handler checks its parameter again in the runner.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from drumline.errors import WrongUse

Schema = Mapping[str, Any]

TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}

BOUNDS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": (">=", operator.ge),
    "maximum": ("<=", operator.le),
    "exclusiveMinimum": (">", operator.gt),
    "exclusiveMaximum": ("<", operator.lt),
}


class Problem(NamedTuple):
    """What is wrong with a value, and at which path."""

    field: str
    reason: str


def require(schema: Schema | None, value: Any) -> None:
    """Raise an error that names the field if the value does not fit."""
    if schema is not None and (problem := _problem(schema, schema, value, "param")):
        raise WrongUse(field=problem.field, reason=problem.reason)


def _problem(root: Schema, schema: Schema, value: Any, path: str) -> Problem | None:
    """The first thing that is wrong with a value."""
    if reference := schema.get("$ref"):
        definition = root.get("$defs", {}).get(reference.rpartition("/")[2], {})
        if found := _problem(root, definition, value, path):
            return found
    if (choices := schema.get("anyOf")) and (found := _choice_problem(root, choices, value, path)):
        return found
    if "enum" in schema and value not in schema["enum"]:
        return Problem(
            path, f"must be one of {', '.join(map(repr, schema['enum']))}, not {value!r}"
        )
    if "const" in schema and value != schema["const"]:
        return Problem(path, f"must be {schema['const']!r}, not {value!r}")
    wanted = schema.get("type")
    if wanted is not None and not _is_of(wanted, value):
        return Problem(path, f"must be of type {wanted}, not {_type_of(value)}")
    if isinstance(value, dict):
        return _object_problem(root, schema, value, path)
    if isinstance(value, list):
        return _array_problem(root, schema, value, path)
    return _scalar_problem(schema, value, path)


def _choice_problem(
    root: Schema, choices: Sequence[Schema], value: Any, path: str
) -> Problem | None:
    problems = [_problem(root, choice, value, path) for choice in choices]
    if None in problems:
        return None
    if all(set(choice) == {"required"} for choice in choices) and isinstance(value, dict):
        ways = (" and ".join(choice["required"]) for choice in choices)
        return Problem(path, f"needs one of {', '.join(ways)}")
    return problems[0]


def _is_of(wanted: str, value: Any) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, TYPES.get(wanted, (object,)))


def _type_of(value: Any) -> str:
    return next((name for name, kinds in TYPES.items() if isinstance(value, kinds)), "unknown")


def _object_problem(root: Schema, schema: Schema, value: Schema, path: str) -> Problem | None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return Problem(f"{path}.{name}", "is missing")
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in properties:
            found = _problem(root, properties[name], item, f"{path}.{name}")
        elif patterns := [of for key, of in _patterns(schema) if re.search(key, name)]:
            checks = (_problem(root, of, item, f"{path}.{name}") for of in patterns)
            found = next(filter(None, checks), None)
        elif others is False:
            known = ", ".join(properties) or "nothing"
            found = Problem(f"{path}.{name}", f"is not known; known: {known}")
        else:
            found = _problem(root, others, item, f"{path}.{name}") if others is not True else None
        if found:
            return found
    return None


def _patterns(schema: Schema) -> Iterable[tuple[str, Schema]]:
    patterns: Schema = schema.get("patternProperties", {})
    return patterns.items()


def _array_problem(root: Schema, schema: Schema, value: list[Any], path: str) -> Problem | None:
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if len(value) < least or (most is not None and len(value) > most):
        return Problem(path, f"has {len(value)} items, not {_range(least, most)}")
    firsts = schema.get("prefixItems", ())
    rest = schema.get("items", {})
    for i, item in enumerate(value):
        of = firsts[i] if i < len(firsts) else rest
        if isinstance(of, Mapping) and (found := _problem(root, of, item, f"{path}[{i}]")):
            return found
    return None


def _scalar_problem(schema: Schema, value: Any, path: str) -> Problem | None:
    if isinstance(value, str):
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if len(value) < least or (most is not None and len(value) > most):
            return Problem(path, f"has {len(value)} characters, not {_range(least, most)}")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            # A description says it to people, the pattern only to those who read patterns.
            wanted = schema.get("description") or repr(schema["pattern"])
            return Problem(path, f"does not match: {wanted}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        for word, (sign, fits) in BOUNDS.items():
            if word in schema and not fits(value, schema[word]):
                return Problem(path, f"must be {sign} {schema[word]}, not {value}")
    return None


def _range(least: int, most: int | None) -> str:
    return f"at least {least}" if most is None else f"{least} to {most}"
