"""Injects faults into a running node and records what they really hit."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pymysql
import structlog
from sqlalchemy import make_url

from chaos.history import FaultInjected, FaultMissed, Recorder
from chaos.plan import PROCESSES, PlannedFault
from chaos.proxy import Proxy
from chaos.workload import Workload
from drumline.errors import DrumlineError
from drumline.node import run_dir
from tests.mariadb import MariaDB
from tests.stack import Stack

log = structlog.get_logger()

EXTRA_IMPORT = "chaos.extra_handlers"
EXTRA_TYPE = "chaos.extra"
BEARABLE = frozenset(("long-runs", "remove-handler", "lock-batches"))
"""Faults that must not slow down other work."""
RESTART_SECONDS = 6.0
"""The delay of the tasks of a removed handler: the node has restarted without it by then."""
BACKLOG = 1200
"""Tasks of a removed handler: more than the dispatcher's queue holds."""


RESET_SHARE = 0.3
"""Of the COMMITs; the others let the node get on with its work."""


class NothingHit(Exception):
    """The fault was injected and hit nothing."""


class Injector:
    """Injects one fault at a time. After each, the node is whole again, or on its way to it."""

    def __init__(
        self,
        stack: Stack,
        recorder: Recorder,
        seed: int,
        mariadb: MariaDB | None,
        database_url: str,
        workload: Workload,
        proxy: Proxy | None = None,
    ) -> None:
        self.stack = stack
        self.recorder = recorder
        self.chance = random.Random(f"faults {seed}")
        self.mariadb = mariadb
        self.database_url = database_url
        self.workload = workload
        self.proxy = proxy
        self.hits = ""
        """How often the proxy acted in the present fault."""
        self.unserved: set[str] = set()
        """Types that no worker serves at present."""

    def inject(self, fault: PlannedFault) -> None:
        began = time.monotonic()
        self.hits = ""
        pids = self._act(fault)
        self._record(
            began,
            fault.kind,
            pids,
            f"{fault.seconds:g} s{self.hits}",
            excuses=fault.kind not in BEARABLE,
        )

    def record_missed(self, fault: PlannedFault, reason: str) -> None:
        self.recorder.write(FaultMissed(at=time.monotonic(), kind=fault.kind, reason=reason))

    def _record(
        self,
        began: float,
        kind: str,
        pids: tuple[int, ...] = (),
        detail: str = "",
        excuses: bool = True,
    ) -> None:
        self.recorder.write(
            FaultInjected(
                at=began, kind=kind, until=time.monotonic(), pids=pids, detail=detail,
                excuses=excuses,
            )
        )  # fmt: skip

    def _act(self, fault: PlannedFault) -> tuple[int, ...]:
        """Inject a fault; the processes that it hit."""
        verb, _, what = fault.kind.partition("-")
        if verb == "kill" and what in PROCESSES:
            return self._signal([what], signal.SIGKILL)
        if verb == "stop" and what in PROCESSES:
            return self._suspend(what, fault.seconds)
        actions: dict[str, Callable[[float], tuple[int, ...]]] = {
            "kill-pair": lambda _: self._signal(self.chance.sample(PROCESSES, 2), signal.SIGKILL),
            "kill-node": lambda _: self._kill_node(),
            "long-runs": self._long_runs,
            "remove-handler": self._remove_handler,
            "lock-batches": self._lock_batches,
            "lock-database": self._lock_database,
            "kill-database": self._kill_database,
            "stop-database": self._stop_database,
            "cut-database": self._cut_database,
            "delay-database": self._delay_database,
            "reset-after-commit": self._reset_after_commit,
        }
        return actions[fault.kind](fault.seconds)

    # --- processes -------------------------------------------------------------------------------

    def _signal(self, kinds: Sequence[str], number: signal.Signals) -> tuple[int, ...]:
        hit = []
        for kind in kinds:
            pids = self.stack.processes().get(kind, [])
            if pids:
                pid = self.chance.choice(pids)
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                    hit.append(pid)
        if not hit:
            raise NothingHit(f"no {' or '.join(kinds)} was running")
        return tuple(hit)

    def _suspend(self, kind: str, seconds: float) -> tuple[int, ...]:
        pids = self._signal([kind], signal.SIGSTOP)
        time.sleep(seconds)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return pids

    def _kill_node(self) -> tuple[int, ...]:
        processes = run_dir.live_processes(self.stack.run_path)
        run_dir.signal_processes(processes, signal.SIGKILL)
        self.stack.up()
        return tuple(process.pid for process in processes)

    # --- workload that the node must bear --------------------------------------------------------

    def _long_runs(self, seconds: float) -> tuple[int, ...]:
        """Occupy every worker with a long run while the queue grows and no task ends."""
        workers = len(self.stack.processes().get("worker", ()))
        self.workload.set_async(False)
        self._submit("chaos.sync", workers, {"seconds": seconds}, priority=8)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._submit("chaos.sync", 5, {"seconds": 0.05}, priority=1)
            time.sleep(0.5)
        self.workload.set_async(True)
        return ()

    def _remove_handler(self, seconds: float) -> tuple[int, ...]:
        """Restart the workers without a handler that due tasks need, then with it again."""
        imports = self.stack.environment["DRUMLINE_IMPORTS"]
        self._submit(EXTRA_TYPE, BACKLOG, None, priority=7, delay=RESTART_SECONDS)
        self.unserved.add(EXTRA_TYPE)
        self._restart(",".join(name for name in imports.split(",") if name != EXTRA_IMPORT))
        time.sleep(seconds)
        self._restart(imports)
        self.unserved.clear()
        return ()

    def _restart(self, imports: str) -> None:
        began = time.monotonic()
        pids = tuple(process.pid for process in run_dir.live_processes(self.stack.run_path))
        self.stack.down()
        self.stack.environment["DRUMLINE_IMPORTS"] = imports
        self.stack.up()
        self._record(began, "restart", pids)

    def _submit(
        self, type_: str, count: int, param: Any, priority: int, delay: float = 0.0
    ) -> None:
        with suppress(DrumlineError):
            self.stack.call(
                "task.schedule_many", type=type_, params=[param] * count, priority=priority,
                delay=delay,
            )  # fmt: skip

    # --- the database ----------------------------------------------------------------------------

    def _lock_batches(self, seconds: float) -> tuple[int, ...]:
        url = make_url(self.database_url)
        connection = pymysql.connect(
            host=url.host, port=url.port or 3306, user=url.username, database=url.database
        )
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM batch ORDER BY id DESC LIMIT 50 FOR UPDATE")
            time.sleep(seconds)
        return ()

    def _lock_database(self, seconds: float) -> tuple[int, ...]:
        path = make_url(self.database_url).database
        connection = sqlite3.connect(str(path), timeout=30.0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")
        finally:
            connection.close()
        return ()

    def _kill_database(self, seconds: float) -> tuple[int, ...]:
        assert self.mariadb is not None
        self.mariadb.kill()
        time.sleep(seconds)
        self.mariadb.start()
        return ()

    def _stop_database(self, seconds: float) -> tuple[int, ...]:
        assert self.mariadb is not None and self.mariadb.pid is not None
        os.kill(self.mariadb.pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(self.mariadb.pid, signal.SIGCONT)
        return ()

    def _cut_database(self, seconds: float) -> tuple[int, ...]:
        """Cut the node's connections; new ones are refused until the end of the fault."""
        assert self.proxy is not None
        before = self.proxy.cuts
        self.proxy.refuses = True
        self.proxy.cut()
        time.sleep(seconds)
        self.proxy.refuses = False
        return self._count_hits(
            self.proxy.cuts - before, "connections cut", "the node had no connection"
        )

    def _delay_database(self, seconds: float) -> tuple[int, ...]:
        assert self.proxy is not None
        before = self.proxy.delayed
        self.proxy.delays = True
        time.sleep(seconds)
        self.proxy.delays = False
        return self._count_hits(self.proxy.delayed - before, "packets delayed", "no packet came")

    def _reset_after_commit(self, seconds: float) -> tuple[int, ...]:
        """Reset connections after a share of the COMMITs, so that their outcome is unknown."""
        assert self.proxy is not None
        before = self.proxy.resets
        self.proxy.reset_share = RESET_SHARE
        time.sleep(seconds)
        self.proxy.reset_share = 0.0
        return self._count_hits(self.proxy.resets - before, "connections reset", "no COMMIT came")

    def _count_hits(self, hits: int, what: str, otherwise: str) -> tuple[int, ...]:
        if hits == 0:
            raise NothingHit(otherwise)
        self.hits = f", {hits} {what}"
        return ()


def run_plan(injector: Injector, plan: list[PlannedFault], stop: threading.Event) -> None:
    """Inject the planned faults at their times, and record those that were not injected."""
    began = time.monotonic()
    for number, fault in enumerate(plan):
        if stop.wait(max(0.0, fault.at - (time.monotonic() - began))):
            for missed in plan[number:]:
                injector.record_missed(missed, "the workload had ended")
            return
        try:
            injector.inject(fault)
        except Exception as error:
            log.error(
                "Fault not injected", action="fault_failed", kind=fault.kind, error=str(error)
            )
            injector.record_missed(fault, str(error) or type(error).__name__)
