"""Opening the database for CLI commands, with every failure reported in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from drumline.errors import NotFound, StoreUnavailable
from drumline.store import dialects
from drumline.store.database import Database


@contextmanager
def opened(url: str, must_exist: bool = False) -> Iterator[Database]:
    """The database of a URL, closed at the end. `must_exist`: do not create a SQLite file."""
    file = file_of(url)
    if must_exist and file is not None and not file.exists():
        raise NotFound(noun="database", id=file)
    try:
        database = Database(url)
    except OSError as error:
        raise StoreUnavailable(reason=f"{file}: {error.strerror}") from None
    try:
        yield database
    except DBAPIError as error:
        raise StoreUnavailable(reason=_sentence(error)) from None
    finally:
        database.close()


def file_of(url: str) -> Path | None:
    """The file of a SQLite URL, None for other databases."""
    path: Path | None = getattr(dialects.for_url(url), "path", None)
    return path


def _sentence(error: DBAPIError) -> str:
    """The first line of the driver's message, which is its last argument."""
    arguments = getattr(error.orig, "args", ())
    return str(arguments[-1] if arguments else error.orig).splitlines()[0]
