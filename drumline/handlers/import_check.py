"""Lists, in a separate process, the handlers that exist and the modules that cannot be imported.

`python -m drumline.handlers.import_check MODULE…` imports what a runner imports at its start.
Keepers, the CLI and the gateway never import users' code; they run this process instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

TIMEOUT = 60.0


class ImportReport(msgspec.Struct, frozen=True):
    """The handlers that a runner would have, and its import errors."""

    handlers: tuple[str, ...]
    problems: tuple[str, ...]


def start_import_check(imports: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the process; `read_import_report` waits for its report."""
    return subprocess.Popen(
        [sys.executable, "-m", "drumline.handlers.import_check", *imports],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def read_import_report(process: subprocess.Popen[bytes], seconds: float = TIMEOUT) -> ImportReport:
    """The report. A module that ends the process, or never ends, is reported as a problem."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return ImportReport((), (f"the imports did not end within {seconds:g} s",))
    try:
        return msgspec.json.decode(out.splitlines()[-1], type=ImportReport)
    except (IndexError, msgspec.DecodeError):
        output = err.decode(errors="replace").strip() or "no output"
        return ImportReport(
            (), (f"the imports ended the process ({process.returncode}): {output}",)
        )


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
    # On a line of its own, after the output of the modules.
    sys.stdout.write(
        "\n" + msgspec.json.encode(ImportReport(handlers, tuple(problems))).decode() + "\n"
    )
    sys.stdout.flush()
    os._exit(0)  # without waiting for threads that an import started


if __name__ == "__main__":
    main()
