"""Finds out, in a process of its own, which handlers exist and which cannot be imported.

`python -m drumline.handlers.import_check MODULE…` does what a runner does at its start. Keepers,
the CLI and the gateway never import users' code; they run this.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

SECONDS = 60.0


class ImportReport(msgspec.Struct, frozen=True):
    """What a runner would find."""

    handlers: tuple[str, ...]
    problems: tuple[str, ...]


def start_import_check(imports: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start to look; `found` waits for what it finds."""
    return subprocess.Popen(
        [sys.executable, "-m", "drumline.handlers.import_check", *imports],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def read_import_report(looking: subprocess.Popen[bytes], seconds: float = SECONDS) -> ImportReport:
    """What it found. A module that kills its process or never ends is a problem like another."""
    try:
        out, err = looking.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        looking.kill()
        looking.communicate()
        return ImportReport((), (f"the imports did not end within {seconds:g} s",))
    try:
        return msgspec.json.decode(out.splitlines()[-1], type=ImportReport)
    except (IndexError, msgspec.DecodeError):
        words = err.decode(errors="replace").strip() or "nothing was said"
        return ImportReport((), (f"the imports ended the process ({looking.returncode}): {words}",))


def last_line(problem: str) -> str:
    """The sentence of a problem: which import, and the error, without the traceback."""
    lines = [line for line in problem.strip().splitlines() if line.strip()]
    head = lines[0].partition(": Traceback")[0]
    return head if len(lines) == 1 else f"{head}: {lines[-1].strip()}"


def main() -> None:
    from pathlib import Path

    from drumline.handlers.registry import import_handlers, registry

    sys.path.insert(0, str(Path.cwd()))
    problems = import_handlers(sys.argv[1:])
    handlers = tuple(spec.key for spec in registry.manifest())
    # After whatever the modules printed, on a line of its own.
    sys.stdout.write(
        "\n" + msgspec.json.encode(ImportReport(handlers, tuple(problems))).decode() + "\n"
    )
    sys.stdout.flush()
    os._exit(0)  # threads that an import started must not hold us


if __name__ == "__main__":
    main()
