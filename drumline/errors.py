"""The errors of Drumline. The CLI maps them to exit codes and REST to status codes, each once.

An error's docstring is its message, filled in from the details that are passed when it is raised.
Details are data for callers and travel with the error over the control socket: `field` is the
argument that is wrong, `index` its position in a list of targets or params, `reason` what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

_Error = TypeVar("_Error", bound="DrumlineError")


class DrumlineError(Exception):
    """Drumline could not do this: {reason}"""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, **details: Any) -> None:
        self.details = details
        template = type(self).__doc__ or type(self).__name__
        message = template.format(**details)
        if template == "{reason}" and "field" in details:
            message = f"{details['field']}: {message}"
        super().__init__(message)

    def within(self, place: str, **details: Any) -> Self:
        """The same error; its message begins with a place such as `target 3`."""
        return _rebuild(type(self), f"{place}: {self}", {**self.details, **details})

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
    """Type {type!r} is served on several target types, name one of them: {known}."""


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
    """Job {id} is at version {found}, not {wanted}: read it again before you change it."""


class BadToken(Conflict):
    """The callback token does not match this run."""

    http_status = 403


class MoreRowsThanAsked(DrumlineError):
    """A write meant for {asked} rows changed {changed}: this is a bug in Drumline."""


class DecodeError(WrongUse):
    """A message could not be read: {reason}"""

    http_status = 400


def restore(code: str, message: str, details: Mapping[str, Any]) -> DrumlineError:
    """An error that came over the control socket, as the class that was raised."""
    return _rebuild(_classes_by_name().get(code, DrumlineError), message, dict(details))


def _rebuild(kind: type[_Error], message: str, details: dict[str, Any]) -> _Error:
    """An error whose message is not made from its details."""
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.details = details
    return error


def _classes_by_name() -> dict[str, type[DrumlineError]]:
    found: dict[str, type[DrumlineError]] = {}
    remaining: list[type[DrumlineError]] = [DrumlineError]
    while remaining:
        kind = remaining.pop()
        found[kind.__name__] = kind
        remaining.extend(kind.__subclasses__())
    return found
