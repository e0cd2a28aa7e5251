"""What may be wrong with a set-up, looked at before it hurts. Nothing here changes anything."""

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
from drumline.web import listen

OK, WARN, FAIL = "ok", "warn", "fail"
MB = 2**20
SUPERVISED_FILES = 1024
"""What supervisord insists on."""
WORKER_MB = 85
OTHERS_MB = 250
OTHER_NAMES = ("CONFIG", "TEST_MARIADB_URL")


class Finding(msgspec.Struct, frozen=True):
    """One line: what was looked at, how it is, and what to do about it."""

    check: str
    level: str
    text: str
    advice: str = ""


Findings = Iterator[Finding]


def examine(settings: Settings) -> Findings:
    """Everything, in the order in which a start would stumble over it."""
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
    for name, look in checks:
        try:
            yield from look(settings)
        except DrumlineError as error:
            yield Finding(name, FAIL, str(error))
        except OSError as error:
            yield Finding(name, FAIL, f"{error.filename or 'the system'}: {error.strerror}")


def python(settings: Settings) -> Findings:
    yield Finding("python", OK, f"{platform.python_version()} in {sys.prefix}")


def config(settings: Settings) -> Findings:
    file = Path(os.environ.get(PREFIX + "CONFIG") or FILE_NAME)
    yield Finding("config", OK, str(file.absolute()) if file.is_file() else "defaults, no file")
    for name in misspelt(os.environ):
        known = [PREFIX + field.upper() for field in Settings.__struct_fields__]
        close = difflib.get_close_matches(name, known, n=1)
        advice = f"did you mean {close[0]}?" if close else "remove it"
        yield Finding("config", WARN, f"{name} is set and is no setting", advice)


def misspelt(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like settings and are none: they have no effect, silently."""
    known = {PREFIX + name.upper() for name in (*Settings.__struct_fields__, *OTHER_NAMES)}
    return sorted(n for n in environment if n.startswith(PREFIX) and n not in known)


def check_run_dir(settings: Settings) -> Findings:
    path = settings.run_path
    settings.endpoint("dispatcher")
    if not path.exists():
        above = _existing(path)
        if os.access(above, os.W_OK | os.X_OK):
            yield Finding("run_dir", OK, f"{path} is made at the first start")
        else:
            yield Finding("run_dir", FAIL, f"{path} cannot be made in {above}", "set run_dir")
    elif not os.access(path, os.W_OK | os.X_OK):
        yield Finding("run_dir", FAIL, f"{path} cannot be written to", "set run_dir")
    elif (problem := run_dir.open_to_others(path)) and not run_dir.can_be_closed(path):
        yield Finding("run_dir", FAIL, problem)
    else:
        yield Finding("run_dir", OK, str(path))


def disk(settings: Settings) -> Findings:
    free = shutil.disk_usage(_existing(settings.run_path)).free
    level = FAIL if free < 100 * MB else WARN if free < 1024 * MB else OK
    advice = "" if level == OK else "make room: logs and, on SQLite, the database grow here"
    yield Finding("disk", level, f"{free / MB:,.0f} MB free", advice)


def memory(settings: Settings) -> Findings:
    needed = OTHERS_MB + WORKER_MB * settings.worker_count
    words = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(words["MemAvailable"].split()[0]) / 1024
    running = bool(run_dir.living(settings.run_path))
    level = OK if running or free > needed else WARN
    text = f"{free:,.0f} MB free, {settings.worker_count} workers take about {needed:,} MB in all"
    yield Finding("memory", level, text, "" if level == OK else "set fewer workers")


def open_files(settings: Settings) -> Findings:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(SUPERVISED_FILES, 10 * settings.worker_count)
    if hard != resource.RLIM_INFINITY and hard < needed:
        advice = f"raise it to {needed} or more (ulimit -Hn, LimitNOFILE=)"
        yield Finding("files", FAIL, f"at most {hard} files may be open", advice)
    else:
        yield Finding("files", OK, f"{soft} files may be open")


def supervised(settings: Settings) -> Findings:
    if importlib.util.find_spec("supervisor") is None:
        yield Finding("supervisord", FAIL, "it is not installed", "pip install supervisor")
        return
    supervisor.environment(settings)
    alive = run_dir.living(settings.run_path)
    state = f"{len(alive)} processes run" if alive else "nothing runs"
    yield Finding("supervisord", OK, f"{supervisor.config_file()}; {state}")
    if alive and not any(one.kind == "supervisord" for one in alive):
        advice = "`drumline down` ends them"
        yield Finding("supervisord", FAIL, "processes run that it does not look after", advice)


def http(settings: Settings) -> Findings:
    where = f"{settings.http_host}:{settings.http_port}"
    if run_dir.living(settings.run_path, "gateway"):
        yield Finding("http", OK, f"the gateway that runs has {where}")
    else:
        listen.bound(settings).close()
        yield Finding("http", OK, f"{where} is free")
    if not listen.is_local(settings):
        advice = "put TLS in front of it: the API token travels as it is"
        yield Finding("http", WARN, f"{settings.http_host} can be reached from elsewhere", advice)


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
            lost = database.read(lambda tx: outbox.given_up(tx, settings.region))
            for name, n in lost.items():
                advice = "its receiver did not take them; the gateway's log says why"
                yield Finding("webhooks", WARN, f"{n} alarms for {name} were given up", advice)


def handlers(settings: Settings) -> Findings:
    found = import_check.found(import_check.in_background(settings.imports))
    for problem in found.problems:
        yield Finding(
            "handlers", FAIL, import_check.last_line(problem), "`imports` names what is loaded"
        )
    if not found.problems:
        yield Finding("handlers", OK, f"{len(found.handlers)} types can be run")


def _existing(path: Path) -> Path:
    """The nearest directory above that exists."""
    while not path.exists():
        path = path.parent
    return path
