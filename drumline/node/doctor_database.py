"""Checks of the database: reachable, at this schema version, durable, and with the right time."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import text

from drumline.config import Settings
from drumline.masking import mask_url
from drumline.node.doctor import FAIL, MB, OK, WARN, Finding, Findings
from drumline.store import schema
from drumline.store.access import file_of, opened
from drumline.store.database import Database

NETWORKS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs"})
DOUBTFUL = frozenset({"9p", "virtiofs", "vboxsf", "prl_fs", "fuse"})
WAL_FIXED = (3, 51, 3)
OLDEST_SQLITE = (3, 35, 0)
"""The first with RETURNING, which the queries need."""
SMALL_PACKET, TINY_PACKET = 16 * MB, 4 * MB
LATE, VERY_LATE = 1.0, 30.0
CONNECTIONS_EACH = 3


def examine(settings: Settings) -> Findings:
    file = file_of(settings.database)
    if file is not None:
        yield from sqlite(file)
        if not file.exists():
            yield Finding("database", OK, f"{file} will be made at the first start")
            return
    with opened(settings.database) as database:
        database.read(lambda tx: tx.execute(text("SELECT 1")), tries=1)
        yield Finding("database", OK, f"{mask_url(settings.database)} answers")
        yield at_version(schema.current(database))
        if file is None:
            yield from server(database, settings)


def at_version(found: str | None) -> Finding:
    if found == schema.HEAD:
        return Finding("schema", OK, f"at {found}")
    if found is None:
        return Finding("schema", WARN, "there is none yet", "`drumline up` creates it")
    if found < schema.HEAD:
        return Finding("schema", WARN, f"at {found}", "`drumline up` upgrades it")
    return Finding("schema", FAIL, f"at {found}, newer than this version", "upgrade Drumline")


# --- SQLite ----------------------------------------------------------------------------------


def sqlite(file: Path) -> Findings:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        yield Finding("sqlite", FAIL, f"{version} is too old", "3.35 or newer is needed")
    elif sqlite3.sqlite_version_info < WAL_FIXED:
        note = (
            f"{version}: before 3.51.3 two processes that checkpoint can damage the file, so only "
            "the reaper does; let no other program write to it"
        )
        yield Finding("sqlite", OK, note)
    else:
        yield Finding("sqlite", OK, version)
    kind = filesystem(file)
    advice = "put it on a local disk: locks and shared memory do not work over a network"
    if kind in NETWORKS:
        yield Finding("sqlite", FAIL, f"{file} is on {kind}, over the network", advice)
    elif kind.partition(".")[0] in DOUBTFUL:
        yield Finding("sqlite", WARN, f"{file} is on {kind}, perhaps over a network", advice)
    else:
        yield Finding("sqlite", OK, f"{file} is on {kind}")


def filesystem(file: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The kind of file system that a path is on: the longest mount point above it."""
    path = file.resolve()
    best, kind = -1, "an unknown file system"
    for line in mounts.read_text().splitlines():
        head, _, tail = line.partition(" - ")
        point = Path(head.split()[4].encode().decode("unicode_escape"))
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), tail.split()[0]
    return kind


# --- MariaDB and MySQL -----------------------------------------------------------------------


def server(database: Database, settings: Settings) -> Findings:
    variables = database.read(
        lambda tx: {row[0]: row[1] for row in tx.execute(text("SHOW VARIABLES"))}
    )
    yield Finding("server", OK, variables["version"])
    yield from durable(variables)
    isolation = variables.get("transaction_isolation") or variables.get("tx_isolation")
    if isolation == "READ-COMMITTED":
        yield Finding("isolation", OK, "READ COMMITTED in sessions of Drumline")
    else:
        advice = "allow the account to set the isolation level of its sessions"
        yield Finding("isolation", FAIL, f"{isolation} in sessions of Drumline", advice)
    yield packet(int(variables["max_allowed_packet"]))
    zone = variables["time_zone"]
    level = OK if zone == "+00:00" else FAIL
    yield Finding(
        "time_zone",
        level,
        f"{zone} in sessions of Drumline",
        "" if level == OK else "it must be UTC",
    )
    needed = CONNECTIONS_EACH * (settings.worker_count + 5)
    most = int(variables["max_connections"])
    advice = "" if most >= needed else f"set max_connections to {needed} or more"
    yield Finding("connections", WARN if advice else OK, f"at most {most} connections", advice)
    yield clock(database)


def durable(variables: dict[str, str]) -> Iterator[Finding]:
    names = ["innodb_flush_log_at_trx_commit"]
    if variables.get("log_bin") == "ON":
        names.append("sync_binlog")
    for name in names:
        value = variables.get(name, "?")
        advice = (
            ""
            if value == "1"
            else "set it to 1: otherwise a power failure can lose committed transactions"
        )
        yield Finding("durability", WARN if advice else OK, f"{name} = {value}", advice)


def packet(size: int) -> Finding:
    level = FAIL if size < TINY_PACKET else WARN if size < SMALL_PACKET else OK
    advice = "" if level == OK else "set max_allowed_packet to 16M: large writes are refused"
    return Finding("packet", level, f"max_allowed_packet = {size / MB:g} MB", advice)


def clock(database: Database) -> Finding:
    """Due times use the database's clock, people the clock of this machine."""
    with database.engine.connect() as connection:
        before = time.time()
        theirs = database.dialect.clock(connection)
        after = time.time()
    offset = 0.0 if theirs is None else theirs / 1e6 - (before + after) / 2
    level = FAIL if abs(offset) > VERY_LATE else WARN if abs(offset) > LATE else OK
    advice = "" if level == OK else "synchronise both clocks with NTP"
    return Finding("clock", level, f"the database is {offset:+.3f} s from this machine", advice)
