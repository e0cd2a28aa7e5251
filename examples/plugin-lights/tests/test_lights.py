"""The plug-in's own tests: they need no Drumline that runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from drumline.testing import run

from drumline_lights import bridge
from drumline_lights.bridge import Light, NoSuchLight
from drumline_lights.handlers import Dim, Switch


@pytest.fixture(autouse=True)
def lights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTS_DIR", str(tmp_path))
    bridge.write("hall", Light(on=False, level=70))


def test_light_is_switched_and_switched_back() -> None:
    done = run(Switch, type="light_on", target_id="hall")
    assert done.steps == ("build_param", "is_finished", "process")
    assert bridge.read("hall") == Light(on=True, level=70)
    run(Switch, type="light_on", target_id="hall", rollback=True, before_update=done.before)
    assert bridge.read("hall") == Light(on=False, level=70)


def test_light_that_is_so_already_is_left_alone() -> None:
    assert run(Switch, type="light_off", target_id="hall").steps == ("build_param", "is_finished")


def test_fading_goes_on_where_an_attempt_died() -> None:
    done = run(Dim, {"level": 40}, target_id="hall")
    assert done.result == {"steps": 30}
    bridge.write("hall", Light(on=False, level=45))  # as if it had died five steps before the end
    again = run(
        Dim, {"level": 40}, target_id="hall", attempt=2,
        before_update=done.before, after_update=done.after,
    )  # fmt: skip
    assert again.result == {"steps": 5}
    assert again.before == {"on": False, "level": 70}, "captured once, before the first attempt"


@pytest.mark.parametrize("name", ["attic", "../hall", ""])
def test_light_that_is_not_there_is_an_error(name: str) -> None:
    with pytest.raises(NoSuchLight):
        run(Switch, type="light_on", target_id=name)
