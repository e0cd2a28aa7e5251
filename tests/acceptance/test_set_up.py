"""The commands to set up a node: doctor, init, config and db."""

import errno
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from drumline import config
from drumline.errors import BadConfig
from tests.stack import Stack


def test_doctor_finds_no_problem_in_a_good_set_up(idle: Stack) -> None:
    findings = idle.cli("doctor")
    assert {finding["level"] for finding in findings} == {"ok"}
    assert {"python", "run_dir", "disk", "database", "handlers", "http", "supervisord"} <= {
        finding["check"] for finding in findings
    }
    assert not idle.run_path.exists(), "a check must not create anything"


def test_doctor_reports_every_problem(idle: Stack) -> None:
    shared = idle.home / "shared"
    shared.mkdir(mode=0o777)
    (shared / "file-of-another-user").touch()
    more = {
        "DRUMLINE_RUN_DIR": str(shared),
        "DRUMLINE_DATABASE_URL": "mysql://unknown@127.0.0.1:1/none",
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


def test_doctor_reports_a_wrong_configuration(idle: Stack) -> None:
    (idle.home / "drumline.toml").write_text("lease = 99\n")
    done = idle.run("doctor", check=False)
    assert done.returncode == 1
    assert "must be shorter than dead_after" in done.stdout


def test_doctor_checks_mariadb(mariadb_url: str) -> None:
    made = Stack(mariadb_url)
    try:
        found = {finding["check"]: finding for finding in made.cli("doctor")}
    finally:
        made.close()
    for check in ("server", "durability", "isolation", "packet", "time_zone", "clock"):
        assert found[check]["level"] == "ok"
    assert found["schema"]["level"] == "warn"


def test_the_files_of_init_work(idle: Stack) -> None:
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


def test_config_show_names_the_source_of_each_value(idle: Stack) -> None:
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


def test_db_upgrade_creates_the_schema_that_db_current_shows(idle: Stack) -> None:
    assert idle.run("db", "current", check=False).returncode == 4
    assert idle.cli("db", "upgrade")["before"] is None
    assert idle.cli("db", "current")["current"] == idle.cli("db", "upgrade")["before"]


def test_an_actor_of_an_unknown_name_is_refused(idle: Stack) -> None:
    done = idle.run("actor", "juggler", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("there is no actor 'juggler'")


def test_a_settings_file_that_cannot_be_read_is_named(
    idle: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = idle.home / "drumline.toml"
    file.write_bytes(b"\xff")
    assert "drumline.toml: 'utf-8' codec" in idle.run("status", check=False).stderr

    def refuse(self: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)  # root may read everything
    with pytest.raises(BadConfig, match=r"drumline.toml: Permission denied"):
        config.load({}, file)
