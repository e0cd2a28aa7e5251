"""Handlers of sweeps as their authors write and test them."""

from typing import Any

import pytest

from drumline import Item, Later, Preparation, Refused, Sweep, register_sweep, sweep
from drumline.domain.sweeps.definition import HOOK_TARGET_TYPE, PARTITION_TARGET_TYPE
from drumline.errors import Conflict, WrongUse
from drumline.handlers import registry, sweep_hooks
from drumline.handlers.base import Handler, handler_specs
from drumline.testing import SweepOutcome, run_sweep


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty registry for this test."""
    monkeypatch.setattr(registry, "registry", registry.Registry())
    for module in ("drumline.testing", "drumline.handlers.sweep_registry"):
        monkeypatch.setattr(f"{module}.registry", registry.registry)


def test_a_decorated_function_is_a_handler() -> None:
    seen = []

    @sweep("mail.all", timeout=5, retries=3)
    def send(item: Item) -> None:
        """Sends one."""
        seen.append((item.index, item.text))

    hooks, parts = registry.registry.manifest()
    assert (parts.key, hooks.key) == ("sweep/mail.all", "sweep.hook/mail.all")
    assert parts.doc == "Sends one." and not parts.is_async
    assert parts.sweep is not None and hooks.sweep is None
    assert (parts.sweep.item_timeout, parts.sweep.item_retry.retries) == (5.0, 3)
    assert not (parts.sweep.creates or parts.sweep.prepares or parts.sweep.is_async)
    for named in (send, "mail.all"):
        assert run_sweep(named, 2) == SweepOutcome(done=2)
    assert run_sweep(send, items=["a"]).done == 1
    assert seen == [(0, None), (1, None)] * 2 + [(0, "a")]


class Mail(Sweep):
    """Mails."""

    type = "mail.class"

    def create(self, sweep: Preparation) -> None:
        if sweep.end == 1:
            raise Refused("one is not enough")

    async def prepare(self, sweep: Preparation) -> Any:
        if sweep.extra == "wait":
            return Later(5)
        sweep.extra = {"sum": 0}
        return None

    async def process(self, item: Item) -> None:
        item.extra = {"sum": item.extra["sum"] + item.index}
        if item.index == 3:
            item.log("three")
            raise ValueError("not three")
        if item.index == 6:
            item.stop("six is enough")


def test_a_class_has_hooks_a_log_and_extra_data() -> None:
    register_sweep(Mail)
    (_, parts) = registry.registry.manifest()
    assert parts.doc == "Mails."
    assert parts.sweep is not None and parts.sweep.is_async
    assert parts.sweep.creates and parts.sweep.prepares
    swept = run_sweep(Mail, 10)
    assert (swept.done, swept.stopped) == (7, "six is enough")
    assert swept.extra == {"sum": sum(range(7)) + 3}, "the third was tried twice"
    assert [str(error) for error in swept.failed.values()] == ["not three"]
    assert swept.log == [(3, "three")] * 2
    assert run_sweep(Mail(), 10, extra="wait").waits == Later(5.0)
    with pytest.raises(Refused, match="one is not enough"):
        run_sweep(Mail, 1)
    crowd = run_sweep(Mail, 2, parallel=2)
    assert all(isinstance(error, Conflict) for error in crowd.failed.values())


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"process": None}, "it has no process method"),
        ({"type": ""}, "type: a name must be a text"),
        ({"type": "x" * 129}, "at most 128"),
        ({"timeout": 0}, "timeout must be 0 to"),
        ({"timeout": "soon"}, "timeout must be a number"),
        ({"retry": 3}, "retry must be a Retry"),
        ({"process": lambda self: None}, "process must take one argument, the item"),
        ({"prepare": lambda self, a, b: None}, "prepare must take one argument, the sweep"),
    ],
)
def test_the_error_names_what_a_handler_lacks(values: dict[str, Any], says: str) -> None:
    body = {"type": "t", "process": lambda self, item: None} | values
    made = type("Made", (Sweep,), {k: v for k, v in body.items() if v is not None})
    with pytest.raises(WrongUse, match=says):
        register_sweep(made)
    assert registry.registry.manifest() == []


def test_objects_that_are_not_sweep_handlers_are_refused() -> None:
    with pytest.raises(WrongUse, match=r"not a drumline\.Sweep"):
        register_sweep(lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(WrongUse, match="needs a name"):
        sweep(lambda item: None)  # type: ignore[arg-type]
    with pytest.raises(WrongUse, match="not a registered handler"):
        run_sweep("nobody", 3)
    with pytest.raises(WrongUse, match="either a total or items"):
        run_sweep(Mail)
    for name in (PARTITION_TARGET_TYPE, HOOK_TARGET_TYPE):
        own = type("Own", (Handler,), {"target_type": name, "types": ("t",)})
        with pytest.raises(WrongUse, match="is reserved for sweeps"):
            handler_specs(own(), "here")
    assert sweep_hooks.MAX_DELAY == 86_400


LATER_BY_WORD = Later("soon")  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [True, 5, Later(-1), Later(float("nan")), LATER_BY_WORD])
def test_prepare_returns_nothing_or_later(answer: Any) -> None:
    @sweep("s", prepare=lambda sweep: answer)
    def work(item: Item) -> None: ...

    with pytest.raises(WrongUse, match=r"prepare must return|Later takes"):
        run_sweep(work, 1)
