"""The lights: a folder with a small JSON file for each of them.

In a plug-in of your own, this is the client of the system that it changes.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class NoSuchLight(Exception):
    """There is no light of this name."""


class Light(msgspec.Struct, frozen=True):
    on: bool = False
    level: int = 100


def read(name: str) -> Light:
    try:
        return msgspec.json.decode(_path(name).read_bytes(), type=Light)
    except FileNotFoundError:
        raise NoSuchLight(f"there is no light {name!r} in {_folder()}") from None


def write(name: str, light: Light) -> None:
    """Atomic: a reader sees the old state or the new one."""
    new = _path(name).with_suffix(".new")
    new.write_bytes(msgspec.json.encode(light))
    new.replace(_path(name))


def _path(name: str) -> Path:
    if not name or "/" in name or name.startswith("."):
        raise NoSuchLight(f"{name!r} is not the name of a light")
    return _folder() / f"{name}.json"


def _folder() -> Path:
    return Path(os.environ.get("LIGHTS_DIR", "lights"))
