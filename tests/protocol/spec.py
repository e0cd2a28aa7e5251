"""SPEC.md as a client in another language reads it: structs from their tables alone."""

import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import protocol

TEXT = (Path(protocol.__file__).parent / "SPEC.md").read_text()
SECTIONS: dict[str, str] = dict(
    re.findall(r"^#### (\w+)\n(.*?)(?=^#+ |\Z)", TEXT, re.MULTILINE | re.DOTALL)
)
ENUMS = {
    ("DispatcherRequest", "kind"): ("queue", "workers", "drain", "kill", "recycle"),
    ("DueTask", "status"): ("pending", "retry_pending", "rollback_pending"),
    ("Failure", "cause"): ("error", "timeout"),
    ("HandlerSpec", "on_death"): ("retry", "fail", "cancel"),
}
SCALARS: dict[str, type | tuple[type, ...]] = {
    "int": int, "float": (float, int), "bool": bool, "str": str, "bytes": bytes
}  # fmt: skip
WORDS = ("", "x", "worker-1", "ölig", "\N{DRUM WITH DRUMSTICKS}", "a" * 40, "\0")
ANYTHING: tuple[Any, ...] = (None, True, -7, 2.5, "words", [1, [2]], {"a": {"b": []}})


class SpecField(NamedTuple):
    name: str
    type: str
    """For example `int`, `DueTask…` or `str or nil`."""
    default: str | None


def fields_of(struct: str) -> list[SpecField]:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", SECTIONS[struct], re.MULTILINE)
    return [
        SpecField(name, *[*(part.strip() for part in words.split(" = ")), None][:2])
        for name, words in rows
    ]


def is_map(struct: str) -> bool:
    return "Written as a map" in SECTIONS[struct]


def layout(struct: str, values: list[Any]) -> list[Any] | dict[str, Any]:
    """The field values of a struct in their written form: a list, or a map with names."""
    if is_map(struct):
        return dict(zip([field.name for field in fields_of(struct)], values, strict=True))
    return values


def made(struct: str, chance: random.Random) -> list[Any]:
    """Random values for the fields of a struct."""
    return [
        chance.choice(ENUMS[struct, field.name])
        if (struct, field.name) in ENUMS
        else _made(field.type, chance)
        for field in fields_of(struct)
    ]


def _made(kind: str, chance: random.Random) -> Any:
    match _split(kind):
        case ["nil", inner]:
            return chance.choice([None, _made(inner, chance)])
        case ["array", inner]:
            return [_made(inner, chance) for _ in range(chance.randrange(4))]
        case ["map", "of str"]:
            return {chance.choice(WORDS): chance.choice(ANYTHING) for _ in range(3)}
        case ["map", "of str to int"]:
            return {chance.choice(WORDS): chance.randrange(2**40) for _ in "123"}
        case ["map", "of int to (str, str)"]:
            return {chance.randrange(2**40): [chance.choice(WORDS) for _ in "12"] for _ in "123"}
    match kind:
        case "int":
            return chance.choice([0, 1, 127, 128, 65_536, 2**31, 2**53, 2**62])
        case "float":
            return chance.choice([1.0, 1])
        case "bool":
            return chance.random() < 0.5
        case "str":
            return chance.choice(WORDS)
        case "bytes":
            return chance.randbytes(chance.randrange(20))
        case "anything":
            return chance.choice(ANYTHING)
        case struct:
            return layout(struct, made(struct, chance))


def written(struct: str, value: object) -> list[Any] | dict[str, Any]:
    """The written form of a struct by SPEC.md. Fails if a value does not have its field's type."""
    fields = [_written(field.type, getattr(value, field.name)) for field in fields_of(struct)]
    return layout(struct, fields)


def _written(kind: str, value: Any) -> Any:
    match _split(kind):
        case ["nil", inner]:
            return None if value is None else _written(inner, value)
        case ["array", inner]:
            return [_written(inner, item) for item in value]
        case ["map", "of int to (str, str)"]:
            return {key: list(pair) for key, pair in value.items()}
        case ["map", _]:
            return value
    if kind == "anything":
        return value
    if kind in SCALARS:
        assert isinstance(value, SCALARS[kind]), f"{value!r} is not a {kind}"
        return str(value) if kind == "str" else value
    return written(kind, value)


def _split(kind: str) -> tuple[str, str]:
    if kind.endswith(" or nil"):
        return "nil", kind.removesuffix(" or nil")
    if kind.endswith("…"):
        return "array", kind.removesuffix("…")
    if kind.startswith("map "):
        return "map", kind.removeprefix("map ")
    return "", kind
