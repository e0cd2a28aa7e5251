"""Mutations: weaknesses put into a node's processes, each of which the checker must find.

The product has no switch for them. `sitecustomize.py` in `mutated/` is first on the node's
PYTHONPATH and changes the product's modules right after they are imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "CHAOS_MUTATION"
FOLDER = Path(__file__).parent / "mutated"

Patch = Callable[[Any], None]


def _compare_only_ids(runs: Any) -> None:
    """Acquire and release change a row whatever its owner, fence, version and state are."""
    from sqlalchemy import literal_column, or_

    always = literal_column("1") == 1
    for name in ("_ACQUIRE", "_END", "_WAIT", "_GIVE_BACK", "_RELEASE", "_FINISH"):
        statement = getattr(runs, name)
        by_id, *others = statement._where_criteria
        weakened = statement._generate()
        # The parameters of the comparisons must stay: an unused one is refused.
        weakened._where_criteria = (by_id, *(or_(other, always) for other in others))
        setattr(runs, name, weakened)


def _assign_known_tasks(dispatcher: Any) -> None:
    """The dispatcher queues a task although a worker holds it."""

    def enqueue(self: Any, tasks: Sequence[Any]) -> None:
        for task in tasks:
            if self.is_paused(task.key) or not self.queue.add(task):
                self.removed.append(task.id)

    dispatcher.Dispatcher.enqueue = enqueue


def _accept_repeated_bundles(credit: Any) -> None:
    """A worker accepts a bundle that it has received before."""
    accept = credit.BundleReceiver.accept

    def accept_any(self: Any, number: int) -> bool:
        accept(self, number)
        return True

    credit.BundleReceiver.accept = accept_any


def _acquire_held_tasks(keeper: Any) -> None:
    """A keeper acquires tasks that it holds already."""

    def accept_bundle(self: Any, bundle: Any) -> None:
        if self.bundles.accept(bundle.number) and not self.draining and self.id:
            manifest = self.held_tasks.manifest
            self.held_tasks.acquire([task for task in bundle.tasks if task.key in manifest])

    keeper.Keeper.accept_bundle = accept_bundle


def _clear_when_runner_ends(runner_process: Any) -> None:
    """The black box is empty when the keeper reads which tasks its dead runner had started."""
    kill = runner_process.RunnerProcess.kill

    def kill_and_clear(self: Any) -> None:
        kill(self)
        self.black_box.clear()

    runner_process.RunnerProcess.kill = kill_and_clear


def _remove_when_keeper_ends(reaper: Any) -> None:
    """The black box is gone when the reaper gives back the tasks of a dead keeper."""
    read = reaper.Reaper.read_started_tasks

    def remove_first(self: Any, keeper: Any) -> Any:
        self.black_box_path(keeper.id).unlink(missing_ok=True)
        return read(self, keeper)

    reaper.Reaper.read_started_tasks = remove_first


MUTATIONS: dict[str, dict[str, Patch]] = {
    "fencing-off": {"drumline.store.task.runs": _compare_only_ids},
    "dedupe-off": {
        "actors.dispatcher.dispatcher": _assign_known_tasks,
        "protocol.credit": _accept_repeated_bundles,
        "actors.worker.keeper": _acquire_held_tasks,
    },
    "black-box-removed-early": {
        "actors.worker.runner_process": _clear_when_runner_ends,
        "actors.reaper": _remove_when_keeper_ends,
    },
}
"""Each mutation: the modules that it changes, and how."""


def environment(name: str, python_path: str) -> dict[str, str]:
    """The variables that put a mutation into the processes of a node."""
    return {VARIABLE: name, "PYTHONPATH": f"{FOLDER}{os.pathsep}{python_path}"}


def install() -> None:
    """Change the modules of this process's mutation as soon as each is imported."""
    if patches := MUTATIONS.get(os.environ.get(VARIABLE, "")):
        sys.meta_path.insert(0, _Finder(patches))


class _Finder(MetaPathFinder):
    """Finds the modules that a mutation changes."""

    def __init__(self, patches: dict[str, Patch]) -> None:
        self.patches = patches

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name in self.patches else None
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader, self.patches[name])
        return spec


class _PatchingLoader(Loader):
    """Imports a module as usual, then changes it."""

    def __init__(self, loader: Loader, patch: Patch) -> None:
        self.loader = loader
        self.patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        self.patch(module)
