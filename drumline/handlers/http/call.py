"""The parameters of an HTTP call, validated field by field."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from drumline.command_layer.fields import invalid_field
from drumline.errors import WrongUse
from drumline.handlers.http.retry import RetryPolicy

DEFAULT_TIMEOUT = 15.0
DEFAULT_CALLBACK_TIMEOUT = 3600.0
MAX_TIMEOUT = 24 * 3600.0
MAX_CALLBACK_TIMEOUT = 30 * 24 * 3600.0
URL_LIMIT = 2048
BODY_LIMIT = 64 * 1024
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
TASK_MARGIN = 5.0
"""Added to a call's timeout for the timeout of its task, so that the call ends first and reports
what it waited for, before the task is killed."""


class BadCall(WrongUse):
    """{field} is wrong: {reason}"""


class ExecType(StrEnum):
    """What decides a run: the response, or a callback after it."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"


class HttpCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One HTTP request with its timeouts and its retry policy."""

    url: Annotated[str, Meta(min_length=1, max_length=URL_LIMIT)]
    method: str = ""
    """Empty: POST if there is a body, else GET."""
    headers: dict[str, str] = {}
    body: Annotated[str, Meta(max_length=BODY_LIMIT)] | None = None
    timeout: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT)] = DEFAULT_TIMEOUT
    exec_type: ExecType = ExecType.SYNC
    callback_timeout: Annotated[float, Meta(gt=0, le=MAX_CALLBACK_TIMEOUT)] = (
        DEFAULT_CALLBACK_TIMEOUT
    )
    retry: RetryPolicy = RetryPolicy()

    @property
    def task_timeout(self) -> float:
        """The timeout of the task that makes this call."""
        return self.timeout + TASK_MARGIN

    @staticmethod
    def of(param: object) -> HttpCall:
        """Read a task's param. Raises BadCall with the field that is wrong."""
        if not isinstance(param, Mapping):
            raise BadCall(field="param", reason="an object with at least a url is needed")
        values = {name: value for name, value in param.items() if value is not None}
        for name in ("headers", "retry"):
            if isinstance(values.get(name), str):
                values[name] = _decoded(values[name], name)
        if isinstance(headers := values.get("headers"), dict):
            for name, value in headers.items():
                if not isinstance(value, str):
                    reason = f"a header is a string, not {type(value).__name__}"
                    raise BadCall(field=f"headers.{name}", reason=reason)
        if isinstance(values.get("body"), dict | list):
            values["body"] = msgspec.json.encode(values["body"]).decode()
        if isinstance(values.get("method"), str):
            values["method"] = values["method"].upper()
        try:
            call = msgspec.convert(values, HttpCall)
        except msgspec.ValidationError as error:
            raise BadCall(**{"field": "param", **invalid_field(error)}) from None
        if call.method and call.method not in METHODS:
            reason = f"{call.method[:20]!r} is not one of {', '.join(METHODS)}"
            raise BadCall(field="method", reason=reason)
        if (problem := call.retry.invalid_entry()) is not None:
            raise BadCall(field="retry.on", reason=problem)
        return call


class HttpParam(HttpCall, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The accepted forms of a submission: some fields also as a JSON string, or as an object."""

    headers: dict[str, str] | str | None = None  # type: ignore[assignment]  # wider, on purpose
    body: str | dict[str, Any] | list[Any] | None = None  # type: ignore[assignment]
    retry: RetryPolicy | str | None = None  # type: ignore[assignment]


JOB_FIELDS: Mapping[str, str] = {
    "target_url": "url",
    "http_method": "method",
    "headers_json": "headers",
    "body_template": "body",
    "timeout_seconds": "timeout",
    "exec_type": "exec_type",
    "callback_timeout_sec": "callback_timeout",
    "retry_policy_json": "retry",
}
"""The fields of a job, and the fields of a call that they set."""


def job_field(field: str) -> str:
    """The job field for a call's field: `headers_json.X-A` for `headers.X-A`."""
    name, dot, rest = field.partition(".")
    names = {ours: theirs for theirs, ours in JOB_FIELDS.items()}
    return names.get(name, name) + dot + rest


def param_of_job(job: Mapping[str, object]) -> dict[str, object]:
    """The param of a job's runs, from the fields that the job sets."""
    return {
        ours: job[theirs]
        for theirs, ours in JOB_FIELDS.items()
        if job.get(theirs) is not None and job[theirs] != ""
    }


def _decoded(text: str, field: str) -> object:
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadCall(field=field, reason=f"this is not JSON: {error}") from None
