"""Registration of handlers: what is registered, refused, and found after a failed import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from drumline import Change, Handler, Task
from drumline.domain.policy import HandlerSpec, OnDeath, Retry
from drumline.errors import WrongUse
from drumline.handlers import registry as module
from drumline.handlers.registry import Registry, handler, import_handlers, register


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An empty registry for this test."""
    fresh = Registry()
    monkeypatch.setattr(module, "registry", fresh)
    return fresh


class Switch(Handler):
    """Switches a target to another zone."""

    types = ("switch.start", "switch.stop")
    timeouts: ClassVar = {"switch.stop": 90}
    retry = Retry(retries=2)

    def build_param(self, task: Task) -> Change:
        return Change("before", "after")

    def process(self, task: Task) -> None: ...

    def rollback(self, task: Task) -> None: ...


# --- what is written into the manifest -------------------------------------------------------


def test_a_function_serves_the_target_type_and_the_type_of_its_name(fresh: Registry) -> None:
    @handler("mail.send", timeout=5, retries=3, delay=0.5, on_death="fail")
    def send(task: Task) -> None:
        """Sends a mail.

        And more about it.
        """

    assert fresh.manifest() == [
        HandlerSpec(
            target_type="mail.send",
            type="mail.send",
            timeout=5.0,
            retry=Retry(retries=3, delay=0.5),
            on_death=OnDeath.FAIL,
            origin=f"{__name__}:{send.__qualname__}",
            doc="Sends a mail.",
        )
    ]
    assert fresh["mail.send/mail.send"].handler.process is send


def test_the_decorator_returns_the_function_itself() -> None:
    def send(task: Any) -> str:
        return f"sent {task}"

    assert handler("mail.send")(send) is send
    assert send(1) == "sent 1"


def test_a_class_serves_its_types_on_the_target_type_it_is_registered_for(fresh: Registry) -> None:
    register("database", Switch)
    start, stop = fresh.manifest()
    assert (start.key, stop.key) == ("database/switch.start", "database/switch.stop")
    assert (start.timeout, stop.timeout) == (20.0, 90.0)
    assert start.retry.retries == 2
    assert (start.captures, start.rolls_back, start.is_async) == (True, True, False)
    assert start.doc == "Switches a target to another zone."


def test_one_class_can_serve_two_target_types(fresh: Registry) -> None:
    register("database", Switch)
    register("cache", Switch)
    served = {spec.target_type for spec in fresh.manifest()}
    assert served == {"cache", "database"}
    assert fresh["cache/switch.start"].handler is not fresh["database/switch.start"].handler


def test_a_well_known_type_has_its_usual_timeout(fresh: Registry) -> None:
    handler("cdc_reset_gtid")(_nothing)
    assert fresh.manifest()[0].timeout == 480.0


def test_async_functions_partials_and_classes_run_in_the_loop(fresh: Registry) -> None:
    async def send(task: Task, how: str = "") -> None: ...

    async def later(how: str, task: Task) -> None: ...

    class Async(Handler):
        types = ("t",)

        async def is_finished(self, task: Task) -> bool:
            return True

        async def process(self, task: Task) -> None: ...

    handler("a")(send)
    one = partial(later, "how")
    one.__module__, one.__qualname__ = __name__, "one"  # type: ignore[attr-defined]
    handler("b")(one)
    register("c", Async)
    assert [spec.is_async for spec in fresh.manifest()] == [True, True, True]


def test_a_param_type_becomes_a_schema_in_the_manifest(fresh: Registry) -> None:
    class Mail(msgspec.Struct):
        to: str
        copies: int = 0

    handler("mail.send", param_type=Mail)(_nothing)
    schema = fresh.manifest()[0].schema
    assert schema is not None
    assert schema["$defs"]["Mail"]["required"] == ["to"]


def test_a_module_that_is_imported_again_registers_again(fresh: Registry) -> None:
    handler("mail.send", timeout=1)(_nothing)
    handler("mail.send", timeout=2)(_nothing)
    assert [spec.timeout for spec in fresh.manifest()] == [2.0]


# --- what is refused -------------------------------------------------------------------------


def _nothing(task: Task) -> None: ...


class Bare(Handler):
    def process(self, task: Task) -> None: ...


class NoProcess(Handler):
    types = ("t",)


class Mixed(Handler):
    types = ("t",)

    async def is_finished(self, task: Task) -> bool:
        return False

    def process(self, task: Task) -> None: ...


class TwoArguments(Handler):
    types = ("t",)

    def process(self, task: Task, more: str) -> None: ...  # type: ignore[override]


class OneWord(Bare):
    types = "switch"  # type: ignore[assignment]


class NotANumber(Bare):
    types = ("t",)
    timeouts: ClassVar = {"t": float("nan")}


class NotARetry(Bare):
    types = ("t",)
    retry = 3  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: register("", Switch), ["Switch", "target_type", "''"]),
        (lambda: register("x", Bare), ["Bare", "types", "None"]),
        (lambda: register("x", OneWord), ["OneWord", "types", "'switch'"]),
        (lambda: register("x", NoProcess), ["NoProcess", "process"]),
        (lambda: register("x", Mixed), ["Mixed", "async def", "process"]),
        (lambda: register("x", TwoArguments), ["TwoArguments", "process", "one argument"]),
        (lambda: register("x", NotANumber), ["NotANumber", "timeout", "nan"]),
        (lambda: register("x", NotARetry), ["NotARetry", "retry", "3"]),
        (lambda: register("x", dict), ["dict", "{}", "drumline.Handler"]),  # type: ignore[arg-type]
        (lambda: register("x" * 129, Switch), ["Switch", "target_type", "128"]),
        (lambda: handler(_nothing), ['@handler("mail.send")']),  # type: ignore[arg-type]
        (lambda: handler("")(_nothing), ["_nothing", "target_type"]),
        (lambda: handler("m", timeout=0)(_nothing), ["_nothing", "timeout", "0"]),
        (lambda: handler("m", timeout=-1)(_nothing), ["_nothing", "timeout", "-1"]),
        (lambda: handler("m", timeout="5")(_nothing), ["timeout", "'5'"]),  # type: ignore[arg-type]
        (lambda: handler("m", timeout=1e9)(_nothing), ["timeout", "1000000000.0"]),
        (lambda: handler("m", retries=-1)(_nothing), ["_nothing", "retries", ">= 0"]),
        (lambda: handler("m", jitter=2)(_nothing), ["_nothing", "jitter", "<= 1"]),
        (lambda: handler("m", on_death="explode")(_nothing), ["on_death", "'explode'", "cancel"]),
        (lambda: handler("m", param_type=object())(_nothing), ["param_type", "JSON schema"]),
        (lambda: handler("m")(lambda: None), ["<lambda>", "one argument"]),  # type: ignore[type-var]
    ],
)
def test_the_error_names_the_handler_and_the_reason(
    fresh: Registry, wrong: Callable[[], object], words: list[str]
) -> None:
    with pytest.raises(WrongUse) as caught:
        wrong()
    for word in words:
        assert word in str(caught.value)
    assert fresh.manifest() == []


def test_a_handler_without_a_target_type_is_refused(fresh: Registry) -> None:
    with pytest.raises(WrongUse, match="here: target_type: a name must be a text"):
        fresh.add(Switch(), "here")


def test_a_second_handler_for_a_key_is_refused_and_the_first_stays(fresh: Registry) -> None:
    class Rival(Handler):
        types = ("switch.pause", "switch.stop")

        def process(self, task: Task) -> None: ...

    register("database", Switch)
    with pytest.raises(WrongUse) as caught:
        register("database", Rival)
    assert f"database/switch.stop is served by {__name__}:Switch and by" in str(caught.value)
    assert "Rival" in str(caught.value)
    assert "database/switch.pause" not in fresh, "nothing is half done"
    assert isinstance(fresh["database/switch.stop"].handler, Switch)


# --- how they are found ----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


GOOD = 'from drumline import handler\n\n@handler("{0}")\ndef run(task): ...\n'


def test_modules_that_cannot_be_imported_are_reported_and_the_others_load(
    folder: Path, fresh: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [])
    (folder / "one.py").write_text(GOOD.format("one.run"))
    (folder / "broken.py").write_text("import no_such_thing")
    (folder / "twisted.py").write_text("def f(:")
    (folder / "leaves.py").write_text("import sys; sys.exit(3)")
    (folder / "wrong.py").write_text(GOOD.format(""))
    (folder / "two.py").write_text(GOOD.format("two.run"))
    names = ["one", "broken", "twisted", "leaves", "missing", "wrong", "two"]
    problems = import_handlers(names)
    assert [problem.partition(":")[0] for problem in problems] == [
        "import broken",
        "import twisted",
        "import leaves",
        "import missing",
        "import wrong",
    ]
    assert "no_such_thing" in problems[0]
    assert "SyntaxError" in problems[1]
    assert "target_type: a name must be a text that is not empty" in problems[4]
    assert [spec.type for spec in fresh.manifest()] == ["one.run", "two.run"]


def test_entry_points_are_loaded_even_if_one_is_broken(
    folder: Path, fresh: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "plugin.py").write_text(GOOD.format("plugin.run"))
    points = [
        EntryPoint("gone", "no_such_plugin", module.ENTRY_POINTS),
        EntryPoint("plugin", "plugin", module.ENTRY_POINTS),
    ]
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: points if group == module.ENTRY_POINTS else [],
    )
    (problem,) = import_handlers([])
    assert problem.startswith("entry point gone (no_such_plugin): ")
    assert [spec.type for spec in fresh.manifest()] == ["plugin.run"]


def test_the_demo_handlers_are_found_by_their_entry_point() -> None:
    """In a new process: this one may have imported them before."""
    program = (
        "from drumline.handlers.registry import import_handlers, registry;"
        "assert import_handlers([]) == [];"
        "print(*[spec.type for spec in registry.manifest()])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"demo.noop", "demo.echo", "demo.crash"} <= set(done.stdout.split())
