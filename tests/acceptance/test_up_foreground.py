"""A node in the foreground, stopped by Ctrl-C or by a service manager's SIGTERM."""

import fcntl
import os
import pty
import select
import subprocess
import time
from contextlib import closing

from tests.acceptance.node import KINDS
from tests.stack import PROGRAM, Stack


class PseudoTerminal:
    """Runs a command with its own controlling terminal."""

    def __init__(self, stack: Stack, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [PROGRAM, *arguments],
            cwd=stack.home,
            env=stack.environment | {"TERM": "xterm", "COLUMNS": "120"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, 0x540E, 0),  # TIOCSCTTY: Ctrl-C signals this process
        )
        os.close(slave)

    def wait_for(self, words: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < deadline, f"no {words!r} in {self.text!r}"
            self._read(0.1)

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def wait_for_end(self, seconds: float = 60.0) -> int:
        """Read the output until the command ends; its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"the command did not end: {self.text!r}"
            self._read(0.1)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def _read(self, seconds: float) -> None:
        if select.select([self._master], [], [], seconds)[0]:
            try:
                self.text += os.read(self._master, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                time.sleep(0.01)


def test_ctrl_c_drains_and_a_second_one_explains_the_wait(idle: Stack) -> None:
    with closing(PseudoTerminal(idle, "up")) as terminal:
        terminal.wait_for("workers busy")
        batch = idle.call(
            "batch.submit", batch_name="slow", type="demo.sleep", count=1, param={"seconds": 3}
        )
        idle.wait_for(
            lambda: idle.call("batch.show", batch_id=batch["batch_id"])["counts"].get("running"),
            what="a running task",
        )
        terminal.press(b"\x03")
        terminal.wait_for("Draining: worker-1")
        terminal.press(b"\x03")
        terminal.wait_for("Running tasks have 30 s to finish")
        assert terminal.wait_for_end() == 0
        assert "All processes have drained and stopped." in terminal.text
    assert idle.processes() == {}


def test_sigterm_drains_like_ctrl_c(idle: Stack) -> None:
    foreground = subprocess.Popen(
        [PROGRAM, "up"],
        cwd=idle.home,
        env=idle.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert foreground.stdout is not None
    for line in foreground.stdout:
        if "Ctrl-C drains" in line:
            break
    assert idle.processes().keys() == KINDS
    foreground.terminate()
    output = foreground.communicate(timeout=60)[0]
    assert foreground.returncode == 0
    assert "All processes have drained and stopped." in output
    assert idle.processes() == {}
