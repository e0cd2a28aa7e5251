"""The handlers that runners have announced. Submissions are checked against them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import bindparam, select

from drumline.domain.policy import HandlerSpec
from drumline.domain.sweeps.definition import HOOK_TARGET_TYPE, PARTITION_TARGET_TYPE
from drumline.errors import AmbiguousHandler, UnknownHandler, WrongUse
from drumline.store.tables import handler
from drumline.store.tx import Tx

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(HandlerSpec).decode


def announce(tx: Tx, region: str, manifest: Sequence[HandlerSpec]) -> None:
    """Write a runner's manifest. It replaces earlier rows of the same handlers."""
    rows = [
        {
            "region": region,
            "target_type": spec.target_type,
            "type": spec.type,
            "spec": _encode(spec),
            "updated_at": tx.now,
        }
        for spec in manifest
    ]
    if rows:
        tx.execute(tx.dialect.upsert(handler), rows)


_KNOWN = (
    select(handler.c.spec)
    .where(handler.c.region == bindparam("region"))
    .order_by(handler.c.target_type, handler.c.type)
)
_OF_TYPE = _KNOWN.where(handler.c.type == bindparam("type"))


def known(tx: Tx, region: str, type: str | None = None) -> list[HandlerSpec]:
    """All handlers of a region, or those of one type."""
    statement = _KNOWN if type is None else _OF_TYPE
    return [_decode(spec) for (spec,) in tx.execute(statement, {"region": region, "type": type})]


def visible(tx: Tx, region: str) -> list[HandlerSpec]:
    """The handlers that users can name: all but the hooks of sweeps."""
    return [spec for spec in known(tx, region) if spec.target_type != HOOK_TARGET_TYPE]


def by_key(tx: Tx, region: str) -> dict[str, HandlerSpec]:
    return {spec.key: spec for spec in known(tx, region)}


def find(tx: Tx, region: str, type: str, target_type: str | None) -> HandlerSpec:
    """The handler of a submission. Without a target type, the batch type must be unambiguous."""
    of_type = known(tx, region, type)
    fitting = [s for s in of_type if not _is_internal(s) and target_type in (None, s.target_type)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        served = ", ".join(spec.target_type for spec in fitting)
        raise AmbiguousHandler(type=type, known=served)
    if any(spec.sweep is not None for spec in of_type):
        raise WrongUse(reason=f"{type!r} handles sweeps: use `drumline sweep create`.")
    types = {spec.type for spec in known(tx, region) if not _is_internal(spec)}
    raise UnknownHandler(
        type=type,
        target_type=target_type or "any",
        known=", ".join(sorted(types)) or "none yet",
    )


def _is_internal(spec: HandlerSpec) -> bool:
    """Whether this is the partition handler or the hook handler of a sweep."""
    return spec.target_type in (PARTITION_TARGET_TYPE, HOOK_TARGET_TYPE)


def find_sweep(tx: Tx, region: str, type: str) -> HandlerSpec:
    """The handler of a sweep."""
    specs = {spec.type: spec for spec in known(tx, region) if spec.sweep is not None}
    if type not in specs:
        served = ", ".join(sorted(specs)) or "none yet"
        raise WrongUse(
            field="type", reason=f"no runner handles sweeps of type {type!r}. Known: {served}."
        )
    return specs[type]
