"""Settings: defaults, then `drumline.toml`, then `DRUMLINE_*` from the environment."""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from drumline.domain import alarms, clusters
from drumline.domain.alarms import Webhook
from drumline.domain.clusters import ConnectCluster
from drumline.errors import BadConfig

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]

FILE_NAME = "drumline.toml"
PREFIX = "DRUMLINE_"
LONGEST_SOCKET_PATH = 100
"""A unix socket's path is cut at about 107 bytes by the kernel; leave room for the name."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that can be set. A name in capitals behind DRUMLINE_ sets it from outside."""

    # where
    run_dir: str = "var"
    database_url: str = ""
    region: Annotated[str, Meta(min_length=1, max_length=32)] = "default"
    node: Annotated[str, Meta(max_length=64)] = ""
    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Meta(ge=1, le=65535)] = 8127
    public_url: str = ""
    http_allow_loopback: bool = False
    http_allow_private: bool = True
    http_allowlist: tuple[str, ...] = ()
    http_only_allowlist: bool = False
    webhooks: tuple[Webhook, ...] = ()
    webhook_tries: Annotated[int, Meta(ge=1, le=50)] = 12
    http_response_kept: Annotated[int, Meta(ge=0, le=32768)] = 16384
    imports: tuple[str, ...] = ()
    log_level: str = "info"

    # what handlers may reach
    connect: tuple[ConnectCluster, ...] = ()
    shell: bool = False

    # how much
    workers: Annotated[int, Meta(ge=0, le=1024)] = 0
    queue_capacity: Count = 1000
    bundle_max: Annotated[int, Meta(ge=1, le=1000)] = 200
    bundle_budget: Seconds = 0.02
    bundle_depth: Annotated[int, Meta(ge=1, le=8)] = 2
    sweeps: Annotated[int, Meta(ge=0)] = 0
    async_slots: Annotated[int, Meta(ge=1, le=4000)] = 500
    runner_tasks: Annotated[int, Meta(ge=0)] = 0
    runner_memory_mb: Annotated[int, Meta(ge=0)] = 0

    # how often
    scan_interval: Seconds = 1.0
    scan_ahead: Seconds = 2.0
    upkeep_interval: Seconds = 20.0
    upkeep_batches: Count = 100
    stall_scans: Count = 10
    beat_interval: Seconds = 2.0
    lease: Seconds = 8.0
    dead_after: Seconds = 12.0
    reap_interval: Seconds = 1.0
    migrate_step: Seconds = 60.0
    sweep_interval: Seconds = 300.0
    catch_up_bound: Count = 1000

    # how it ends
    kill_grace: Seconds = 2.0
    kill_silent: bool = True
    drain_seconds: Seconds = 30.0
    timeout_retries: Annotated[int, Meta(ge=0)] = 2
    deaths_allowed: Count = 3
    keep_finished_days: Annotated[float, Meta(gt=0)] = 30.0
    keep_requests_hours: Annotated[float, Meta(gt=0)] = 24.0
    keep_audit_days: Annotated[float, Meta(gt=0)] = 90.0

    @property
    def run_path(self) -> Path:
        return Path(self.run_dir).absolute()

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.run_path / 'drumline.db'}"

    @property
    def node_name(self) -> str:
        return self.node or socket.gethostname()

    @property
    def base_url(self) -> str:
        """How those who are to call back reach this node's gateway."""
        if self.public_url:
            return self.public_url.rstrip("/")
        everywhere = self.http_host in ("0.0.0.0", "::")  # noqa: S104  # compared, not bound
        host = socket.gethostname() if everywhere else self.http_host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.http_port}"

    def callback_url(self, task_id: int) -> str:
        return f"{self.base_url}/api/v1/callbacks/{task_id}"

    @property
    def worker_count(self) -> int:
        return self.workers or min(32, 2 * (os.cpu_count() or 1))

    @property
    def most_sweeps(self) -> int:
        """Partitions of sweeps that this node runs at a time; one worker is left for the rest."""
        return self.sweeps or max(1, self.worker_count - 1)

    def endpoint(self, name: str) -> str:
        """The address of one of this node's sockets."""
        path = self.run_path / f"{name}.sock"
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
            raise BadConfig(
                reason=f"run_dir is too long for a socket: {path} has more than "
                f"{LONGEST_SOCKET_PATH} bytes"
            )
        return f"ipc://{path}"


def load(environment: Mapping[str, str] = os.environ, file: Path | None = None) -> Settings:
    """Read the settings, or say which one is wrong."""
    named = environment.get(PREFIX + "CONFIG")
    path = file or Path(named or FILE_NAME)
    values: dict[str, object] = {}
    if path.is_file():
        try:
            values.update(tomllib.loads(path.read_text()))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadConfig(reason=f"{path}: {error}") from None
        except OSError as error:
            raise BadConfig(reason=f"{path}: {error.strerror}") from None
        # A relative place in the file means beside the file, wherever the command is called.
        if "run_dir" in values:
            values["run_dir"] = str(path.parent / str(values["run_dir"]))
    elif named:
        raise BadConfig(reason=f"{PREFIX}CONFIG names {named}, which is not there")
    for name in Settings.__struct_fields__:
        text = environment.get(PREFIX + name.upper())
        if text is not None:
            values[name] = _from_text(name, text)
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise BadConfig(reason=str(error)) from None
    clusters.check(settings.connect)
    alarms.check(settings.webhooks)
    if settings.lease >= settings.dead_after:
        raise BadConfig(
            reason=f"lease ({settings.lease} s) must be shorter than dead_after "
            f"({settings.dead_after} s), or a run could start again while it still runs"
        )
    return settings


def as_environment(settings: Settings) -> dict[str, str]:
    """The settings as the environment of a child process, so that all see the same."""
    values: dict[str, str] = {}
    for name in Settings.__struct_fields__:
        value = getattr(settings, name)
        values[PREFIX + name.upper()] = _as_text(name, value)
    values[PREFIX + "RUN_DIR"] = str(settings.run_path)
    return values


def _from_text(name: str, text: str) -> object:
    match name:
        case "imports" | "http_allowlist":
            return [part for part in text.split(",") if part]
        case "connect" | "webhooks":
            try:
                return msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                raise BadConfig(reason=f"{PREFIX}{name.upper()} is not JSON: {error}") from None
        case _:
            return text


def _as_text(name: str, value: object) -> str:
    match name:
        case "imports" | "http_allowlist":
            return ",".join(value)  # type: ignore[arg-type]  # a tuple of names
        case "connect" | "webhooks":
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)
