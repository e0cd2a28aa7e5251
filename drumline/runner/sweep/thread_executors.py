"""Executors of sync items: the main thread for one at a time, several threads for more."""

from __future__ import annotations

import ctypes
import signal
import threading

from drumline.runner.execute import Stopped
from drumline.runner.sweep.item_blocks import run_blocks
from drumline.runner.sweep.item_executor import ItemTimedOut, ItemWork, Slot

INTERRUPT_SIGNAL = signal.SIGRTMIN + 1
"""The monitor sends it to the main thread to interrupt an item that has timed out."""


class MainThreadExecutor:
    """One item at a time, in the main thread: this is fastest, and a signal can interrupt it."""

    def __init__(self, work: ItemWork) -> None:
        self.work = work
        self.slots = [Slot()]
        signal.signal(INTERRUPT_SIGNAL, self._on_interrupt)

    def run(self) -> None:
        run_blocks(self.work, self.slots[0], 1)

    def interrupt(self, slot: Slot) -> None:
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, INTERRUPT_SIGNAL)

    def abort(self) -> None:
        raise Stopped

    def blocking_item(self) -> int | None:
        return None

    def _on_interrupt(self, *_: object) -> None:
        slot = self.slots[0]
        if slot.busy and slot.timed_out == slot.current:
            raise ItemTimedOut


class ThreadsExecutor:
    """Several sync items at a time. A thread can only be interrupted while it runs Python code."""

    def __init__(self, work: ItemWork, parallel: int) -> None:
        self.work = work
        self.parallel = parallel
        self.slots = [Slot() for _ in range(parallel)]
        self.thread_ids: dict[Slot, int] = {}
        self.error: BaseException | None = None
        """An error outside of any item, such as a source that has changed."""

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._run_thread, args=(slot,), daemon=True)
            for slot in self.slots
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)  # with a timeout, so that the main thread handles signals
        if self.error is not None:
            raise self.error

    def _run_thread(self, slot: Slot) -> None:
        self.thread_ids[slot] = threading.get_ident()
        try:
            run_blocks(self.work, slot, self.parallel)
        except BaseException as error:
            self.error = error
            self.work.window.close()

    def interrupt(self, slot: Slot) -> None:
        with slot.lock:
            if slot.interrupted or slot.timed_out != slot.current:
                return
            slot.interrupted = True
            thread_id = ctypes.c_ulong(self.thread_ids[slot])
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread_id, ctypes.py_object(ItemTimedOut))

    def abort(self) -> None:
        for slot in self.slots:
            slot.timed_out = slot.current
            if slot.timed_out is not None:
                self.interrupt(slot)

    def blocking_item(self) -> int | None:
        return None
