"""The command line as a process: signals, pipes, imports, help and completion."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from drumline import commands
from drumline.cli import main
from tests.acceptance.terminal import ENTRY_POINT, SUBMIT, Done, RunningGateway, Terminal, refuses


def test_ctrl_c_ends_watch_with_130_and_no_message(
    drumline: Terminal, gateway: RunningGateway
) -> None:
    batch_id = drumline.data(*SUBMIT, "--count", "1")["batch_id"]
    with subprocess.Popen(
        [ENTRY_POINT, "batch", "watch", str(batch_id)],
        env=os.environ | gateway.environment,
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


def test_a_closed_pipe_causes_no_error_message(gateway: RunningGateway) -> None:
    with subprocess.Popen(
        [ENTRY_POINT, "batch", "list", "--json"],
        env=os.environ | gateway.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.wait(10)
        assert process.stderr.read() == ""


def test_the_entry_point_returns_the_exit_code(empty_run_dir: Path) -> None:
    done = subprocess.run([ENTRY_POINT, "batch", "show", "1"], capture_output=True, text=True)
    refuses(Done(done.returncode, done.stdout, done.stderr), 3)
    done = subprocess.run([ENTRY_POINT, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "drumline")


@pytest.mark.parametrize(
    "line", [["--help"], ["batch", "submit", "--help"], ["batch", "show", "x"]]
)
def test_help_and_wrong_use_import_nothing_heavy(line: list[str]) -> None:
    script = (
        "import sys; from drumline.cli import main as cli; "
        "cli.run(cli.tree(sys.argv[1]), sys.argv[1:]); "
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


@pytest.mark.parametrize(("path", "command"), list(every_command(main.tree())))
def test_every_command_has_help_an_example_and_json(path: str, command: click.Command) -> None:
    assert command.help, path
    assert command.epilog and f"drumline {path}" in command.epilog, f"{path} has no example"
    assert any("--json" in option.opts for option in command.params), path


@pytest.mark.parametrize(("path", "command"), list(every_command(main.tree())))
def test_every_command_is_in_the_package_of_its_noun(path: str, command: click.Command) -> None:
    """A call imports the modules of its noun only: a command elsewhere would not be found."""
    noun = path.split()[0]
    assert command.callback.__module__ in {module.__name__ for module in commands.modules(noun)}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(drumline: Terminal, shell: str) -> None:
    done = drumline("completion", shell)
    assert done.code == 0
    assert "_DRUMLINE_COMPLETE" in done.out


def test_completion_lists_matching_commands(empty_run_dir: Path) -> None:
    asked = {"_DRUMLINE_COMPLETE": "bash_complete", "COMP_WORDS": "drumline batch s",
             "COMP_CWORD": "2"}  # fmt: skip
    done = subprocess.run([ENTRY_POINT], env=os.environ | asked, capture_output=True, text=True)
    assert done.stdout.split() == ["plain,show", "plain,submit"]
