"""Random messages, generated from their types, so that new fields and messages are covered."""

import random
from typing import Any

import msgspec
from msgspec import inspect

WORDS = ("", "x", "worker-1", "ölig", "🥁", "a" * 40, "\0", "{reason}")


def sample(kind: Any, chance: random.Random) -> Any:
    """A random value of a type."""
    return _value(inspect.type_info(kind), chance)


def _value(info: inspect.Type, chance: random.Random) -> Any:
    match info:
        case inspect.NoneType():
            return None
        case inspect.BoolType():
            return chance.random() < 0.5
        case inspect.IntType():
            low = 0 if info.ge is None else info.ge
            return chance.choice([low, low + 1, 127, 128, 65536, 2**31, 2**53, 2**62])
        case inspect.FloatType():
            most = 1e6 if info.le is None else info.le
            return chance.choice([1.0, most, chance.uniform(1, most)])
        case inspect.StrType():
            return chance.choice(WORDS)
        case inspect.BytesType():
            return chance.randbytes(chance.randrange(20))
        case inspect.EnumType():
            return chance.choice(list(info.cls))
        case inspect.VarTupleType():
            return tuple(_value(info.item_type, chance) for _ in range(chance.randrange(4)))
        case inspect.TupleType():
            return tuple(_value(item, chance) for item in info.item_types)
        case inspect.DictType():
            keys = [_value(info.key_type, chance) for _ in range(chance.randrange(4))]
            return {key: _value(info.value_type, chance) for key in keys}
        case inspect.AnyType():
            return chance.choice([None, True, -7, 2.5, "words", [1, [2]], {"a": {"b": []}}])
        case inspect.UnionType():
            return _value(chance.choice(info.types), chance)
        case inspect.StructType():
            return info.cls(**{f.name: _value(f.type, chance) for f in info.fields})
        case _:
            raise AssertionError(f"no samples of {info} yet")


def junk(chance: random.Random) -> Any:
    """A value that no peer sends."""
    return chance.choice(
        [
            None, True, -1, 2**64 - 1, -(2**63), 1e308, float("nan"), float("inf"), "", "x" * 300,
            b"\xff\xfe", [], [[]], {}, {"a": 1}, {1: 2}, {"\ud800".encode("utf-8", "replace"): 1},
            msgspec.msgpack.Ext(5, b"??"), [[[[[[]]]]]], ["Register"], "Bundle",
        ]
    )  # fmt: skip


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """A damaged copy of a frame."""
    data = bytearray(frame)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 if place < len(data):
                data[place] ^= 1 << chance.randrange(8)
            case 1 if place < len(data):
                data[place] = chance.randrange(256)
            case 2:
                del data[place:]
            case 3:
                data[place:place] = chance.randbytes(chance.randrange(1, 9))
            case 4:
                del data[place : place + chance.randrange(1, 5)]
            case _:
                data += data[place : place + 40]
    return bytes(data)


def replaced(fields: list[Any], chance: random.Random) -> list[Any]:
    """The elements of a message, one of them replaced, removed or added."""
    fields = list(fields)
    place = chance.randrange(len(fields))
    match chance.randrange(4):
        case 0:
            fields.append(junk(chance))
        case 1:
            del fields[place]
        case 2 if isinstance(fields[place], list) and fields[place]:
            inner = fields[place]
            fields[place] = replaced(inner, chance)
        case _:
            fields[place] = junk(chance)
    return fields
