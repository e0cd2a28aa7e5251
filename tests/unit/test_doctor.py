"""The findings of doctor for problems that a test cannot cause for real."""

from pathlib import Path

import pytest

from drumline.handlers import import_check
from drumline.masking import mask_setting, mask_url
from drumline.node import doctor, doctor_database
from drumline.store import schema

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
35 22 0:40 / /srv rw - xfs /dev/sdb1 rw
36 35 0:41 / /srv/shared\\040data rw master:2 - nfs4 server:/export rw
37 22 0:42 / /home rw - fuse.sshfs me@host: rw
"""


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/var/lib/drumline.db", "ext4"),
        ("/srv/drumline.db", "xfs"),
        ("/srv/shared data/deep/drumline.db", "nfs4"),
        ("/srv/shared database/drumline.db", "xfs"),
        ("/home/me/drumline.db", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_mount_point(
    file: str, kind: str, tmp_path: Path
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert doctor_database.filesystem(Path(file), mounts) == kind


@pytest.mark.parametrize(
    ("kind", "level"), [("ext4", "ok"), ("nfs4", "fail"), ("cifs", "fail"), ("fuse.sshfs", "warn")]
)
def test_sqlite_over_a_network_is_refused(
    kind: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_database, "filesystem", lambda file: kind)
    assert list(doctor_database.sqlite(Path("/x/drumline.db")))[-1].level == level


@pytest.mark.parametrize(
    ("version", "level", "words"),
    [
        ((3, 34, 1), "fail", "too old"),
        ((3, 40, 1), "ok", "only the reaper"),
        ((3, 51, 3), "ok", ""),
    ],
)
def test_the_bug_of_older_sqlite_versions_is_reported(
    version: tuple[int, int, int], level: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version_info", version)
    finding = next(doctor_database.sqlite(Path("/x/drumline.db")))
    assert finding.level == level
    assert words in finding.text + finding.advice
    assert ("only the reaper" in finding.text) == (words == "only the reaper")


def test_a_server_that_can_lose_commits_is_a_warning() -> None:
    lax = {"innodb_flush_log_at_trx_commit": "2", "log_bin": "ON", "sync_binlog": "0"}
    assert [finding.level for finding in doctor_database.durable(lax)] == ["warn", "warn"]
    strict = {"innodb_flush_log_at_trx_commit": "1", "log_bin": "OFF", "sync_binlog": "0"}
    assert [finding.level for finding in doctor_database.durable(strict)] == ["ok"]


@pytest.mark.parametrize(("megabytes", "level"), [(1, "fail"), (8, "warn"), (16, "ok")])
def test_a_small_packet_limit_is_reported(megabytes: int, level: str) -> None:
    assert doctor_database.packet(megabytes * 2**20).level == level


def test_an_older_schema_can_be_upgraded_and_a_newer_one_cannot_be_used() -> None:
    assert doctor_database.at_version(schema.HEAD).level == "ok"
    assert doctor_database.at_version(None).level == "warn"
    assert doctor_database.at_version("0000").level == "warn"
    assert doctor_database.at_version("9999").level == "fail"


def test_an_unknown_variable_is_reported() -> None:
    environment = {"DRUMLINE_WORKERS": "2", "DRUMLINE_WORKRES": "2", "PATH": "/bin"}
    assert doctor.unknown_variables(environment) == ["DRUMLINE_WORKRES"]


# --- handlers that cannot be imported --------------------------------------------------------


def found_in(
    directory: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> import_check.ImportReport:
    (directory / "tried.py").write_text(text)
    monkeypatch.chdir(directory)
    return import_check.read_import_report(import_check.start_import_check(["tried"]), seconds=30)


def test_the_output_of_an_import_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import drumline\nprint('{}', end='')\n@drumline.handler('x.y')\ndef f(t): ...\n"
    found = found_in(tmp_path, text, monkeypatch)
    assert "x.y/x.y" in found.handlers
    assert not found.problems


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1/0", "import tried: ZeroDivisionError: division by zero"),
        ("def", "import tried: SyntaxError"),
        ("import os; os._exit(7)", "the imports ended the process (7)"),
        ("import os; os.kill(os.getpid(), 9)", "the imports ended the process (-9)"),
    ],
)
def test_a_failed_import_is_one_line(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = found_in(tmp_path, text, monkeypatch).problems
    assert [import_check.last_line(problem)[: len(words)] for problem in problems] == [words]


def test_an_import_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tried.py").write_text("import time; time.sleep(1000)")
    monkeypatch.chdir(tmp_path)
    looking = import_check.start_import_check(["tried"])
    assert import_check.read_import_report(looking, seconds=0.1).problems == (
        "the imports did not end within 0.1 s",
    )
    assert looking.returncode is not None


# --- secrets ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://me:sesame@host/name", "mysql://me:***@host/name"),
        ("mysql://me:se:s@me@host/name", "mysql://me:***@host/name"),
        ("mysql://me@host:3306/name", "mysql://me@host:3306/name"),
        ("sqlite:////var/a:b@c.db", "sqlite:////var/a:b@c.db"),
    ],
)
def test_a_password_in_a_url_is_not_shown(url: str, shown: str) -> None:
    assert mask_url(url) == shown


def test_secrets_are_masked_however_deep_they_are() -> None:
    value = [{"url": "http://me:sesame@host", "password": "sesame", "name": "open"}]
    shown = [{"url": "http://me:***@host", "password": "***", "name": "open"}]
    assert mask_setting("connect", value) == shown
    assert mask_setting("api_token", "sesame") == "***"
    assert mask_setting("api_token", "") == ""
    assert mask_setting("http_allow_private", True) is True
