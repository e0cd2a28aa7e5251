"""A node that cannot start reports the reason and leaves no process behind."""

import fcntl
import socket

from tests.acceptance.node import EVERYWHERE
from tests.stack import Stack


def refused(stack: Stack, code: int, *arguments: str, **settings: str) -> str:
    """The stderr of an `up` that must fail and leave no process behind."""
    more = {f"DRUMLINE_{name.upper()}": value for name, value in settings.items()}
    done = stack.run("up", "--detach", *arguments, check=False, more=more)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert stack.processes() == {}
    return done.stderr


def test_port_in_use_is_named(idle: Stack) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", idle.http_port))
        other.listen()
        assert f"Port {idle.http_port} " in refused(idle, 5)


def test_handlers_that_cannot_be_imported_are_named(idle: Stack) -> None:
    (idle.home / "broken.py").write_text("import nosuchthing\n")
    stderr = refused(idle, 2, "--import", "broken")
    assert "import broken: ModuleNotFoundError: No module named 'nosuchthing'" in stderr


def test_an_unreachable_database_is_named(idle: Stack) -> None:
    assert "Can't connect" in refused(idle, 3, "--database", "mysql://unknown@127.0.0.1:1/none")


def test_a_database_of_an_unknown_kind_is_refused(idle: Stack) -> None:
    assert "known: sqlite, mysql" in refused(idle, 2, "--database", "oracle://host/name")


def test_a_run_directory_that_others_can_read_is_refused(idle: Stack) -> None:
    shared = idle.home / "shared"
    shared.mkdir(mode=0o755)
    (shared / "file-of-another-user").touch()
    assert "is open to others" in refused(idle, 2, run_dir=str(shared))
    assert shared.stat().st_mode & 0o777 == 0o755


def test_a_run_directory_too_long_for_a_socket_is_refused(idle: Stack) -> None:
    assert "too long for a socket" in refused(idle, 2, run_dir=str(idle.home / ("x" * 90)))


def test_a_process_that_does_not_start_shows_its_log(idle: Stack) -> None:
    idle.run_path.mkdir(mode=0o700)
    with (idle.run_path / "dispatcher.sock.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        stderr = refused(idle, 1)
    assert "another process serves it already" in stderr
    assert stderr.splitlines()[-1] == "Drumline did not start: dispatcher failed"


def test_wrong_arguments_are_refused_before_anything_is_created(idle: Stack) -> None:
    for arguments in (["--workers", "0"], ["--nosuch"], ["--workers", "many"], ["more"]):
        refused(idle, 2, *arguments)
    assert not idle.run_path.exists()


def test_the_gateway_does_not_listen_on_all_addresses_without_a_token(idle: Stack) -> None:
    idle.run("db", "upgrade")
    gateway = idle.run("actor", "gateway", check=False, more={"DRUMLINE_HTTP_HOST": EVERYWHERE})
    assert gateway.returncode == 2
    assert "there is no API token" in gateway.stderr
