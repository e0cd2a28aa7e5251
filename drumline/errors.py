"""One tree of errors. The CLI maps it to exit codes and REST to status codes, each once.

An error's docstring is its message; the fields that a raise names are put into it.
"""

from __future__ import annotations

from typing import ClassVar


class DrumlineError(Exception):
    """Drumline could not do this: {reason}"""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, **details: object) -> None:
        self.details = details
        template = type(self).__doc__ or type(self).__name__
        super().__init__(template.format(**details))

    @property
    def code(self) -> str:
        """The error's name on the wire and in JSON."""
        return type(self).__name__


class WrongUse(DrumlineError):
    """{reason}"""

    exit_code = 2
    http_status = 422


class BadConfig(WrongUse):
    """The configuration is wrong: {reason}"""


class UnknownHandler(WrongUse):
    """No runner can run type {type!r} on target type {target_type!r}. Known: {known}."""


class AmbiguousHandler(UnknownHandler):
    """Type {type!r} is served on several target types, say which one: {known}."""


class NotReachable(DrumlineError):
    """{what} cannot be reached: {reason}"""

    exit_code = 3
    http_status = 503


class StoreUnavailable(NotReachable):
    """The database cannot be reached: {reason}"""


class NotFound(DrumlineError):
    """There is no {noun} {id}."""

    exit_code = 4
    http_status = 404


class Conflict(DrumlineError):
    """{reason}"""

    exit_code = 5
    http_status = 409


class IllegalTransition(Conflict):
    """A task cannot go from {source} to {target}."""


class SchemaMismatch(Conflict):
    """The database schema is at {found}, this version needs {wanted}: run `drumline db upgrade`."""


class NameTaken(Conflict):
    """There is already a job called {name!r}."""


class VersionConflict(Conflict):
    """Job {id} is at version {found}, not {wanted}: read it again before changing it."""


class BadToken(Conflict):
    """The callback token is not right for this run."""

    http_status = 403


class FenceLost(Conflict):
    """Task {task_id} is no longer held under fence {fence}."""


class MoreRowsThanAsked(DrumlineError):
    """A write meant for {asked} rows changed {changed}: this is a bug in Drumline."""


class DecodeError(WrongUse):
    """A message could not be read: {reason}"""

    http_status = 400


def by_code(code: str, message: str) -> DrumlineError:
    """Rebuild on the caller's side an error that came over the control socket."""
    kind = _all_kinds().get(code, DrumlineError)
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.details = {}
    return error


def _all_kinds() -> dict[str, type[DrumlineError]]:
    kinds: dict[str, type[DrumlineError]] = {}
    todo: list[type[DrumlineError]] = [DrumlineError]
    while todo:
        kind = todo.pop()
        kinds[kind.__name__] = kind
        todo.extend(kind.__subclasses__())
    return kinds
