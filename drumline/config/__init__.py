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

from drumline.config import connect_clusters
from drumline.config.connect_clusters import ConnectCluster
from drumline.domain import alarms
from drumline.domain.alarms import Webhook
from drumline.errors import BadConfig

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]

FILE_NAME = "drumline.toml"
PREFIX = "DRUMLINE_"
LONGEST_SOCKET_PATH = 100
"""In bytes. The kernel allows 107 for the path of a unix socket."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every setting, with its unit. The reference page and the file that `drumline init` writes are
    made from these docstrings (drumline/config/reference.py); `# ---` lines are their headings.
    """

    # --- Node ---

    run_dir: str = "var"
    """Directory for sockets, logs, tokens and the SQLite file. A relative path in drumline.toml is
    relative to that file, one in the environment to the working directory."""
    database_url: str = ""
    """URL of the database. Empty: the SQLite file drumline.db in `run_dir`. Several nodes need
    MariaDB or MySQL: `mysql://user:password@host/database`."""
    region: Annotated[str, Meta(min_length=1, max_length=32)] = "default"
    """Region of this node. A node runs only the work of its own region."""
    node: Annotated[str, Meta(max_length=64)] = ""
    """Name of this node, different from that of every other node. Empty: the host name."""
    workers: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Worker processes on this node. 0: two per core, at most 32."""
    imports: tuple[str, ...] = ()
    """Python modules that register handlers. The working directory of `drumline up` is searched
    first."""
    shell: bool = False
    """Allow the `shell` handler, which runs commands on this node."""
    log_level: str = "info"
    """Lowest level that is logged: debug, info, warning, error or critical."""

    # --- HTTP server ---

    http_host: str = "127.0.0.1"
    """Address on which REST, the dashboard and /metrics are served, without TLS. On another address
    than the loopback, put a TLS proxy in front."""
    http_port: Annotated[int, Meta(ge=1, le=65535)] = 8127
    """Port on which REST, the dashboard and /metrics are served."""
    public_url: str = ""
    """Base URL under which the targets of HTTP jobs send their callbacks to this node. Empty:
    `http://`, `http_host` (the host name if that is a wildcard address) and `http_port`."""

    # --- Outgoing HTTP ---

    http_allow_loopback: bool = False
    """Allow HTTP jobs and webhooks to call this machine itself."""
    http_allow_private: bool = True
    """Allow HTTP jobs and webhooks to call private networks."""
    http_allowlist: tuple[str, ...] = ()
    """Hosts, networks and ports that may be called in any case, such as `api.example`, `*.example`,
    `10.1.0.0/16` or `db.example:5432`. In the environment separated by commas."""
    http_only_allowlist: bool = False
    """Refuse every target that is not in `http_allowlist`."""
    http_response_kept_bytes: Annotated[int, Meta(ge=0, le=32768)] = 16384
    """Bytes of a response body that are stored with the run of an HTTP job."""
    webhook_tries: Annotated[int, Meta(ge=1, le=50)] = 12
    """Attempts to deliver a webhook message before it is given up."""

    # --- Dispatch ---

    queue_capacity: Count = 1000
    """Tasks that the dispatcher holds in memory, ready to start. Others wait in the database."""
    scan_interval: Seconds = 1.0
    """Seconds between two scans for due tasks. New work and free capacity start a scan at once."""
    scan_ahead: Seconds = 2.0
    """Seconds before their due time at which tasks and firings are read, to start them on time."""
    bundle_max: Annotated[int, Meta(ge=1, le=1000)] = 200
    """Largest number of tasks sent to a worker in one bundle, and of results in one transaction."""
    bundle_budget: Seconds = 0.02
    """Seconds of work, estimated from earlier runs, that one bundle may hold."""
    bundles_per_worker: Annotated[int, Meta(ge=1, le=8)] = 2
    """Bundles that a worker holds at a time: the one it runs, and bundles of quick tasks behind it.
    """
    async_slots: Annotated[int, Meta(ge=1, le=4000)] = 500
    """Tasks with `async def` handlers that one worker runs at the same time."""
    sweep_partitions: Annotated[int, Meta(ge=0)] = 0
    """Partitions of sweeps that this node runs at the same time. 0: one fewer than it has workers,
    at least one."""
    runner_max_tasks: Annotated[int, Meta(ge=0)] = 0
    """Tasks after which an idle runner process is replaced by a new one. 0: never."""
    runner_max_memory_mb: Annotated[int, Meta(ge=0)] = 0
    """Resident memory in MiB above which an idle runner process is replaced by a new one. 0: never.
    """
    upkeep_interval: Seconds = 20.0
    """Seconds between two updates of the status of all unfinished batches."""
    upkeep_batches: Count = 100
    """Batches whose status is updated in one go; the next go follows after a scan."""
    stall_rounds: Count = 10
    """All workers are restarted when more than this number of consecutive checks, one every
    `upkeep_interval`, find a longer queue and no finished task."""

    # --- Jobs ---

    materialise_ahead: Seconds = 60.0
    """Seconds ahead for which the firings of cron jobs are written as tasks. A job with less than
    this left gets twice as much."""
    unstarted_recheck_interval: Seconds = 300.0
    """Seconds between two checks for runs of jobs that were due when the workers stopped and never
    started. They are treated as misfires."""
    catch_up_limit: Count = 1000
    """Largest number of missed firings of one job that catch-up mode `FULL` runs."""

    # --- Heartbeats and leases ---

    heartbeat_interval: Seconds = 2.0
    """Seconds between two heartbeats of a worker."""
    lease: Seconds = 8.0
    """Seconds after its last stored heartbeat at which a worker stops its own runs. It must be
    shorter than `dead_after`, so that no run starts again elsewhere while it still runs."""
    dead_after: Seconds = 12.0
    """Seconds without a heartbeat after which a worker is declared dead and its tasks requeued."""
    reap_interval: Seconds = 1.0
    """Seconds between two checks of the reaper for dead workers and callbacks that are overdue."""
    kill_silent_workers: bool = True
    """Kill the processes of a worker on this node before it is declared dead."""

    # --- Stopping and retrying ---

    kill_grace: Seconds = 2.0
    """Seconds that a task has to end by itself when it is stopped; then its runner is killed."""
    drain_seconds: Seconds = 30.0
    """Seconds that running tasks may go on when a worker drains; then they are requeued."""
    timeout_retries: Annotated[int, Meta(ge=0)] = 2
    """Times that a task is run again after a timeout."""
    deaths_allowed: Count = 3
    """Deaths of its worker after which a task is quarantined."""

    # --- Retention ---

    keep_finished_days: Annotated[float, Meta(gt=0)] = 30.0
    """Days that finished tasks, batches and sweeps are kept, and webhook messages."""
    keep_requests_hours: Annotated[float, Meta(gt=0)] = 24.0
    """Hours that request ids are kept. A request repeated within them is not executed twice."""
    keep_audit_days: Annotated[float, Meta(gt=0)] = 90.0
    """Days that entries of the audit trail are kept."""

    # --- Webhooks and Connect clusters ---

    webhooks: tuple[Webhook, ...] = ()
    """Receivers of signed messages about finished batches, failed jobs, quarantined tasks and
    stopped sweeps. `secret_env` names the environment variable with the secret.

    [[webhooks]]
    name = "ops"
    url = "https://ops.example/drumline"
    secret_env = "OPS_SECRET"
    """
    connect: tuple[ConnectCluster, ...] = ()
    """Kafka Connect clusters for the `cdc` handlers.

    [[connect]]
    name = "eu-1"
    url = "http://connect.example:8083"
    """

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
        """The URL under which the targets of HTTP jobs reach this node's gateway."""
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
    def sweep_partition_limit(self) -> int:
        """Partitions that this node runs at a time; the default leaves one worker to other work."""
        return self.sweep_partitions or max(1, self.worker_count - 1)

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
    """Read the settings; `BadConfig` names the one that is wrong."""
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
        # A relative path in the file is relative to the file, not to the working directory.
        if "run_dir" in values:
            values["run_dir"] = str(path.parent / str(values["run_dir"]))
    elif named:
        raise BadConfig(reason=f"{PREFIX}CONFIG names {named}, which does not exist")
    for name in Settings.__struct_fields__:
        text = environment.get(PREFIX + name.upper())
        if text is not None:
            values[name] = _from_text(name, text)
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise BadConfig(reason=str(error)) from None
    connect_clusters.check(settings.connect)
    alarms.check_unique_names(settings.webhooks)
    if settings.lease >= settings.dead_after:
        raise BadConfig(
            reason=f"lease ({settings.lease} s) must be shorter than dead_after "
            f"({settings.dead_after} s), or a run could start again while it still runs"
        )
    return settings


def as_environment(settings: Settings) -> dict[str, str]:
    """The settings as environment variables, so that child processes have the same ones."""
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
