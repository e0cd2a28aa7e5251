"""The target type `light` and its batch types: light_on, light_off and light_dim."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from drumline import Change, Handler, Task, register
from msgspec import Meta

from drumline_lights import bridge
from drumline_lights.bridge import Light


class Lights(Handler):
    """What all batch types share: read the light, compare, change it, restore it."""

    def wanted(self, task: Task, light: Light) -> Light:
        """The state of a light after the task."""
        raise NotImplementedError

    def build_param(self, task: Task) -> Change:
        """The state before and after the change; Drumline keeps both for a rollback."""
        light = bridge.read(name_of(task))
        return Change(before=light, after=self.wanted(task, light))

    def is_finished(self, task: Task) -> bool:
        """Whether an earlier attempt, which did not end normally, has changed the light."""
        return bridge.read(name_of(task)) == light_from(task.after_update)

    def rollback(self, task: Task) -> None:
        bridge.write(name_of(task), light_from(task.before_update))


class Switch(Lights):
    types = ("light_on", "light_off")
    timeouts = {"light_on": 5, "light_off": 3}

    def wanted(self, task: Task, light: Light) -> Light:
        return Light(on=task.type == "light_on", level=light.level)

    def process(self, task: Task) -> None:
        """Switch a light."""
        bridge.write(name_of(task), light_from(task.after_update))


class DimParam(msgspec.Struct, forbid_unknown_fields=True):
    """A submission with a wrong param is refused; the error names the field and the line."""

    level: Annotated[int, Meta(ge=1, le=100, description="Percent of full brightness.")]


class Dim(Lights):
    types = ("light_dim",)
    timeouts = {"light_dim": 30}
    param_type = DimParam

    def wanted(self, task: Task, light: Light) -> Light:
        return Light(on=light.on, level=msgspec.convert(task.param, DimParam).level)

    def process(self, task: Task) -> dict[str, int]:
        """Fade a light to a level, a step at a time."""
        goal = light_from(task.after_update)
        light = bridge.read(name_of(task))
        steps = 0
        while light.level != goal.level:
            # From the present level: an attempt that runs again continues where it stopped.
            nearer = light.level + (1 if light.level < goal.level else -1)
            light = Light(on=goal.on, level=nearer)
            bridge.write(name_of(task), light)
            steps += 1
        return {"steps": steps}


def name_of(task: Task) -> str:
    return task.target_name or task.target_id or ""


def light_from(captured: Any) -> Light:
    """A captured state is plain JSON when it is read back."""
    return msgspec.convert(captured, Light)


register("light", Switch)
register("light", Dim)
