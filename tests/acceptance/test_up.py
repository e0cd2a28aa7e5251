"""A node from its start to its end, as its operator meets it."""

import fcntl
import http.client
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.stack import PROGRAM, Stack

EVERYWHERE = "0.0.0.0"  # noqa: S104  # that is what is tested
KINDS = {"supervisord", "ticker", "dispatcher", "reaper", "worker", "runner", "scanner", "gateway"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One that the tests below share: each leaves it as well as it found it."""
    with Stack(workers=2) as started:
        yield started


@pytest.fixture
def idle() -> Iterator[Stack]:
    """One that has not been started."""
    made = Stack(workers=1)
    try:
        yield made
    finally:
        made.close()


def get(stack: Stack, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", stack.http_port, timeout=20)
    with closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def figures(stack: Stack) -> dict[str, float]:
    """What /metrics says, by name and labels."""
    status, text = get(stack, "/metrics")
    assert status == 200
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


# --- up --------------------------------------------------------------------------------------


def test_status_lists_every_process(stack: Stack) -> None:
    found = stack.cli("status")
    assert {process["kind"] for process in found} == KINDS
    assert {process["state"] for process in found} <= {"running", "starting"}
    names = sorted(process["name"] for process in found if process["kind"] in ("worker", "runner"))
    assert names == ["runner-1", "runner-2", "worker-1", "worker-2"]
    for process in found:
        os.kill(process["pid"], 0)
        assert 5 < process["memory_mb"] < 100
        assert process["uptime"] >= 0


def test_what_it_keeps_is_for_its_owner_alone(stack: Stack) -> None:
    assert stack.run_path.stat().st_mode & 0o777 == 0o700
    token = stack.run_path / "api_token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text().strip()) >= 32


def test_a_second_up_is_refused(stack: Stack) -> None:
    before = stack.processes()
    second = stack.run("up", check=False)
    assert second.returncode == 5
    assert "already up" in second.stderr
    assert stack.processes() == before


def test_a_second_up_that_detaches_is_content(stack: Stack) -> None:
    before = stack.processes()
    assert "already up" in stack.run("up", "--detach").stdout
    assert stack.processes() == before


def test_the_demo_is_done(stack: Stack) -> None:
    shown = stack.run("up", "--detach", "--demo").stderr
    assert "1,000 of 1,000 tasks done" in shown
    batch_id = int(re.search(r"batch show (\d+)", shown)[1])  # type: ignore[index]
    batch = stack.call("batch.show", batch_id=batch_id)
    assert batch["counts"] == {"success": 1000}


def test_top_shows_processes_and_queue(stack: Stack) -> None:
    seen = stack.cli("top", "--once")
    assert seen["queue"]["pool_size"] == 2
    assert {process["kind"] for process in seen["processes"]} == KINDS
    assert "workers" in stack.run("top", "--once").stdout


# --- the web ---------------------------------------------------------------------------------


def test_it_is_healthy_and_ready(stack: Stack) -> None:
    assert get(stack, "/healthz") == (200, '{"alive":true}')
    assert get(stack, "/readyz") == (200, '{"ready":true,"missing":[]}')


def test_an_unknown_page_is_a_clear_answer(stack: Stack) -> None:
    status, text = get(stack, "/nosuch")
    assert status == 404
    assert json.loads(text)["detail"] == "GET /nosuch is not served"


def test_it_is_not_ready_without_its_dispatcher(stack: Stack) -> None:
    pid = stack.kill("dispatcher", signal.SIGSTOP)
    try:
        status, text = get(stack, "/readyz")
        assert status == 503
        assert "dispatcher" in json.loads(text)["missing"][0]
        assert get(stack, "/healthz")[0] == 200
    finally:
        os.kill(pid, signal.SIGCONT)
    stack.wait_for(lambda: get(stack, "/readyz")[0] == 200, what="readiness")


def test_metrics_add_up_over_processes(stack: Stack) -> None:
    before = figures(stack).get(
        'drumline_tasks_total{env="",outcome="success",type="demo.echo"}', 0.0
    )
    batch = stack.call("batch.submit", batch_name="counted", type="demo.echo", count=50)
    stack.wait_batch(batch["batch_id"])

    def counted() -> bool:
        now = figures(stack)
        done = now.get('drumline_tasks_total{env="",outcome="success",type="demo.echo"}', 0.0)
        return done == before + 50 and now["drumline_queue_capacity"] == 1000

    stack.wait_for(counted, what="50 more tasks in the metrics")


def test_metrics_count_what_is_still_to_be_done(stack: Stack) -> None:
    stack.call("queue.pause", type="demo.flaky")
    batch = stack.call("batch.submit", batch_name="waits", type="demo.flaky", count=7)
    task = stack.call("task.schedule", type="demo.flaky")
    try:
        stack.wait_for(
            lambda: figures(stack)['drumline_backlog{status="pending"}'] == 8,
            what="8 pending tasks in the metrics",
        )
        assert figures(stack)["drumline_batches_unfinished"] == 1
        assert figures(stack)["drumline_database_up"] == 1
    finally:
        stack.call("batch.cancel", batch_id=batch["batch_id"])
        stack.call("task.cancel", task_id=task["task_id"])
        stack.call("queue.resume", type="demo.flaky")


# --- death -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(KINDS - {"supervisord"}))
def test_a_killed_process_is_started_again(stack: Stack, kind: str) -> None:
    killed = stack.kill(kind)
    stack.wait_restart(kind, killed)
    stack.wait_for(lambda: stack.processes().keys() == KINDS, what="all kinds of processes")
    stack.wait_for(lambda: ready(stack), what="readiness")
    batch = stack.call("batch.submit", batch_name=kind, type="demo.noop", count=20)
    assert stack.wait_batch(batch["batch_id"])["status"] == "success"


def ready(stack: Stack) -> bool:
    try:
        return get(stack, "/readyz")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_the_gauges_of_a_dead_process_are_forgotten(stack: Stack) -> None:
    killed = stack.kill("dispatcher")
    stack.wait_restart("dispatcher", killed)

    def workers() -> float:
        now = figures(stack)
        return sum(now.get(f'drumline_workers{{state="{s}"}}', 0.0) for s in ("busy", "free"))

    stack.wait_for(lambda: workers() == 2, what="two workers in the metrics")
    assert not list((stack.run_path / "metrics").glob(f"gauge_live*_{killed}.db"))


def test_without_supervisord_the_others_drain_and_up_starts_anew() -> None:
    with Stack(workers=1) as stack:
        before = stack.processes()
        stack.kill("supervisord")
        stack.wait_for(lambda: not stack.processes(), what="the end of all processes")
        stack.up()
        after = stack.processes()
        assert after.keys() == KINDS
        assert not {pid for pids in before.values() for pid in pids} & {
            pid for pids in after.values() for pid in pids
        }


# --- down ------------------------------------------------------------------------------------


def test_down_leaves_no_process_and_up_brings_everything_back() -> None:
    with Stack(workers=1) as stack:
        batch = stack.call("batch.submit", batch_name="kept", type="demo.noop", count=10)
        stack.wait_batch(batch["batch_id"])
        token = (stack.run_path / "api_token").read_text()
        stack.down()
        assert stack.processes() == {}
        assert not list(stack.run_path.glob("drumline.db-*"))  # the one file is all of it
        assert stack.run("status", check=False).returncode == 3
        assert json.loads(stack.run("status", "--json", check=False).stdout) == []
        assert stack.run("batch", "list", check=False).returncode == 3
        stack.down()  # nothing to do is not an error
        stack.up()
        assert (stack.run_path / "api_token").read_text() == token
        assert stack.cli("batch", "show", str(batch["batch_id"]))["status"] == "success"


def test_down_waits_for_what_runs() -> None:
    with Stack(workers=1) as stack:
        batch = stack.call(
            "batch.submit", batch_name="slow", type="demo.sleep", count=1, param={"seconds": 1.5}
        )
        stack.wait_for(
            lambda: stack.call("batch.show", batch_id=batch["batch_id"])["counts"].get("running"),
            what="a running task",
        )
        stack.down()
        stack.up()
        shown = stack.cli("task", "list", "--batch", str(batch["batch_id"]))
        tasks = shown if isinstance(shown, list) else shown["tasks"]
        assert [(task["status"], task["attempt"]) for task in tasks] == [("success", 1)]


def test_down_ends_a_supervisord_that_is_stuck() -> None:
    with Stack(workers=1) as stack:
        stack.kill("supervisord", signal.SIGSTOP)
        stack.down()
        assert stack.processes() == {}


# --- in the foreground -----------------------------------------------------------------------


class Terminal:
    """A command on a terminal of its own, as a person has it."""

    def __init__(self, stack: Stack, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [PROGRAM, *arguments],
            cwd=stack.home,
            env=stack.environment | {"TERM": "xterm", "COLUMNS": "120"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, 0x540E, 0),  # TIOCSCTTY: Ctrl-C is for us
        )
        os.close(theirs)

    def wait_for(self, words: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < deadline, f"waited in vain for {words!r} in {self.text!r}"
            self._read(0.1)

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def end(self, seconds: float = 60.0) -> int:
        """Its exit code; what it says until then is read."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it did not end: {self.text!r}"
            self._read(0.1)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)

    def _read(self, seconds: float) -> None:
        if select.select([self._ours], [], [], seconds)[0]:
            try:
                self.text += os.read(self._ours, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                time.sleep(0.01)


def test_ctrl_c_drains_and_a_second_one_is_told_what_is_waited_for(idle: Stack) -> None:
    with closing(Terminal(idle, "up")) as terminal:
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
        assert terminal.end() == 0
        assert "Everything is drained and stopped." in terminal.text
    assert idle.processes() == {}


def test_a_service_manager_stops_it_the_same_way(idle: Stack) -> None:
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
    said = foreground.communicate(timeout=60)[0]
    assert foreground.returncode == 0
    assert "Everything is drained and stopped." in said
    assert idle.processes() == {}


# --- what cannot start -----------------------------------------------------------------------


def refused(stack: Stack, code: int, *arguments: str, **settings: str) -> str:
    """The words of an `up` that must fail, and leave nothing behind."""
    more = {f"DRUMLINE_{name.upper()}": value for name, value in settings.items()}
    done = stack.run("up", "--detach", *arguments, check=False, more=more)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert stack.processes() == {}
    return done.stderr


def test_a_port_that_is_taken_is_named(idle: Stack) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", idle.http_port))
        other.listen()
        assert f"Port {idle.http_port}" in refused(idle, 5)


def test_handlers_that_cannot_be_imported_are_named(idle: Stack) -> None:
    (idle.home / "broken.py").write_text("import nosuchthing\n")
    said = refused(idle, 2, "--import", "broken")
    assert "import broken: ModuleNotFoundError: No module named 'nosuchthing'" in said


def test_a_database_that_is_away_is_named(idle: Stack) -> None:
    assert "Can't connect" in refused(idle, 3, "--database", "mysql://nobody@127.0.0.1:1/none")


def test_a_database_of_an_unknown_kind_is_refused(idle: Stack) -> None:
    assert "known: sqlite, mysql" in refused(idle, 2, "--database", "oracle://host/name")


def test_a_run_directory_that_others_can_read_is_refused(idle: Stack) -> None:
    shared = idle.home / "shared"
    shared.mkdir(mode=0o755)
    (shared / "somebody's").touch()
    assert "is open to others" in refused(idle, 2, run_dir=str(shared))
    assert shared.stat().st_mode & 0o777 == 0o755


def test_a_run_directory_too_long_for_a_socket_is_refused(idle: Stack) -> None:
    assert "too long for a socket" in refused(idle, 2, run_dir=str(idle.home / ("x" * 90)))


def test_a_process_that_does_not_start_shows_its_log(idle: Stack) -> None:
    idle.run_path.mkdir(mode=0o700)
    with (idle.run_path / "dispatcher.sock.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = refused(idle, 1)
    assert "another process serves it already" in said
    assert said.splitlines()[-1] == "Drumline did not start: dispatcher failed"


def test_wrong_words_are_refused_before_anything_is_made(idle: Stack) -> None:
    for arguments in (["--workers", "0"], ["--nosuch"], ["--workers", "many"], ["more"]):
        refused(idle, 2, *arguments)
    assert not idle.run_path.exists()


def test_it_does_not_listen_to_the_world_without_a_token(idle: Stack) -> None:
    idle.run("db", "upgrade")
    gateway = idle.run("actor", "gateway", check=False, more={"DRUMLINE_HTTP_HOST": EVERYWHERE})
    assert gateway.returncode == 2
    assert "there is no API token" in gateway.stderr


def test_metrics_need_the_token_where_others_can_reach_them() -> None:
    with Stack(workers=1, http_host=EVERYWHERE) as stack:
        assert get(stack, "/healthz")[0] == 200
        assert get(stack, "/metrics")[0] == 401
        assert get(stack, "/metrics", Authorization="Bearer wrong")[0] == 401
        token = (stack.run_path / "api_token").read_text().strip()
        assert get(stack, "/metrics", Authorization=f"Bearer {token}")[0] == 200


# --- doctor, init, db ------------------------------------------------------------------------


def test_the_doctor_finds_nothing_wrong_with_a_good_set_up(idle: Stack) -> None:
    findings = idle.cli("doctor")
    assert {finding["level"] for finding in findings} == {"ok"}
    assert {"python", "run_dir", "disk", "database", "handlers", "http", "supervisord"} <= {
        finding["check"] for finding in findings
    }
    assert not idle.run_path.exists(), "looking must not make anything"


def test_the_doctor_is_content_with_a_node_that_runs(stack: Stack) -> None:
    assert {finding["level"] for finding in stack.cli("doctor")} == {"ok"}


def test_the_doctor_names_everything_that_is_wrong(idle: Stack) -> None:
    shared = idle.home / "shared"
    shared.mkdir(mode=0o777)
    (shared / "somebody's").touch()
    more = {
        "DRUMLINE_RUN_DIR": str(shared),
        "DRUMLINE_DATABASE_URL": "mysql://nobody@127.0.0.1:1/none",
        "DRUMLINE_IMPORTS": "nosuchmodule",
        "DRUMLINE_WORKRES": "4",
    }
    with socket.socket() as other:
        other.bind(("127.0.0.1", idle.http_port))
        other.listen()
        done = idle.run("doctor", "--json", check=False, more=more)
    assert done.returncode == 1
    levels: dict[str, list[str]] = {}
    for finding in json.loads(done.stdout):
        levels.setdefault(finding["level"], []).append(finding["check"])
    assert sorted(levels["fail"]) == ["database", "handlers", "http", "run_dir"]
    assert levels["warn"] == ["config"]


def test_the_doctor_reads_a_wrong_configuration(idle: Stack) -> None:
    (idle.home / "drumline.toml").write_text("lease = 99\n")
    done = idle.run("doctor", check=False)
    assert done.returncode == 1
    assert "must be shorter than dead_after" in done.stdout


def test_the_doctor_knows_mariadb(mariadb_url: str) -> None:
    made = Stack(mariadb_url)
    try:
        found = {finding["check"]: finding for finding in made.cli("doctor")}
    finally:
        made.close()
    for check in ("server", "durability", "isolation", "packet", "time_zone", "clock"):
        assert found[check]["level"] == "ok"
    assert found["schema"]["level"] == "warn"


def test_what_init_writes_runs(idle: Stack) -> None:
    idle.run("init")
    again = idle.run("init", check=False)
    assert again.returncode == 5
    assert "nothing was written" in again.stderr
    del idle.environment["DRUMLINE_IMPORTS"]  # the file names its own
    idle.up()
    batch = idle.call("batch.submit", batch_name="hello", type="hello", count=3)
    assert idle.wait_batch(batch["batch_id"])["counts"] == {"success": 3}
    batch = idle.call(
        "batch.submit",
        batch_name="grow",
        type="resize",
        targets=[{"target_id": "db-1", "param": {"size": 5}}],
    )
    assert idle.wait_batch(batch["batch_id"])["status"] == "success"
    assert (idle.home / "size-of-db-1.txt").read_text() == "5"


def test_config_show_tells_where_each_value_comes_from(idle: Stack) -> None:
    (idle.home / "drumline.toml").write_text('region = "north"\nworkers = 7\n')
    more = {"DRUMLINE_DATABASE_URL": "mysql://me:sesame@host/name"}
    shown = json.loads(idle.run("config", "show", "--json", more=more).stdout)
    by_name: dict[str, dict[str, Any]] = {item["name"]: item for item in shown}
    assert (by_name["region"]["value"], by_name["region"]["source"]) == ("north", "drumline.toml")
    assert by_name["workers"]["source"] == "DRUMLINE_WORKERS"
    assert by_name["lease"]["source"] == "default"
    assert by_name["database_url"]["value"] == "mysql://me:***@host/name"


def test_db_check_finds_and_repairs_wrong_counters(database_url: str, tmp_path: Path) -> None:
    from sqlalchemy import create_engine, text

    with Stack(database_url, workers=1) as stack:
        right = stack.call("batch.submit", batch_name="right", type="demo.noop", count=5)
        wrong = stack.call("batch.submit", batch_name="wrong", type="demo.noop", count=5)
        stack.wait_batch(right["batch_id"])
        stack.wait_batch(wrong["batch_id"])
        assert stack.cli("db", "check")["wrong"] == []
        stack.down()
        engine = create_engine(database_url)
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE batch SET n_success = 3, n_fail = 2 WHERE id = :id"),
                {"id": wrong["batch_id"]},
            )
        engine.dispose()
        done = stack.run("db", "check", "--json", check=False)
        assert done.returncode == 1
        assert json.loads(done.stdout)["wrong"] == [
            {"batch_id": wrong["batch_id"], "counters": {"fail": [2, 0], "success": [3, 5]}}
        ]
        assert stack.cli("db", "check", "--repair")["repaired"]
        assert stack.cli("db", "check")["wrong"] == []


def test_the_schema_is_made_shown_and_needed(idle: Stack) -> None:
    assert idle.run("db", "current", check=False).returncode == 4
    assert idle.cli("db", "upgrade")["before"] is None
    assert idle.cli("db", "current")["current"] == idle.cli("db", "upgrade")["before"]


def test_an_actor_of_an_unknown_name_is_refused(idle: Stack) -> None:
    done = idle.run("actor", "juggler", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("there is no actor 'juggler'")
