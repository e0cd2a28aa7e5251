"""A run of the tests, however it ends, leaves no process and no file."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumline.system import processes

# A child in a session of its own and its orphan, neither of which a Ctrl-C or a TERM reaches.
LEAVES_PROCESSES = '''
import pathlib, signal, subprocess, sys, tempfile, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
start = """import subprocess; print(subprocess.Popen(
    ["sleep", "600"], stdout=subprocess.DEVNULL, start_new_session=True).pid)"""
orphan = subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True)
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, start_new_session=True)
print(child.pid, orphan.stdout.strip(), tempfile.mkdtemp(), flush=True)
'''


@contextmanager
def started(code: str) -> Iterator[subprocess.Popen[str]]:
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.run", "--no-mariadb", "--", sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with run:
        try:
            yield run
        finally:
            run.kill()


def assert_nothing_left(line: str) -> None:
    child, orphan, directory = line.split()
    assert not processes.is_alive(int(child))
    assert not processes.is_alive(int(orphan))
    assert not Path(directory).parent.exists()


def test_leaks_are_named_and_ended() -> None:
    with started(LEAVES_PROCESSES) as run:
        out, err = run.communicate(timeout=20)
    assert run.returncode == 0
    child, orphan, _ = out.split()
    assert err.count("left running by a test") == 2
    assert f": {child} " in err and f": {orphan} " in err
    assert_nothing_left(out)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_interrupts_the_run(number: signal.Signals) -> None:
    code = LEAVES_PROCESSES + "try: time.sleep(600)\nexcept KeyboardInterrupt: sys.exit(7)"
    with started(code) as run:
        assert run.stdout is not None
        line = run.stdout.readline()
        run.send_signal(number)
        assert run.wait(20) == 7
    assert_nothing_left(line)


def test_a_second_signal_kills_what_does_not_end() -> None:
    code = LEAVES_PROCESSES + (
        "while True:\n"
        "    try: time.sleep(600)\n"
        "    except KeyboardInterrupt: print('interrupted', flush=True)"
    )
    with started(code) as run:
        assert run.stdout is not None
        line = run.stdout.readline()
        run.send_signal(signal.SIGTERM)
        assert run.stdout.readline() == "interrupted\n"
        run.send_signal(signal.SIGTERM)
        assert run.wait(20) == 128 + signal.SIGKILL
    assert_nothing_left(line)
