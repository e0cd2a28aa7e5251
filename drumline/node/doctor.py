"""Checks of a set-up, for `drumline doctor`. No check changes anything."""

from __future__ import annotations

import difflib
import importlib.util
import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from drumline.config import FILE_NAME, PREFIX, Settings
from drumline.domain import alarms
from drumline.errors import DrumlineError, NotFound
from drumline.handlers import import_check
from drumline.node import run_dir, supervisor
from drumline.web import listener

OK, WARN, FAIL = "ok", "warn", "fail"
MB = 2**20
SUPERVISED_FILES = 1024
"""The minimum that supervisord requires."""
WORKER_MB = 85
OTHERS_MB = 250
OTHER_NAMES = ("CONFIG", "TEST_MARIADB_URL")


class Finding(msgspec.Struct, frozen=True):
    """The result of one check, and what to do about it."""

    check: str
    level: str
    text: str
    advice: str = ""


Findings = Iterator[Finding]


def examine(settings: Settings) -> Findings:
    """All checks, in the order in which a start needs what they check."""
    from drumline.node import doctor_database

    checks: tuple[tuple[str, Callable[[Settings], Findings]], ...] = (
        ("python", python),
        ("config", config),
        ("run_dir", check_run_dir),
        ("disk", disk),
        ("memory", memory),
        ("files", open_files),
        ("supervisord", supervised),
        ("http", http),
        ("database", doctor_database.examine),
        ("webhooks", webhooks),
        ("handlers", handlers),
    )
    for name, check in checks:
        try:
            yield from check(settings)
        except DrumlineError as error:
            yield Finding(name, FAIL, str(error))
        except OSError as error:
            yield Finding(name, FAIL, f"{error.filename or 'the system'}: {error.strerror}")


def python(settings: Settings) -> Findings:
    yield Finding("python", OK, f"{platform.python_version()} in {sys.prefix}")


def config(settings: Settings) -> Findings:
    file = Path(os.environ.get(PREFIX + "CONFIG") or FILE_NAME)
    yield Finding("config", OK, str(file.absolute()) if file.is_file() else "defaults, no file")
    for name in unknown_variables(os.environ):
        known = [PREFIX + field.upper() for field in Settings.__struct_fields__]
        close = difflib.get_close_matches(name, known, n=1)
        advice = f"did you mean {close[0]}?" if close else "remove it"
        yield Finding("config", WARN, f"{name} is set, but there is no such setting", advice)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like settings but are none, and so have no effect."""
    known = {PREFIX + name.upper() for name in (*Settings.__struct_fields__, *OTHER_NAMES)}
    return sorted(n for n in environment if n.startswith(PREFIX) and n not in known)


def check_run_dir(settings: Settings) -> Findings:
    path = settings.run_path
    settings.endpoint("dispatcher")
    if not path.exists():
        parent = _existing(path)
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding("run_dir", OK, f"{path} will be made at the first start")
        else:
            yield Finding("run_dir", FAIL, f"{path} cannot be created in {parent}", "set run_dir")
    elif not os.access(path, os.W_OK | os.X_OK):
        yield Finding("run_dir", FAIL, f"{path} cannot be written to", "set run_dir")
    elif (problem := run_dir.permission_problem(path)) and not run_dir.can_restrict(path):
        yield Finding("run_dir", FAIL, problem)
    else:
        yield Finding("run_dir", OK, str(path))


def disk(settings: Settings) -> Findings:
    free = shutil.disk_usage(_existing(settings.run_path)).free
    level = FAIL if free < 100 * MB else WARN if free < 1024 * MB else OK
    advice = "" if level == OK else "free some space: logs and, on SQLite, the database are here"
    yield Finding("disk", level, f"{free / MB:,.0f} MB free", advice)


def memory(settings: Settings) -> Findings:
    needed = OTHERS_MB + WORKER_MB * settings.worker_count
    words = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(words["MemAvailable"].split()[0]) / 1024
    running = bool(run_dir.live_processes(settings.run_path))
    level = OK if running or free > needed else WARN
    text = f"{free:,.0f} MB free, {settings.worker_count} workers need about {needed:,} MB in all"
    yield Finding("memory", level, text, "" if level == OK else "reduce `workers`")


def open_files(settings: Settings) -> Findings:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(SUPERVISED_FILES, 10 * settings.worker_count)
    if hard != resource.RLIM_INFINITY and hard < needed:
        advice = f"raise it to {needed} or more (ulimit -Hn, LimitNOFILE=)"
        yield Finding("files", FAIL, f"a process may open at most {hard} files", advice)
    else:
        yield Finding("files", OK, f"a process may open {soft} files")


def supervised(settings: Settings) -> Findings:
    if importlib.util.find_spec("supervisor") is None:
        yield Finding("supervisord", FAIL, "not installed", "pip install supervisor")
        return
    supervisor.environment(settings)
    live = run_dir.live_processes(settings.run_path)
    state = f"{len(live)} processes run" if live else "no process runs"
    yield Finding("supervisord", OK, f"{supervisor.config_file()}; {state}")
    if live and not any(one.kind == "supervisord" for one in live):
        advice = "`drumline down` stops them"
        yield Finding("supervisord", FAIL, "processes run that it does not control", advice)


def http(settings: Settings) -> Findings:
    where = f"{settings.http_host}:{settings.http_port}"
    if run_dir.live_processes(settings.run_path, "gateway"):
        yield Finding("http", OK, f"the running gateway listens on {where}")
    else:
        listener.open_listener(settings).close()
        yield Finding("http", OK, f"{where} is free")
    if not listener.is_local(settings):
        advice = "put a TLS proxy in front of it: the API token is sent unencrypted"
        yield Finding(
            "http", WARN, f"{settings.http_host} can be reached from other machines", advice
        )


def webhooks(settings: Settings) -> Findings:
    for hook in settings.webhooks:
        alarms.webhook_secret(hook, os.environ)
        yield Finding("webhooks", OK, f"{hook.name}: {', '.join(hook.events)}")
    if not settings.webhooks:
        return
    from drumline.store import schema
    from drumline.store.access import opened
    from drumline.store.admin import alarms as outbox

    with suppress(NotFound), opened(settings.database, must_exist=True) as database:
        if schema.current(database) == schema.HEAD:
            lost = database.read(lambda tx: outbox.count_given_up(tx, settings.region))
            for name, n in lost.items():
                advice = "the receiver did not accept them; the gateway's log has the reasons"
                yield Finding("webhooks", WARN, f"{n} alarms for {name} were given up", advice)


def handlers(settings: Settings) -> Findings:
    found = import_check.read_import_report(import_check.start_import_check(settings.imports))
    for problem in found.problems:
        yield Finding(
            "handlers",
            FAIL,
            import_check.last_line(problem),
            "`imports` lists the modules that are loaded",
        )
    if not found.problems:
        yield Finding("handlers", OK, f"the handlers of {len(found.handlers)} types were imported")


def _existing(path: Path) -> Path:
    """The nearest parent directory that exists."""
    while not path.exists():
        path = path.parent
    return path
