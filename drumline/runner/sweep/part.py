"""One run of one partition: opened, run by a crew, watched by a pulse, and its end."""

from __future__ import annotations

from drumline.domain.items import Items
from drumline.domain.part import PartEnd, PartFacts
from drumline.errors import Conflict
from drumline.handlers.base import Registered
from drumline.handlers.sweep import Parts
from drumline.runner.execute import NotOurs, Stopped
from drumline.runner.sweep.crew import Alone, Crew, Threads, Work
from drumline.runner.sweep.feeder import Feeder
from drumline.runner.sweep.loop_crew import EventLoop
from drumline.runner.sweep.pulse import Pipe, Pulse
from drumline.task import Task


class PartRun:
    """From opened to ended. Lives in the main thread; `ask` is called from a signal handler."""

    def __init__(self, task: Task, registered: Registered, part: PartFacts, pipe: Pipe) -> None:
        traits, handler = registered.spec.sweep, registered.handler
        if traits is None or not isinstance(handler, Parts):
            raise Conflict(reason=f"{registered.spec.key} does not handle sweeps")
        self.part = part
        self.traits = traits
        self.process = handler.sweep.process
        self.feeder = Feeder(task.id, task.fence, part, is_async=traits.is_async)
        self.pulse = Pulse(self.feeder, pipe, traits.item_timeout)
        self.crew: Crew | None = None

    def run(self) -> PartEnd:
        self.pulse.start()
        items = None
        try:
            items = self._items()
            work = Work(
                self.feeder,
                self.process,
                self.traits.item_retry,
                self.traits.item_timeout,
                items,
            )
            while not self.feeder.is_over():
                self.pulse.crew = self.crew = self._crew(work)
                self.crew.run()
        except BaseException:
            self.crew = None
            self.pulse.abandon()
            raise
        finally:
            self.crew = None  # nothing is left for an ask to strike into
            if items is not None:
                items.close()
        if self.feeder.aborted:
            self.pulse.abandon()
            raise Stopped
        self.pulse.finish()
        if self.pulse.error is not None:
            raise self.pulse.error
        if self.pulse.lost:
            raise NotOurs
        return self.feeder.end()

    def _items(self) -> Items | None:
        """The source, if there is one: it must be the one that was counted."""
        if self.part.source is None:
            return None
        from drumline.runner.sweep.sources import open_source  # it may need an HTTP library

        opened = open_source(self.part.sweep_id, self.part.source, lambda: self.feeder.closed)
        return opened.items

    def _crew(self, work: Work) -> Crew:
        parallel = self.feeder.parallel
        if self.traits.is_async:
            return EventLoop(work, parallel)
        return Alone(work) if parallel == 1 else Threads(work, parallel)

    def ask(self) -> None:
        """The run is to end now."""
        self.feeder.abort()
        if self.crew is not None:
            self.crew.abort()
