"""The sweep commands: results, errors of one line, exit codes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.domain.policy import HandlerSpec, SweepTraits
from drumline.domain.sweeps.definition import PARTITION_TARGET_TYPE
from tests.acceptance.terminal import RunningGateway, Terminal, refuses

PLAIN = HandlerSpec(PARTITION_TARGET_TYPE, "plain", sweep=SweepTraits())
CREATE = ("sweep", "create", "june", "--type", "plain")


@pytest.fixture
def gateway(
    gateway_process: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningGateway]:
    """A gateway with a sweep handler and without workers."""
    for name, value in gateway_process.environment.items():
        monkeypatch.setenv(name, value)
    gateway_process.world.announce(PLAIN)
    yield gateway_process


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["sweep", "creat"], ["Did you mean 'create'?"]),
        (["sweep", "create"], ["NAME"]),
        (["sweep", "create", "june", "--total", "5"], ["--type"]),
        (["sweep", "create", "", "--type", "t", "--total", "5"], ["NAME", "1 to 128"]),
        ([*CREATE], ["--total or --items"]),
        ([*CREATE, "--total", "5", "--items", "http://h/x"], ["--total or --items"]),
        ([*CREATE, "--total", "0"], ["--total"]),
        ([*CREATE, "--total", "many"], ["--total", "'many'"]),
        ([*CREATE, "--items", "missing.txt"], ["--items", "no file missing.txt"]),
        ([*CREATE, "--total", "5", "--rate", "0"], ["--rate"]),
        ([*CREATE, "--total", "5", "--rate", "fast"], ["--rate", "'fast'"]),
        ([*CREATE, "--total", "5", "--rate", "nan"], ["--rate"]),
        ([*CREATE, "--total", "5", "--parallel", "0"], ["--parallel"]),
        ([*CREATE, "--total", "5", "--errors", "-1"], ["--errors"]),
        ([*CREATE, "--total", "5", "--partitions", "2000"], ["--partitions"]),
        ([*CREATE, "--total", "5", "--extra", "{"], ["--extra", "not JSON"]),
        (["sweep", "start"], ["SWEEP"]),
        (["sweep", "stop", "s", "--reason", "x" * 501], ["--reason", "500"]),
        (["sweep", "list", "--state", "lost"], ["--state", "'lost'", "waiting"]),
        (["sweep", "list", "--limit", "0"], ["--limit"]),
        (["sweep", "update", "s", "--unset", "name"], ["--unset", "'name'"]),
        (["sweep", "log", "s", "--index", "-1"], ["--index"]),
        (["sweep", "failed", "s", "--after", "x"], ["--after", "'x'"]),
        (["sweep", "rerun", "s", "--first", "-1"], ["--first"]),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    drumline: Terminal, empty_run_dir: Path, line: list[str], words: list[str]
) -> None:
    refuses(drumline(*line), 2, *words)


@pytest.mark.parametrize(
    "line",
    [
        [*CREATE, "--total", "5"], ["sweep", "start", "s"], ["sweep", "stop", "s"],
        ["sweep", "ready", "s"], ["sweep", "list"], ["sweep", "show", "s"],
        ["sweep", "update", "s", "--rate", "1"], ["sweep", "log", "s"], ["sweep", "failed", "s"],
        ["sweep", "rerun", "s"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_without_a_gateway_the_exit_code_is_3(
    drumline: Terminal, empty_run_dir: Path, line: list[str]
) -> None:
    refuses(drumline(*line), 3, "is Drumline up?")


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (["sweep", "create", "x", "--type", "unknown", "--total", "5"], 2, ["'unknown'", "plain"]),
        (["sweep", "create", "77", "--type", "plain", "--total", "5"], 2, ["name", "an id"]),
        ([*CREATE, "--total", "5", "--partitions", "6"], 2, ["partitions"]),
        ([*CREATE, "--total", "5", "--parallel", "300"], 2, ["parallel", "not async"]),
        (["task", "schedule", "plain"], 2, ["drumline sweep create"]),
        *(
            (["sweep", verb, "nothing"], 4, ["no sweep nothing"])
            for verb in ("start", "stop", "ready", "show", "watch", "log", "failed", "rerun")
        ),
        (["sweep", "update", "nothing", "--rate", "1"], 4, ["no sweep nothing"]),
        (["sweep", "show", "9" * 19], 4, ["no sweep"]),
    ],
)
def test_an_error_of_the_gateway_is_one_line_with_its_exit_code(
    drumline: Terminal, gateway: RunningGateway, line: list[str], code: int, words: list[str]
) -> None:
    refuses(drumline(*line), code, *words)


def test_a_sweep_from_the_command_line(
    drumline: Terminal, gateway: RunningGateway, tmp_path: Path
) -> None:
    made = drumline.data("sweep", "create", "a", "--type", "plain", "--total", "10", "--rate", "5")
    assert (made["state"], made["total"], made["rate"]) == ("created", 10, 5.0)
    refuses(drumline("sweep", "create", "a", "--type", "plain", "--total", "10"), 5, "already")
    refuses(drumline("sweep", "stop", "a"), 5, "The sweep is created")
    assert drumline("sweep", "start", "a").out == (
        f"sweep {made['id']} a: running, 0 of 10 done, 0 errors\n"
    )
    refuses(drumline("sweep", "start", "a"), 5, "an operator may start it only from created or")
    refuses(drumline("sweep", "ready", "a"), 5, "the handler may start it only from waiting")
    shown = drumline("sweep", "show", str(made["id"]))
    assert shown.code == 0 and "0: 0 of 0 to 10" in shown.out
    listed = drumline("sweep", "list", "--state", "running")
    assert listed.out.splitlines()[1].split()[:4] == [str(made["id"]), "a", "plain", "running"]
    assert drumline.data("sweep", "update", "a", "--unset", "rate")["rate"] is None
    stopped = drumline("sweep", "stop", "a", "--reason", "for now")
    assert stopped.code == 0 and stopped.out.endswith(": for now\n")
    watched = drumline("sweep", "watch", "a")
    assert watched.code == 1, "a stopped sweep has not succeeded"
    again = drumline.data("sweep", "rerun", "a", "--first", "2", "--end", "4", "--no-start")
    assert (again["name"], again["total"], again["state"]) == ("a-rerun-1", 2, "created")
    refuses(drumline("sweep", "rerun", "a", "--first", "5", "--end", "2"), 2, "first and end")
    nothing = drumline("sweep", "failed", "a")
    assert (nothing.code, nothing.out) == (0, "") and "No item has failed" in nothing.err
    file = tmp_path / "items"
    file.write_text("x\n")
    lines = drumline.data(
        "sweep", "create", "b", "--type", "plain", "--items", str(file), "--start"
    )
    assert (lines["state"], lines["items"]) == ("waiting", str(file))


def test_every_command_has_examples_in_its_help(drumline: Terminal) -> None:
    verbs = "create start ready stop list show watch update log failed rerun"
    for verb in verbs.split():
        done = drumline("sweep", verb, "--help")
        assert done.code == 0 and f"drumline sweep {verb}" in done.out.split("Examples:")[1]
