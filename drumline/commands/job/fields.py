"""The fields of a job, and how a job's row is made from them.

An update is merged into the present fields of the job, and the whole is checked as for a new job.
Errors name the wrong field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from drumline.command_layer import param_schema, store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import LONGEST_TIMEOUT, Priority, Text64, Type, as_json, moment
from drumline.domain.jobs.catch_up import CatchUpMode
from drumline.domain.jobs.firing import ConcurrencyPolicy, FailureAction, OverlapAction
from drumline.domain.jobs.schedule import MAX_JITTER, Schedule
from drumline.domain.jobs.template import BadTemplate
from drumline.errors import WrongUse
from drumline.handlers.http.call import (
    BODY_LIMIT,
    DEFAULT_TIMEOUT,
    MAX_CALLBACK_TIMEOUT,
    TASK_MARGIN,
    URL_LIMIT,
    BadCall,
    ExecType,
    HttpCall,
    job_field,
    param_of_job,
)
from drumline.handlers.http.prepare import PreparedCall
from drumline.handlers.http.retry import RetryPolicy
from drumline.masking import MASK, is_secret_name

if TYPE_CHECKING:
    from drumline.domain.policy import HandlerSpec
    from drumline.store.rows import JobRow
    from drumline.store.tx import Tx

HTTP = "http"
NAME_LIMIT = 128
DESCRIPTION_LIMIT = 512
LONGEST_GRACE = 366 * 86400
MAX_CONCURRENCY = 1_000_000

Name = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT)]
Cron = Annotated[str, Meta(min_length=1, max_length=255)]
Key = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT)] | Annotated[int, Meta(ge=1)]
"""A job's name or its id."""
Time = Annotated[str, Meta(max_length=64)] | int | float | None
"""ISO 8601 with a zone, or epoch seconds."""


class JobFields(ChangeCommand, frozen=True, kw_only=True):
    """The fields that a new job or an update gives; DEFAULTS has the values of the others."""

    job_name: Name | UnsetType = msgspec.field(default=UNSET, name="name")
    description: Annotated[str, Meta(max_length=DESCRIPTION_LIMIT)] | UnsetType | None = UNSET
    cron_expr: Cron | UnsetType = UNSET
    """5 or 6 fields, or `@daily 08:00,17:30`, or `@after 90s`."""
    timezone: Text64 | UnsetType = UNSET
    """Such as `Europe/Berlin`."""
    starts_at: Time | UnsetType = UNSET
    """No firings before this time: ISO 8601 with a zone, or epoch seconds."""
    ends_at: Time | UnsetType = UNSET
    """No firings after this time: ISO 8601 with a zone, or epoch seconds."""
    jitter_seconds: Annotated[int, Meta(ge=0, le=MAX_JITTER)] | UnsetType = UNSET
    """Delay each firing by a random time of at most this many seconds."""
    exec_type: ExecType | UnsetType = UNSET
    """`ASYNC`: a run ends when its target calls back."""
    http_method: Annotated[str, Meta(max_length=16)] | UnsetType | None = UNSET
    target_url: Annotated[str, Meta(max_length=URL_LIMIT)] | UnsetType | None = UNSET
    """The URL that each run calls; may contain templates such as `{{run_id}}`."""
    headers_json: str | dict[str, Any] | UnsetType | None = UNSET
    """The headers of the call: an object, or the same as a JSON text."""
    body_template: Annotated[str, Meta(max_length=BODY_LIMIT)] | UnsetType | None = UNSET
    """The body of the call; may contain templates such as `{{run_id}}`."""
    type: Type | UnsetType | None = UNSET
    """The type of the task that each run is, in place of a `target_url`."""
    target_type: Type | UnsetType | None = UNSET
    """Required if handlers of several target types serve the type."""
    param: Any = UNSET
    """The parameter of the task."""
    timeout_seconds: Annotated[int, Meta(ge=1, le=LONGEST_TIMEOUT)] | UnsetType | None = UNSET
    """Maximum duration of a run."""
    retry_policy_json: str | dict[str, Any] | UnsetType | None = UNSET
    """Such as `{"max_attempts": 3, "delay": 1}`: an object, or the same as a JSON text."""
    max_concurrency: Annotated[int, Meta(ge=0, le=MAX_CONCURRENCY)] | UnsetType = UNSET
    """Maximum number of concurrent runs; 0 is no limit."""
    concurrency_policy: ConcurrencyPolicy | UnsetType = UNSET
    """What to do with a firing when the limit is reached."""
    overlap_action: OverlapAction | UnsetType = UNSET
    """What to do with a firing while an earlier run is unfinished."""
    failure_action: FailureAction | UnsetType = UNSET
    """What to do with a firing after a failed run."""
    catch_up_mode: CatchUpMode | UnsetType = UNSET
    """How to handle missed firings."""
    misfire_grace_seconds: Annotated[int, Meta(ge=1, le=LONGEST_GRACE)] | UnsetType = UNSET
    """Maximum lateness before a firing counts as missed."""
    callback_method: Literal["POST", "PUT"] | UnsetType | None = UNSET
    callback_timeout_sec: (
        Annotated[int, Meta(ge=1, le=int(MAX_CALLBACK_TIMEOUT))] | UnsetType | None
    ) = UNSET
    """How long an `ASYNC` run waits for its callback."""
    priority: Priority | UnsetType = UNSET
    env: Text64 | UnsetType | None = UNSET
    status: Literal["ENABLED", "DISABLED"] | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        """The fields that were given, by their names on the wire."""
        values = {name: getattr(self, name) for name in JobFields.__struct_fields__}
        values["name"] = values.pop("job_name")
        return {name: value for name, value in values.items() if value is not UNSET}


DEFAULTS: Mapping[str, Any] = {
    "description": None,
    "timezone": "UTC",
    "starts_at": None,
    "ends_at": None,
    "jitter_seconds": 0,
    "exec_type": ExecType.SYNC,
    "http_method": None,
    "target_url": None,
    "headers_json": None,
    "body_template": None,
    "type": None,
    "target_type": None,
    "param": None,
    "timeout_seconds": None,  # 15 s for a call, else what the handler declares
    "retry_policy_json": None,
    "max_concurrency": 0,
    "concurrency_policy": ConcurrencyPolicy.QUEUE,
    "overlap_action": OverlapAction.ALLOW,
    "failure_action": FailureAction.RUN_NEW,
    "catch_up_mode": CatchUpMode.NONE,
    "misfire_grace_seconds": 10,
    "callback_method": None,
    "callback_timeout_sec": None,
    "priority": 5,
    "env": None,
    "status": "ENABLED",
}
CALL_FIELDS = ("http_method", "target_url", "headers_json", "body_template")
FIELDS = ("name", "cron_expr", *DEFAULTS)


class _RunTemplate(NamedTuple):
    """What every run of a job is made from."""

    spec: HandlerSpec
    param: Any
    timeout_ms: int
    changes: dict[str, Any]


def new_row(tx: Tx, context: Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a new job."""
    return _row(tx, context, {**DEFAULTS, **given}, given)


def changed_row(tx: Tx, context: Context, row: JobRow, given: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a job with some of its fields changed."""
    before = {name: getattr(row, name) for name in FIELDS}
    before["param"] = None if row.param is None else msgspec.json.decode(row.param)
    before = before | ({} if row.target_url is None else {"type": None, "param": None})
    if given.get("target_url") is not None:
        before |= {"type": None, "target_type": None, "param": None}
    if given.get("type") is not None:
        before |= dict.fromkeys((*CALL_FIELDS, "target_type", "param", "retry_policy_json"))
        before |= {"timeout_seconds": None, "exec_type": ExecType.SYNC}
    if "exec_type" in given:
        before |= {"callback_method": None, "callback_timeout_sec": None}
    return _row(tx, context, {**before, **given}, given)


def _row(
    tx: Tx, context: Context, values: dict[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    _require_printable(values["name"])
    for name in ("starts_at", "ends_at"):
        if given.get(name) is not None:
            values[name] = _moment(name, given[name])
    schedule = Schedule.parse(
        values["cron_expr"],
        values["timezone"],
        starts_at=values["starts_at"],
        ends_at=values["ends_at"],
        jitter_seconds=values["jitter_seconds"],
    )
    policy = _policy(values)
    region = context.settings.region
    if values["target_url"] is not None:
        if values["type"] not in (None, HTTP):
            raise WrongUse(field="target_url", reason="a job has either a URL or a type")
        spec = store.handlers.find(tx, region, HTTP, HTTP)
        template = _call_template(spec, values)
    elif values["type"] is not None:
        spec = store.handlers.find(tx, region, values["type"], values["target_type"])
        template = _task_template(spec, values)
    else:
        raise WrongUse(
            field="target_url", reason="a job needs either a URL to call or a type of task to run"
        )
    row = values | template.changes
    return row | {
        "cron_expr": schedule.text,
        "by_clock": schedule.by_clock,
        "type": template.spec.type,
        "target_type": template.spec.target_type,
        "param": as_json(template.param),
        "timeout_ms": template.timeout_ms,
        "retry": None if policy is None else as_json(policy.to_retry()),
        "retry_policy_json": None if policy is None else as_json(policy),
    }


def _require_printable(name: str) -> None:
    if name != name.strip() or not name.isprintable():
        raise WrongUse(
            field="name", reason="it must be printable, with no space before or after it"
        )


def _moment(name: str, value: str | float) -> int:
    try:
        return moment(str(value))
    except WrongUse as error:
        raise WrongUse(field=name, reason=str(error)) from None


def _policy(values: dict[str, Any]) -> RetryPolicy | None:
    """The retry policy, the same for calls and other tasks."""
    given = values["retry_policy_json"]
    if given is None or given == "":
        return None
    try:
        if isinstance(given, str):
            policy = msgspec.json.decode(given, type=RetryPolicy)
        else:
            policy = msgspec.convert(given, RetryPolicy)
    except msgspec.MsgspecError as error:
        raise BadCall(field="retry_policy_json", reason=str(error)) from None
    if (problem := policy.invalid_entry()) is not None:
        raise BadCall(field="retry_policy_json.on", reason=problem)
    return policy


def _call_template(spec: HandlerSpec, values: dict[str, Any]) -> _RunTemplate:
    """Each run calls a URL."""
    if values["param"] is not None:
        raise WrongUse(field="param", reason="a job with a target_url has a body_template instead")
    if values["timeout_seconds"] is None:
        values["timeout_seconds"] = int(DEFAULT_TIMEOUT)
    waits = values["exec_type"] == ExecType.ASYNC
    _require_async(values, waits)
    if isinstance(values["headers_json"], dict):
        values["headers_json"] = as_json(values["headers_json"])
    param = param_of_job(values)
    try:
        prepared = PreparedCall(HttpCall.of(param))
    except (BadCall, BadTemplate) as error:
        details = dict(error.details)
        details["field"] = job_field(str(details["field"]))
        raise type(error)(**details) from None
    changes = {
        "http_method": prepared.method,
        "timeout_seconds": values["timeout_seconds"],
        "headers_json": as_json(prepared.call.headers) if prepared.call.headers else None,
        "callback_method": (values["callback_method"] or "POST") if waits else None,
        "callback_timeout_sec": int(prepared.call.callback_timeout) if waits else None,
    }
    timeout_ms = int((values["timeout_seconds"] + TASK_MARGIN) * 1000)
    return _RunTemplate(spec, param_of_job(values | changes), timeout_ms, changes)


def _task_template(spec: HandlerSpec, values: dict[str, Any]) -> _RunTemplate:
    """Each run is a task of another handler."""
    for name in CALL_FIELDS:
        if values[name] is not None:
            raise WrongUse(field=name, reason="allowed only with a target_url")
    waits = values["exec_type"] == ExecType.ASYNC
    if waits and not spec.callbacks:
        raise WrongUse(field="exec_type", reason=f"runs of {spec.type} cannot wait for a callback")
    _require_async(values, waits or spec.callbacks)
    param_schema.require(spec.schema, values["param"])
    seconds = values["timeout_seconds"] or math.ceil(spec.timeout)
    return _RunTemplate(spec, values["param"], seconds * 1000, {"timeout_seconds": seconds})


def _require_async(values: Mapping[str, Any], waits: bool) -> None:
    for name in ("callback_method", "callback_timeout_sec"):
        if values[name] is not None and not waits:
            raise WrongUse(field=name, reason="allowed only with exec_type ASYNC")


def restore_masked_headers(row: JobRow, given: dict[str, Any]) -> dict[str, Any]:
    """Put stored secrets in the place of masked ones, as in a job that was read and sent back."""
    headers = given.get("headers_json")
    if not headers or row.headers_json is None:
        return given
    if isinstance(headers, str):
        try:
            headers = msgspec.json.decode(headers)
        except msgspec.DecodeError:
            return given  # refused later, by its field
    if not isinstance(headers, dict):
        return given
    old: dict[str, Any] = msgspec.json.decode(row.headers_json)
    kept = {
        name: old[name] if value == MASK and is_secret_name(name) and name in old else value
        for name, value in headers.items()
    }
    return given | {"headers_json": kept}
