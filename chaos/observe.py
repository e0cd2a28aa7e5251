"""Reads a node from outside: samples while it runs, and the snapshot at the end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import msgspec
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from chaos.history import FinalTask, NodeLogLine, Recorder, Snapshot, Waiting
from chaos.laws import FINISHED
from drumline.client.control import Control
from drumline.errors import DrumlineError
from tests.stack import Stack

SAMPLE_SECONDS = 0.5
NOTED_ACTIONS = frozenset(("keeper_dead",))


class Observer:
    """Reads the database directly, and asks the gateway for its workers."""

    def __init__(
        self, stack: Stack, database_url: str, recorder: Recorder, unserved: Collection[str]
    ) -> None:
        self.stack = stack
        self.recorder = recorder
        self.unserved = unserved
        self.engine = create_engine(database_url)

    def sample(self, stop: threading.Event) -> None:
        """Record free workers and waiting tasks until stopped."""
        control = Control(f"ipc://{self.stack.run_path / 'control.sock'}", 2.0, actor="chaos")
        due = text(
            "SELECT type, COUNT(*) FROM task WHERE owner = 0 AND due_at <= :now"
            " AND status IN ('pending', 'retry_pending', 'rollback_pending') GROUP BY type"
        )
        while not stop.wait(SAMPLE_SECONDS):
            with suppress(DrumlineError, SQLAlchemyError):
                queue = control.call("queue.show", {})
                rows = self._query(due, now=time.time_ns() // 1000)
                waiting = {type_: int(n) for type_, n in rows if type_ not in self.unserved}
                self.recorder.write(
                    Waiting(at=time.monotonic(), free_workers=queue["free_workers"], due=waiting)
                )
        control.close()

    def unfinished(self) -> int:
        """Tasks that are not finished; -1 if the database does not answer."""
        states = ", ".join(f"'{state}'" for state in sorted(FINISHED))
        query = text(f"SELECT COUNT(*) FROM task WHERE status NOT IN ({states})")  # noqa: S608
        try:
            return int(self._query(query)[0][0])
        except SQLAlchemyError:
            return -1

    def snapshot(self) -> None:
        """Record the final state, and the log lines that the checker needs."""
        tasks = text(
            "SELECT id, type, status, cause, deaths, batch_id, job_id, scheduled_at FROM task"
        )
        limits = text("SELECT id, max_concurrency FROM job WHERE max_concurrency > 0")
        sweeps = text("SELECT id, total FROM sweep WHERE state = 'finished'")
        self.recorder.write(
            Snapshot(
                at=time.monotonic(),
                tasks=tuple(self._final(FinalTask(*row)) for row in self._query(tasks)),
                wrong_counters=self._wrong_counters(),
                finished_sweeps=dict(tuple(row) for row in self._query(sweeps)),
                concurrency_limits=dict(tuple(row) for row in self._query(limits)),
            )
        )
        pids = {row[0]: int(row[1]) for row in self._query(text("SELECT id, pid FROM keeper"))}
        for file in sorted((self.stack.run_path / "log").glob("*.log")):
            for line in file.read_text(errors="replace").splitlines():
                with suppress(ValueError):
                    self._note(file.stem, json.loads(line), pids)

    def _final(self, task: FinalTask) -> FinalTask:
        if task.status in FINISHED:
            return task
        shown = self.stack.call("task.show", task_id=task.id)
        query = text(
            "SELECT owner, version, priority, due_at, attempt, fence FROM task WHERE id = :id"
        )
        (row,) = self._query(query, id=task.id)
        why = f"{shown['why']} ({', '.join(f'{k} {v}' for k, v in row._mapping.items())})"
        return msgspec.structs.replace(task, why=why)

    def _note(self, process: str, line: dict[str, Any], pids: dict[int, int]) -> None:
        if line.get("action") in NOTED_ACTIONS:
            pid = pids.get(line.get("keeper", 0))
            fields = {name: str(value) for name, value in line.items()}
            self.recorder.write(
                NodeLogLine(
                    at=time.monotonic(), action=line["action"], process=process, pid=pid,
                    fields=fields,
                )
            )  # fmt: skip

    def _wrong_counters(self) -> dict[int, str]:
        """Batches whose counters differ from their tasks, by Drumline's own check."""
        done = self.stack.run("db", "check", "--json", check=False)
        wrong = json.loads(done.stdout)["wrong"]
        return {found["batch_id"]: str(found["counters"]) for found in wrong}

    def _query(self, query: Any, **values: Any) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(query, values))

    def close(self) -> None:
        self.engine.dispose()
