"""The SDK against a whole Drumline of real processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, NullPool, Table, create_engine

from drumline import Client, enqueue
from drumline.client import NotFinished, Target, TaskFailed
from drumline.errors import (
    Conflict,
    DrumlineError,
    NotFound,
    NotReachable,
    UnknownHandler,
    WrongUse,
)
from tests.mariadb import fresh_database
from tests.stack import Stack

ROOT = Path(__file__).parents[2]
WAIT = 60.0

HANDLERS = """
import time
from pathlib import Path
from drumline import Change, Handler, handler, register

@handler("t.about")
def about(task):
    return {"target": task.target_id, "name": task.target_name, "param": task.param,
            "batch": task.batch and [task.batch.name, task.batch.env, task.batch.extra_info]}

@handler("t.gate", timeout=600)
def gate(task):
    while not Path(task.param).exists():
        time.sleep(0.01)

@handler("t.once")
def once(task):
    with open(task.param, "a") as file:
        file.write("x")

class Note(Handler):
    types = ("t.note",)
    def build_param(self, task):
        return Change(Path(task.target_id).read_text(), task.param)
    def process(self, task):
        Path(task.target_id).write_text(task.param)
    def rollback(self, task):
        Path(task.target_id).write_text(task.before_update)

register("t.file", Note)
"""


@pytest.fixture(scope="module", params=["sqlite", "mariadb"])
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    settings: dict[str, Any] = {
        "workers": 2,
        "handlers": HANDLERS,
        "imports": ("examples.handlers", "examples.switch"),
    }
    if request.param == "sqlite":
        with Stack(**settings) as stack:
            yield stack
    else:
        server: str = request.getfixturevalue("mariadb_server_url")
        with fresh_database(server) as url, Stack(url, **settings) as stack:
            yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with connected(stack) as client:
        yield client


def connected(stack: Stack, **options: Any) -> Client:
    return Client(f"ipc://{stack.run_path / 'control.sock'}", **options)


def database_url(stack: Stack) -> str:
    return stack.environment.get(
        "DRUMLINE_DATABASE_URL", f"sqlite:///{stack.run_path / 'drumline.db'}"
    )


def calls(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that a client has done from now on."""
    done: list[str] = []
    really = client.call

    def call(command: str, /, **arguments: Any) -> dict[str, Any]:
        done.append(command)
        return really(command, **arguments)

    monkeypatch.setattr(client, "call", call)
    return done


# --- batches ---------------------------------------------------------------------------------


def test_a_batch_of_targets_in_every_form(client: Client) -> None:
    batch = client.submit_batch(
        "forms",
        "t.about",
        targets=[
            "an id",
            {"target_id": "a dict", "target_name": "its name", "param": {1: (2, 3)}},
            Target(target_id="a Target", param=[None]),
        ],
        param="common",
        env="test",
        extra_info={"ticket": 7},
    )
    assert batch.wait(WAIT) == "success"
    assert batch.counts == {"success": 3}
    assert (batch.total, batch.finished, batch.facts["env"]) == (3, True, "test")
    results = {task.result(1)["target"]: task.result(1) for task in batch.tasks()}
    about = ["forms", "test", {"ticket": 7}]
    assert results["an id"]["param"] == "common"
    assert results["a dict"] == {
        "target": "a dict",
        "name": "its name",
        "param": {"1": [2, 3]},
        "batch": about,
    }
    assert results["a Target"]["param"] == [None]


def test_a_long_stream_is_sent_in_pieces(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    done = calls(client, monkeypatch)
    drawn = 0

    def stream() -> Iterator[str]:
        nonlocal drawn
        for n in range(12_001):
            drawn += 1
            # Never more than two pieces ahead of what has been sent.
            assert drawn <= 5000 * (done.count("batch.load") + 2)
            yield f"t-{n}"

    batch = client.submit_batch("stream", "demo.noop", targets=stream())
    assert done == ["batch.open", *["batch.load"] * 3, "batch.start"]
    assert batch.wait(WAIT) == "success"
    assert batch.total == 12_001


def test_large_targets_are_cut_by_their_bytes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = calls(client, monkeypatch)
    big = {"param": "x" * 1_000_000}
    batch = client.submit_batch("large", "demo.noop", targets=[big] * 20)
    assert done.count("batch.load") == 3
    assert batch.wait(WAIT) == "success"


def test_many_equal_tasks(client: Client) -> None:
    batch = client.submit_batch("equal", "demo.noop", count=5001, priority=9)
    assert batch.wait(WAIT) == "success"
    assert batch.total == 5001


def test_a_stream_that_breaks_leaves_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Exception):
        pass

    def stream() -> Iterator[str]:
        yield from map(str, range(15_000))
        raise Broken

    before = newest_batch(client)
    done = calls(client, monkeypatch)
    with pytest.raises(Broken):
        client.submit_batch("breaks", "demo.noop", targets=stream())
    assert done[-1] == "batch.discard"
    assert newest_batch(client) == before


def newest_batch(client: Client) -> int:
    found = client.call("batch.list", limit=1)["batches"]
    return int(found[0]["id"]) if found else 0


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"type": "no.such", "count": 1}, UnknownHandler, ["no.such"]),
        ({"type": "demo.noop"}, WrongUse, ["either targets or a count"]),
        ({"type": "demo.noop", "targets": ["a"], "count": 1}, WrongUse, ["either"]),
        ({"type": "demo.noop", "targets": []}, WrongUse, ["at least one target"]),
        ({"type": "demo.noop", "count": 0}, WrongUse, ["at least one target"]),
        ({"type": "demo.noop", "targets": "abc"}, WrongUse, ["a list or a generator", "'abc'"]),
        ({"type": "demo.noop", "targets": ["a", 7]}, WrongUse, ["target 1", "int"]),
        ({"type": "demo.noop", "targets": [{"id": "a"}]}, WrongUse, ["target 0", "`id`"]),
        ({"type": "demo.noop", "targets": [{"target_id": 7}]}, WrongUse, ["target 0", "target_id"]),
        ({"type": "demo.noop", "targets": [Target(target_id=7)]}, WrongUse, ["target_id"]),  # type: ignore[arg-type]
        ({"type": "demo.noop", "targets": [{"param": object()}]}, WrongUse, ["target 0", "object"]),
        ({"type": "demo.noop", "targets": [{"param": 2**70}]}, WrongUse, ["target 0"]),
        ({"type": "demo.noop", "targets": [{"param": "\udc80"}]}, WrongUse, ["target 0"]),
        (
            {"type": "demo.noop", "targets": [{"param": "x" * 10**7}]},
            WrongUse,
            ["target 0", "bytes"],
        ),
        ({"type": "demo.noop", "count": 1, "param": object()}, WrongUse, ["cannot be sent"]),
        ({"type": "demo.noop", "count": 1, "param": "x" * 2**25}, WrongUse, ["at most"]),
        ({"type": "demo.noop", "count": 1, "priority": 10}, WrongUse, ["priority"]),
        ({"type": "demo.noop", "count": 1, "timeout": -1}, WrongUse, ["timeout"]),
        ({"type": "example.switch_zone", "count": 1, "param": {}}, WrongUse, ["param.file"]),
    ],
)
def test_a_bad_submission_is_named_and_nothing_is_submitted(
    client: Client, arguments: dict[str, Any], kind: type[DrumlineError], words: list[str]
) -> None:
    before = newest_batch(client)
    with pytest.raises(kind) as caught:
        client.submit_batch("bad", **arguments)
    for word in words:
        assert word in str(caught.value)
    assert newest_batch(client) == before


def test_waiting_in_vain_is_a_timeout_and_cancel_ends_it(client: Client, tmp_path: Path) -> None:
    batch = client.submit_batch("held", "t.gate", count=20, param=str(tmp_path / "gate"))
    with pytest.raises(TimeoutError) as caught:
        batch.wait(0.2)
    assert isinstance(caught.value, NotFinished)
    assert f"<Batch {batch.id}> is still " in str(caught.value)
    batch.cancel(force=True)
    assert batch.wait(WAIT) == "cancel"
    assert batch.counts == {"cancel": 20}
    with pytest.raises(Conflict, match="already"):
        batch.cancel()


def test_what_failed_is_retried_all_or_some(client: Client) -> None:
    batch = client.submit_batch("fails", "demo.fail", count=3)
    assert batch.wait(WAIT) == "fail"
    failed = [task.id for task in batch.tasks("fail")]
    assert len(failed) == 3
    assert list(batch.tasks("success")) == []
    assert batch.retry(failed[:1]) == 1
    assert batch.wait(WAIT) == "fail"
    assert batch.retry() == 3
    assert batch.wait(WAIT) == "fail"
    attempts = {task.id: task.refresh().facts["attempt"] for task in batch.tasks()}
    assert attempts == {failed[0]: 3, failed[1]: 2, failed[2]: 2}


def test_a_batch_is_rolled_back(client: Client, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}" for n in range(5)]
    for file in files:
        file.write_text(f"old {file.name}")
    batch = client.submit_batch("notes", "t.note", targets=map(str, files), param="new")
    assert batch.wait(WAIT) == "success"
    assert {file.read_text() for file in files} == {"new"}
    batch.rollback()
    assert batch.wait(WAIT) == "rollback_success"
    assert [file.read_text() for file in files] == [f"old {file.name}" for file in files]


def test_a_batch_that_is_not_there(client: Client) -> None:
    with pytest.raises(NotFound, match="There is no batch 999999"):
        client.batch(999999).refresh()


# --- single tasks ----------------------------------------------------------------------------


def test_a_task_returns_its_result(client: Client) -> None:
    task = client.schedule("demo.echo", {"a": [1, None]})
    assert task.result(WAIT) == {"a": [1, None]}
    assert client.task(task.id).refresh().status == "success"


def test_a_task_that_fails_says_why(client: Client) -> None:
    task = client.schedule("demo.fail")
    with pytest.raises(TaskFailed, match=r"it is fail \(error\)\. RuntimeError: demo\.fail alw"):
        task.result(WAIT)
    task.retry()
    assert task.wait(WAIT) == "fail"
    assert task.facts["attempt"] == 2


def test_a_task_waits_for_its_time_and_can_be_moved(client: Client) -> None:
    task = client.schedule("demo.echo", 1, delay=3600, instance="moved")
    with pytest.raises(Conflict, match="moved"):
        client.schedule("demo.echo", 2, instance="moved")
    assert task.status == "pending"
    task.reschedule(delay=0, priority=9)
    assert task.result(WAIT) == 1
    assert task.facts["priority"] == 9


def test_a_waiting_task_is_cancelled_at_once_and_a_running_one_by_force(
    client: Client, tmp_path: Path
) -> None:
    waiting = client.schedule("demo.echo", at="2040-01-01T00:00:00Z")
    assert waiting.cancel() == "cancel"
    assert waiting.wait(WAIT) == "cancel"
    running = client.schedule("t.gate", str(tmp_path / "gate"))
    until(lambda: running.refresh().status == "running")
    assert running.cancel(force=True) == "killing"
    assert running.wait(WAIT) == "cancel"
    with pytest.raises(TaskFailed):
        running.result(1)


def until(condition: Callable[[], object], seconds: float = WAIT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.01)


def test_thousands_in_one_message(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    done = calls(client, monkeypatch)
    assert client.schedule_many("demo.noop", range(5000)) == 5000
    assert done == ["task.schedule_many"]
    instances = [None, *(f"many-{n}" for n in range(5500))]
    assert client.schedule_many("t.about", range(5501), instances=instances, delay=3600) == 5501
    assert done[1:] == ["task.schedule_many"] * 2
    with pytest.raises(Conflict, match="'many-7'"):
        client.schedule_many("t.about", [1, 2], instances=["many-new", "many-7"], delay=3600)
    late = client.schedule("t.about", instance="many-new", delay=3600)
    assert late.cancel() == "cancel", "the refused message had left nothing"


@pytest.mark.parametrize(
    ("params", "instances", "words"),
    [
        ([1, 2], ["a"], "fewer instances"),
        ([1], ["a", "b"], "more instances"),
        ([1, object()], None, "param 1 cannot be sent"),
    ],
)
def test_bad_one_shots_are_refused(
    client: Client, params: list[Any], instances: list[str | None] | None, words: str
) -> None:
    with pytest.raises(WrongUse, match=words):
        client.schedule_many("t.about", params, instances=instances, delay=3600)


# --- enqueueing ------------------------------------------------------------------------------

customer = Table("customer", MetaData(), Column("id", Integer, primary_key=True))


def test_what_is_enqueued_in_a_transaction_runs_after_its_commit(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    engine = create_engine(database_url(stack), poolclass=NullPool)
    trace = tmp_path / "trace"
    with engine.connect() as connection:
        lost = enqueue(connection, "t.once", str(trace))
        connection.rollback()
        kept = enqueue(connection, "t.once", str(trace))
        connection.commit()
    began = time.monotonic()
    assert client.task(kept).wait(WAIT) == "success"
    assert time.monotonic() - began < 5, "nobody rang, but the scan comes every second"
    assert trace.read_text() == "x"
    if lost != kept:
        with pytest.raises(NotFound):
            client.task(lost).refresh()
    client.ring()


# --- the connection --------------------------------------------------------------------------


def test_threads_share_a_client(client: Client) -> None:
    def work(n: int) -> Any:
        return client.schedule("demo.echo", n).result(WAIT)

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(work, range(60))) == list(range(60))
    assert len(client._idle) <= 12


def test_a_client_goes_on_in_a_forked_child(client: Client) -> None:
    client.schedule("demo.noop")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if client.schedule("demo.echo", 3).result(WAIT) == 3 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.schedule("demo.echo", 4).result(WAIT) == 4


def test_a_change_without_an_answer_is_repeated_and_done_once(stack: Stack, tmp_path: Path) -> None:
    """The gateway is stopped, so that the first message waits in its pipe, and goes on only when
    the second is under way: it gets both."""
    gateway = stack.processes()["gateway"][0]
    trace = tmp_path / "trace"
    sent: list[str] = []
    with connected(stack, timeout=1.0) as client:
        client.call("batch.list", limit=1)
        control = client._idle[0]
        really = control._exchange

        def exchange(request: Any) -> Any:
            sent.append(request.id)
            if len(sent) == 2:
                threading.Timer(0.2, os.kill, (gateway, signal.SIGCONT)).start()
            return really(request)

        control._exchange = exchange  # type: ignore[method-assign]
        os.kill(gateway, signal.SIGSTOP)
        try:
            task = client.schedule("t.once", str(trace))
        finally:
            os.kill(gateway, signal.SIGCONT)
        assert task.wait(WAIT) == "success"
    assert len(sent) >= 2
    assert sent[0] == sent[1]
    newest = stack.call("task.list", type="t.once", limit=2)["tasks"]
    same = [
        one for one in newest if stack.call("task.show", task_id=one["id"])["param"] == str(trace)
    ]
    assert len(same) == 1
    assert trace.read_text() == "x"


def test_a_change_under_a_name_of_its_own_is_done_once(client: Client) -> None:
    first = client.schedule("demo.echo", 1, request_id="sdk-once-1")
    second = client.schedule("demo.echo", 1, request_id="sdk-once-1")
    assert first.id == second.id
    streams = [
        client.submit_batch(
            "again", "demo.noop", targets=map(str, range(6000)), request_id="sdk-once-2"
        )
        for _ in range(2)
    ]
    assert streams[0].id == streams[1].id
    assert streams[0].wait(WAIT) == "success"
    assert streams[0].total == 6000


def test_waiting_outlives_the_gateway(stack: Stack, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    # A short timeout: the answer that the gateway owes us when it dies will not come.
    with connected(stack, timeout=2.0) as client, ThreadPoolExecutor(1) as pool:
        task = client.schedule("t.gate", str(gate))
        waiting = pool.submit(task.wait, WAIT)
        killed = stack.kill("gateway")
        stack.wait_restart("gateway", killed)
        gate.touch()
        assert waiting.result(WAIT) == "success"


def test_nobody_at_the_other_end() -> None:
    with (
        Client("ipc:///tmp/drumline-nobody.sock") as client,
        pytest.raises(NotReachable, match=r"drumline-nobody\.sock; is Drumline up"),
    ):
        client.schedule("demo.noop")


def test_a_closed_client_says_so(stack: Stack) -> None:
    client = connected(stack)
    client.call("batch.list")
    client.close()
    with pytest.raises(WrongUse, match="closed"):
        client.call("batch.list")


# --- the pages -------------------------------------------------------------------------------


def test_every_snippet_of_the_sdk_page_runs(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs/sdk.md").read_text()
    snippets = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(snippets) == 9
    for name, value in stack.environment.items():
        if name.startswith("DRUMLINE_"):
            monkeypatch.setenv(name, value)
    url = database_url(stack)
    customer.create(create_engine(url, poolclass=NullPool))
    names: dict[str, Any] = {"__name__": "sdk_page", "database_url": url}
    for snippet in snippets:
        exec(compile(snippet, "docs/sdk.md", "exec"), names)  # noqa: S102
    names["engine"].dispose()
    with connected(stack) as client:
        (found,) = client.call("task.list", type="example.greet", limit=1)["tasks"][:1]
        assert client.task(found["id"]).wait(WAIT) in ("success", "cancel")


def test_every_command_of_the_examples_works(tmp_path: Path) -> None:
    text = (ROOT / "examples/README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [
        line
        for block in blocks
        for line in block.replace("\\\n", "").replace("/tmp", str(tmp_path)).splitlines()
    ]
    up, alias, *commands, down = lines
    words = shlex.split(up)
    assert words[:2] == ["bin/up", "--detach"]
    imports = tuple(words[i + 1] for i, word in enumerate(words) if word == "--import")
    assert (alias, down) == ("alias drumline=.venv/bin/drumline", "drumline down")
    zones: list[list[str]] = []
    with Stack(imports=imports) as stack:
        for command in commands:
            done = subprocess.run(
                ["/bin/sh", "-c", command.replace("drumline ", ".venv/bin/drumline ", 1)],
                cwd=ROOT,
                env=stack.environment,
                capture_output=True,
                text=True,
                timeout=WAIT,
            )
            if "submit wrong" in command:
                assert done.returncode == 2
                assert "param.file: is missing" in done.stderr
                continue
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            if command.startswith("cat "):
                found = json.loads(done.stdout)["databases"]
                zones.append([database["zone"] for database in found.values()])
    assert zones == [["b", "b", "b"], ["a", "a", "b"]]
