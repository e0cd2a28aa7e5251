"""The command line as people misuse it: one clear line, the right exit code, never a traceback.

Most cases run in this process, through the function that the entry point calls; what is about the
process itself (imports, signals, pipes) runs in one of its own. The gateway is a real one.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from drumline import cli
from drumline.domain.policy import HandlerSpec
from drumline.domain.verdict import End
from drumline.store import schema
from drumline.store.database import Database
from tests.stack import free_port
from tests.store.world import REGION, SPEC, World

UNDOES = HandlerSpec("target", "undoes", captures=True, rolls_back=True)
STRICT = HandlerSpec(
    "target",
    "strict",
    schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)
ENTRY_POINT = Path(sys.executable).parent / "drumline"


class Done(NamedTuple):
    """What a command line came to."""

    code: int
    out: str
    err: str


class Desk(NamedTuple):
    """A gateway, and the database behind it."""

    world: World
    environment: dict[str, str]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    run_dir = tempfile.mkdtemp(prefix="dl-")  # pytest's own may be too long for a socket
    yield {
        "DRUMLINE_RUN_DIR": str(run_dir),
        "DRUMLINE_DATABASE_URL": f"sqlite:///{run_dir}/drumline.db",
        "DRUMLINE_REGION": REGION,
        "DRUMLINE_NODE": "node",
        "DRUMLINE_HTTP_PORT": str(free_port()),
    }
    shutil.rmtree(run_dir)


@pytest.fixture(scope="module")
def gateway(environment: dict[str, str]) -> Iterator[Desk]:
    """A gateway without a dispatcher: whatever is submitted stays waiting."""
    database = Database(environment["DRUMLINE_DATABASE_URL"])
    schema.upgrade(database)
    world = World(database)
    world.announce(SPEC, UNDOES, STRICT)
    log = Path(environment["DRUMLINE_RUN_DIR"]) / "gateway.log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-c", "from actors.__main__ import main; main('gateway')"],
            env=os.environ | environment,
            stdout=file,
            stderr=file,
        ) as process,
    ):
        deadline = time.monotonic() + 20
        while not (log.parent / "control.sock").exists():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield Desk(world, environment)
        process.terminate()
        process.wait(20)
    database.close()


@pytest.fixture
def desk(gateway: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    for name, value in gateway.environment.items():
        monkeypatch.setenv(name, value)
    return gateway


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place where nothing runs."""
    with tempfile.TemporaryDirectory(prefix="dl-") as path:
        monkeypatch.setenv("DRUMLINE_RUN_DIR", path)
        monkeypatch.delenv("DRUMLINE_DATABASE_URL", raising=False)
        yield Path(path)


class Terminal:
    """Runs command lines in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd

    def __call__(self, *words: str) -> Done:
        code = cli.run(cli.tree(*words[:1]), list(words))
        out, err = self.capfd.readouterr()
        return Done(code, out, err)

    def data(self, *words: str) -> dict[str, object]:
        """The answer of a command that succeeds."""
        done = self(*words, "--json")
        assert done.code == 0, done
        found = json.loads(done.out)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def drumline(capfd: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capfd)


def refuses(done: Done, code: int, *words: str) -> None:
    assert done.code == code, done
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err, done.err


# --- wrong use that no gateway need be asked about -----------------------------------------------

SUBMIT = ("batch", "submit", "june", "--type", "type")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["nope"], ["'nope'"]),
        (["batsh"], ["Did you mean 'batch'?"]),
        (["batch", "shwo", "1"], ["drumline batch", "'shwo'", "Did you mean 'show'?"]),
        (["--nope"], ["--nope"]),
        (["batch", "show", "1", "--nope"], ["drumline batch show", "--nope"]),
        (["batch", "show"], ["'ID'"]),
        (["batch", "show", "1", "2"], ["2"]),
        (["batch", "show", "one"], ["'ID'", "'one'"]),
        (["batch", "show", "0"], ["'ID'", "0"]),
        (["batch", "show", "9" * 20], ["'ID'"]),
        (["batch", "list", "--status", "fine"], ["--status", "'fine'", "partial_fail"]),
        (["batch", "list", "--limit", "0"], ["--limit"]),
        (["batch", "submit"], ["NAME"]),
        (["batch", "submit", "june", "--count", "1"], ["--type"]),
        (["batch", "submit", "", "--type", "type", "--count", "1"], ["NAME", "1 to 255"]),
        (["batch", "submit", "x" * 256, "--type", "type", "--count", "1"], ["NAME"]),
        ([*SUBMIT], ["--targets", "--count"]),
        ([*SUBMIT, "--count", "1", "--targets", "f"], ["either"]),
        ([*SUBMIT, "--count", "0"], ["--count"]),
        ([*SUBMIT, "--count", "many"], ["--count", "'many'"]),
        ([*SUBMIT, "--count", "1", "--priority", "10"], ["--priority"]),
        ([*SUBMIT, "--count", "1", "--timeout", "0"], ["--timeout"]),
        ([*SUBMIT, "--count", "1", "--timeout", "nan"], ["--timeout", "nan"]),
        ([*SUBMIT, "--count", "1", "--timeout", "inf"], ["--timeout", "inf"]),
        ([*SUBMIT, "--count", "1", "--timeout", "soon"], ["--timeout", "'soon'"]),
        ([*SUBMIT, "--count", "1", "--param", "{"], ["--param", "not JSON"]),
        ([*SUBMIT, "--count", "1", "--param", "{'a': 1}"], ["--param", "not JSON"]),
        ([*SUBMIT, "--count", "1", "--param", "[" * 100_000], ["--param"]),
        ([*SUBMIT, "--count", "1", "--param", "1" * 30], ["--param", "64 bits"]),
        ([*SUBMIT, "--count", "1", "--extra", "x"], ["--extra", "not JSON"]),
        ([*SUBMIT, "--count", "1", "--env", "e" * 65], ["--env", "64"]),
        ([*SUBMIT, "--count", "1", "--request-id", ""], ["--request-id"]),
        ([*SUBMIT, "--count", "1", "--request-id", "r" * 49], ["--request-id", "48"]),
        ([*SUBMIT, "--targets", "missing.jsonl"], ["missing.jsonl", "No such file"]),
        ([*SUBMIT, "--targets", "."], [".", "directory"]),
        (["batch", "retry", "1", "--task", "x"], ["--task", "'x'"]),
        (["task", "schedule"], ["TYPE"]),
        (["task", "schedule", "t", "--at", "noon"], ["--at", "'noon'", "2030-01-31T12:00:00Z"]),
        (["task", "schedule", "t", "--at", "2030-01-01T00:00:00"], ["--at", "time zone"]),
        (["task", "schedule", "t", "--at", "1893456000000"], ["--at", "9999"]),
        (["task", "schedule", "t", "--in", "-1"], ["--in"]),
        (["task", "schedule", "t", "--in", "nan"], ["--in"]),
        (["task", "schedule", "t", "--in", "1", "--at", "0"], ["not both"]),
        (["task", "schedule", "t", "--instance", "i" * 127], ["--instance", "126"]),
        (["task", "schedule", "x" * 129], ["TYPE", "128"]),
        (["task", "list", "--status", "done"], ["--status", "'done'"]),
        (["task", "list", "--limit", "1001"], ["--limit"]),
        (["task", "reschedule", "1"], ["--at, --in or --priority"]),
        (["task", "reschedule", "1", "--at", "0", "--in", "0"], ["not both"]),
        (["worker", "drain"], ["NAME"]),
        (["completion", "powershell"], ["'powershell'", "fish"]),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_exit_code_2(
    drumline: Terminal, nowhere: Path, line: list[str], words: list[str]
) -> None:
    refuses(drumline(*line), 2, *words)


@pytest.mark.parametrize("line", [[], ["batch"], ["task"], ["worker"], ["queue"], ["handlers"]])
def test_a_group_alone_shows_its_help(drumline: Terminal, line: list[str]) -> None:
    done = drumline(*line)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: drumline")


def test_settings_that_are_wrong_are_named(
    drumline: Terminal, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMLINE_WORKERS", "some")
    refuses(drumline("batch", "show", "1"), 2, "workers")
    monkeypatch.delenv("DRUMLINE_WORKERS")
    monkeypatch.setenv("DRUMLINE_RUN_DIR", "/" + "x" * 120)
    refuses(drumline("batch", "show", "1"), 2, "run_dir")


# --- nobody there --------------------------------------------------------------------------------

NEEDS_GATEWAY = [
    [*SUBMIT, "--count", "3"],
    ["batch", "list"],
    ["batch", "show", "1"],
    ["batch", "cancel", "1", "--force"],
    ["batch", "retry", "1"],
    ["batch", "rollback", "1"],
    ["task", "schedule", "type"],
    ["task", "list"],
    ["task", "show", "1"],
    ["task", "reschedule", "1", "--in", "5"],
    ["task", "cancel", "1"],
    ["task", "retry", "1"],
    ["worker", "list"],
    ["worker", "drain", "worker-1"],
    ["worker", "kill", "worker-1"],
    ["queue", "show"],
    ["queue", "pause"],
    ["queue", "resume", "type"],
    ["handlers", "list"],
    ["handlers", "show", "type"],
]


@pytest.mark.parametrize("line", NEEDS_GATEWAY, ids=" ".join)
@pytest.mark.parametrize("json_too", [[], ["--json"]], ids=["", "json"])
def test_without_a_gateway_the_exit_code_is_3_at_once(
    drumline: Terminal, nowhere: Path, line: list[str], json_too: list[str]
) -> None:
    began = time.monotonic()
    refuses(drumline(*line, *json_too), 3, str(nowhere / "control.sock"), "is Drumline up?")
    assert time.monotonic() - began < 1


def test_a_socket_that_a_dead_gateway_left_is_not_waited_for_long(
    drumline: Terminal, nowhere: Path
) -> None:
    import zmq

    with zmq.Context() as context:
        socket = context.socket(zmq.ROUTER)
        socket.bind(f"ipc://{nowhere}/control.sock")
        # A hard link keeps the file when zmq removes it, as a kill would have.
        (nowhere / "kept.sock").hardlink_to(nowhere / "control.sock")
        socket.close(linger=0)
    (nowhere / "kept.sock").rename(nowhere / "control.sock")
    refuses(drumline("queue", "pause"), 3, "is Drumline up?", "--request-id")


# --- what the gateway refuses --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (["batch", "submit", "june", "--type", "unheard", "--count", "1"], 2, ["unheard", "type"]),
        ([*SUBMIT, "--count", "1", "--target-type", "moon"], 2, ["moon"]),
        ([*SUBMIT, "--count", "1", "--region", "mars"], 2, ["'mars'", f"'{REGION}'"]),
        (["batch", "submit", "j", "--type", "strict", "--count", "1"], 2, ["param"]),
        (["task", "schedule", "unheard"], 2, ["unheard"]),
        (["task", "schedule", "strict", "--param", '{"n": "1"}'], 2, ["param.n", "integer"]),
        (["task", "schedule", "\udcff"], 2, ["UTF-8"]),
        (["batch", "show", "9999999"], 4, ["no batch 9999999"]),
        (["batch", "watch", "9999999"], 4, ["no batch 9999999"]),
        (["batch", "cancel", "9999999"], 4, ["no batch 9999999"]),
        (["batch", "retry", "9999999"], 4, ["no batch 9999999"]),
        (["batch", "retry", "9999999", "--task", "1"], 4, ["no batch 9999999"]),
        (["batch", "rollback", "9999999"], 4, ["no batch 9999999"]),
        (["task", "show", "9999999"], 4, ["no task 9999999"]),
        (["task", "cancel", "9999999"], 4, ["no task 9999999"]),
        (["task", "retry", "9999999"], 4, ["no task 9999999"]),
        (["task", "reschedule", "9999999", "--in", "1"], 4, ["no task 9999999"]),
        (["worker", "drain", "worker-99"], 4, ["worker-99"]),
        (["worker", "kill", "worker-99"], 4, ["worker-99"]),
        (["handlers", "show", "unheard"], 4, ["unheard"]),
        (["queue", "pause", "unheard"], 2, ["unheard"]),
        (["queue", "resume", "type"], 5, ["type is not paused"]),
        (["queue", "show"], 3, ["dispatcher"]),
    ],
)  # fmt: skip
def test_what_the_gateway_refuses_is_one_line_with_its_code(
    drumline: Terminal, desk: Desk, line: list[str], code: int, words: list[str]
) -> None:
    refuses(drumline(*line), code, *words)


def test_conflicts_are_exit_code_5(drumline: Terminal, desk: Desk) -> None:
    batch_id = str(drumline.data(*SUBMIT, "--count", "2")["batch_id"])
    refuses(drumline("batch", "retry", batch_id), 5, "no failed task")
    refuses(drumline("batch", "rollback", batch_id), 5, "no rollback")
    assert drumline("batch", "cancel", batch_id).code == 0
    refuses(drumline("batch", "cancel", batch_id), 5, "already cancelled")
    task_id = str(drumline.data("task", "schedule", "type", "--instance", "i")["task_id"])
    refuses(drumline("task", "schedule", "type", "--instance", "i"), 5, f"task {task_id}")
    refuses(drumline("task", "retry", task_id), 5, "only failed")
    assert drumline("task", "cancel", task_id).code == 0
    refuses(drumline("task", "cancel", task_id), 5, "already cancel")


# --- targets files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.jsonl", b"", ["none in the file"]),
        ("t.jsonl", b"\n\n", ["none in the file"]),
        ("t.jsonl", b'{"target_id": "a"}\n{"target_id": 5}\n', ["line 2: target_id: expected"]),
        ("t.jsonl", b'{"target_id": "a"}\n\n{"name": "b"}\n', ["line 3:", "`name`"]),
        ("t.jsonl", b'{"target_id": "a"}\n{"target_id": ', ["line 2:", "not JSON"]),
        ("t.jsonl", b"[]\n", ["line 1:", "object"]),
        ("t.jsonl", b'{"target_id": "\xff"}\n', ["line 1:", "not JSON"]),
        ("t.jsonl", b'{"param": ' + b"1" * 30 + b"}\n", ["line 1:", "64 bits"]),
        ("t.jsonl", b'{"param": ' + b"[" * 100_000 + b"\n", ["line 1:"]),
        ("t.jsonl", b'{"param": "' + b"x" * (5 * 2**20) + b'"}\n', ["line 1:", "bytes"]),
        ("t.jsonl", b'{}\n{"param": "' + b"x" * (2 * 2**20) + b'"}\n', ["line 2:", "bytes"]),
        ("t.csv", b"", ["line 1:", "header"]),
        ("t.csv", b"target_id\n", ["none in the file"]),
        ("t.csv", b"target_id,size\na,1\n", ["line 1:", "'size'", "target_name"]),
        ("t.csv", b"target_id,target_id\na,b\n", ["line 1:", "once"]),
        ("t.csv", b"target_id,param\na,1\nb\n", ["line 3:", "1 cells"]),
        ("t.csv", b"target_id,param\na,1\n\nb,{\n", ["line 4: param:", "not JSON"]),
        ("t.csv", b'target_id,param\na,"1\n', ["line 2:"]),
        ("t.csv", b"target_id\na\n\xff\n", ["UTF-8"]),
        ("t.csv", b"target_id\n" + b"x" * 256 + b"\n", ["line 2: target_id:"]),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_submitted(
    drumline: Terminal, desk: Desk, tmp_path: Path, name: str, content: bytes, words: list[str]
) -> None:
    before = drumline.data("batch", "list", "--limit", "1")
    path = tmp_path / name
    path.write_bytes(content)
    if words == ["none in the file"]:
        refuses(drumline(*SUBMIT, "--targets", str(path)), 2, *words)
    else:
        refuses(drumline(*SUBMIT, "--targets", str(path)), 2, str(path), *words)
    assert drumline.data("batch", "list", "--limit", "1") == before


def many(path: Path, lines: int, last: str = "") -> str:
    path.write_text("".join(f'{{"target_id": "t{i}"}}\n' for i in range(lines)) + last)
    return str(path)


def test_a_bad_line_far_down_takes_back_all_that_was_loaded_before_it(
    drumline: Terminal, desk: Desk, tmp_path: Path
) -> None:
    before = drumline.data("batch", "list", "--limit", "1")
    file = many(tmp_path / "t.jsonl", 12_000, last='{"target_id": []}\n')
    refuses(drumline(*SUBMIT, "--targets", file), 2, f"{file} line 12001: target_id:")
    assert drumline.data("batch", "list", "--limit", "1") == before
    assert desk.world.dues() == [] or all(due.batch_id is None for due in desk.world.dues())


def test_what_only_the_gateway_can_know_of_a_line_names_the_line_too(
    drumline: Terminal, desk: Desk, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"param": {"n": 1}}\n\n{"param": {"n": 1.5}}\n')
    line = ("batch", "submit", "june", "--type", "strict", "--targets", str(path))
    refuses(drumline(*line), 2, f"{path} line 3: param.n:", "integer")


def test_a_large_file_is_one_batch_and_repeated_it_is_still_one(
    drumline: Terminal, desk: Desk, tmp_path: Path
) -> None:
    file = many(tmp_path / "t.jsonl", 11_000)
    line = (*SUBMIT, "--targets", file, "--request-id", "large")
    first = drumline.data(*line)
    assert first["tasks"] == 11_000
    assert drumline.data(*line) == first
    shown = drumline.data("batch", "show", str(first["batch_id"]))
    assert (shown["total"], shown["counts"]) == (11_000, {"pending": 11_000})
    desk.world.check_laws()
    assert drumline("batch", "cancel", str(first["batch_id"])).code == 0


def test_csv_and_standard_input_are_read(drumline: Terminal, desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('\ufefftarget_id,param\na,"{""n"": 1}"\nb,\n', encoding="utf-8")
    batch_id = drumline.data(*SUBMIT, "--targets", str(path), "--param", "7")["batch_id"]
    found = drumline.data("task", "list", "--batch", str(batch_id))["tasks"]
    assert isinstance(found, list)
    params = [drumline.data("task", "show", str(one["id"]))["param"] for one in found]
    assert params == [7, {"n": 1}]
    done = subprocess.run(
        [ENTRY_POINT, *SUBMIT, "--targets", "-", "--json"],
        input='{"target_id": "a"}\n',
        env=os.environ | desk.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["tasks"] == 1


# --- answers -------------------------------------------------------------------------------------


def test_a_change_repeated_under_its_request_id_is_answered_the_same(
    drumline: Terminal, desk: Desk
) -> None:
    line = ("task", "schedule", "type", "--in", "60", "--request-id", "same")
    assert drumline.data(*line) == drumline.data(*line)


def test_in_a_pipe_output_is_plain_and_talk_is_apart(drumline: Terminal, desk: Desk) -> None:
    batch_id = drumline.data(*SUBMIT, "--count", "3", "--creator", "me")["batch_id"]
    done = drumline("batch", "list", "--limit", "1")
    header, row = done.out.splitlines()
    assert header.split() == [
        "ID", "NAME", "TYPE", "STATUS", "DONE", "FAILED", "TOTAL", "CREATOR", "CREATED",
    ]  # fmt: skip
    assert row.split()[:8] == [str(batch_id), "june", "type", "pending", "0", "0", "3", "me"]
    assert "\x1b" not in done.out
    assert f"--before {batch_id}" in done.err


def test_what_comes_from_outside_cannot_command_the_terminal(
    drumline: Terminal, desk: Desk
) -> None:
    line = ("batch", "submit", "a\x1b[2J\nb", "--type", "type", "--count", "1")
    batch_id = drumline.data(*line)["batch_id"]
    for look in (["batch", "list", "--limit", "1"], ["batch", "show", str(batch_id)]):
        assert "\x1b" not in drumline(*look).out


@pytest.mark.parametrize(
    ("type_", "ends", "code", "status"),
    [
        ("type", [End.SUCCESS, End.SUCCESS], 0, "success"),
        ("type", [End.SUCCESS, End.ERROR], 1, "partial_fail"),
    ],
)
def test_watch_says_by_its_exit_code_how_a_batch_ended(
    drumline: Terminal, desk: Desk, type_: str, ends: list[End], code: int, status: str
) -> None:
    line = ("batch", "submit", "june", "--type", type_, "--count", "2")
    batch_id = drumline.data(*line)["batch_id"]
    assert isinstance(batch_id, int)
    keeper = desk.world.keeper()
    for member, end in zip(desk.world.members(batch_id), ends, strict=True):
        desk.world.run(keeper, [member], end)
    done = drumline("batch", "watch", str(batch_id), "--json")
    assert done.code == code
    assert json.loads(done.out)["status"] == status


def test_watching_a_rollback_wants_the_rollback_to_succeed(
    drumline: Terminal, desk: Desk, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"before_update": 1}\n{"before_update": 2}\n')
    line = ("batch", "submit", "june", "--type", "undoes", "--targets", str(path))
    batch_id = drumline.data(*line)["batch_id"]
    assert isinstance(batch_id, int)
    keeper, members = desk.world.keeper(), desk.world.members(batch_id)
    desk.world.run(keeper, members)
    assert drumline("batch", "watch", str(batch_id)).code == 0
    assert drumline("batch", "rollback", str(batch_id)).code == 0
    desk.world.run(keeper, members[:1])
    desk.world.run(keeper, members[1:], End.ERROR)
    done = drumline("batch", "watch", str(batch_id))
    assert (done.code, "rollback_fail" in done.out) == (1, True)
    assert drumline("batch", "retry", str(batch_id)).code == 0
    desk.world.run(keeper, members[1:])
    assert drumline("batch", "watch", str(batch_id)).code == 0


# --- the process ---------------------------------------------------------------------------------


def test_ctrl_c_ends_a_watch_quietly_with_130(drumline: Terminal, desk: Desk) -> None:
    batch_id = drumline.data(*SUBMIT, "--count", "1")["batch_id"]
    with subprocess.Popen(
        [ENTRY_POINT, "batch", "watch", str(batch_id)],
        env=os.environ | desk.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        assert "pending" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stdout.read() == ""
        assert process.stderr.read().strip() == ""


def test_a_reader_that_leaves_is_no_error_message(desk: Desk) -> None:
    with subprocess.Popen(
        [ENTRY_POINT, "batch", "list", "--json"],
        env=os.environ | desk.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.wait(10)
        assert process.stderr.read() == ""


def test_the_entry_point_gives_the_exit_code(nowhere: Path) -> None:
    done = subprocess.run([ENTRY_POINT, "batch", "show", "1"], capture_output=True, text=True)
    refuses(Done(done.returncode, done.stdout, done.stderr), 3)
    done = subprocess.run([ENTRY_POINT, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "drumline")


@pytest.mark.parametrize(
    "line", [["--help"], ["batch", "submit", "--help"], ["batch", "show", "x"]]
)
def test_help_and_wrong_use_import_nothing_heavy(line: list[str]) -> None:
    script = (
        "import sys; from drumline import cli; cli.run(cli.tree(sys.argv[1]), sys.argv[1:]); "
        "sys.stdout.write('\\n' + ' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *line], capture_output=True, text=True, check=True
    )
    heavy = {"sqlalchemy", "alembic", "rich", "zmq", "uvicorn", "starlette", "prometheus_client"}
    assert heavy & set(done.stdout.splitlines()[-1].split()) == set()


def every_command(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every_command(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


@pytest.mark.parametrize(("path", "command"), list(every_command(cli.tree())))
def test_every_command_explains_itself_and_speaks_json(path: str, command: click.Command) -> None:
    assert command.help, path
    assert command.epilog and f"drumline {path}" in command.epilog, f"{path} has no example"
    assert any("--json" in option.opts for option in command.params), path


@pytest.mark.parametrize(("path", "command"), list(every_command(cli.tree())))
def test_every_command_is_in_a_file_of_its_noun(path: str, command: click.Command) -> None:
    """Or else it would not be found: a call imports the files of its noun only."""
    noun = path.split()[0]
    file = command.callback.__module__.rpartition(".")[2]
    assert f"{file}_".startswith(f"{noun}_")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(drumline: Terminal, shell: str) -> None:
    done = drumline("completion", shell)
    assert done.code == 0
    assert "_DRUMLINE_COMPLETE" in done.out


def test_completion_completes(nowhere: Path) -> None:
    asked = {"_DRUMLINE_COMPLETE": "bash_complete", "COMP_WORDS": "drumline batch s",
             "COMP_CWORD": "2"}  # fmt: skip
    done = subprocess.run([ENTRY_POINT], env=os.environ | asked, capture_output=True, text=True)
    assert done.stdout.split() == ["plain,show", "plain,submit"]
