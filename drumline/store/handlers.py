"""What runners can run, as they announced it: submissions are checked against this."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import select

from drumline.domain.policy import HandlerSpec
from drumline.domain.sweep import HOOKS, PARTS
from drumline.errors import AmbiguousHandler, UnknownHandler, WrongUse
from drumline.store.tables import handler
from drumline.store.tx import Tx

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(HandlerSpec).decode


def announce(tx: Tx, region: str, manifest: Sequence[HandlerSpec]) -> None:
    """Write a runner's manifest; later words replace earlier ones."""
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


def known(tx: Tx, region: str) -> list[HandlerSpec]:
    rows = tx.execute(
        select(handler.c.spec)
        .where(handler.c.region == region)
        .order_by(handler.c.target_type, handler.c.type)
    )
    return [_decode(spec) for (spec,) in rows]


def visible(tx: Tx, region: str) -> list[HandlerSpec]:
    """Those that can be named: the hooks of sweeps are nobody's to call."""
    return [spec for spec in known(tx, region) if spec.target_type != HOOKS]


def by_key(tx: Tx, region: str) -> dict[str, HandlerSpec]:
    return {spec.key: spec for spec in known(tx, region)}


def find(tx: Tx, region: str, type: str, target_type: str | None) -> HandlerSpec:
    """The handler of a submission. Without a target type, the batch type must be unambiguous."""
    every = known(tx, region)
    specs = [spec for spec in every if spec.target_type not in (PARTS, HOOKS)]
    fitting = [s for s in specs if s.type == type and target_type in (None, s.target_type)]
    if not fitting and any(spec.type == type for spec in every if spec.sweep is not None):
        raise WrongUse(reason=f"{type!r} handles sweeps: use `drumline sweep create`.")
    if len(fitting) > 1:
        served = ", ".join(spec.target_type for spec in fitting)
        raise AmbiguousHandler(type=type, known=served)
    if not fitting:
        raise UnknownHandler(
            type=type,
            target_type=target_type or "any",
            known=", ".join(sorted({s.type for s in specs})) or "none yet",
        )
    return fitting[0]


def find_sweep(tx: Tx, region: str, type: str) -> HandlerSpec:
    """The handler of a sweep."""
    specs = {spec.type: spec for spec in known(tx, region) if spec.sweep is not None}
    if type not in specs:
        served = ", ".join(sorted(specs)) or "none yet"
        raise WrongUse(reason=f"type: no runner handles sweeps of type {type!r}. Known: {served}.")
    return specs[type]
