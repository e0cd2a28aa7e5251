"""Changing a job: what is not named stays, and a wrong change changes nothing."""

import pytest

from drumline.errors import NotFound, VersionConflict, WrongUse
from tests.store.desk import Desk
from tests.store.job_samples import SAMPLE
from tests.store.job_world import JobWorld
from tests.store.world import not_none


def test_a_change_leaves_the_rest_as_it_was(desk: Desk, world: JobWorld) -> None:
    before = desk("job.create", **SAMPLE)
    after = desk("job.update", job="sample", version=1, cron_expr="*/20 * * * *", name="renamed")
    different = {name for name in after if after[name] != before[name]}
    assert different == {"name", "cron_expr", "version", "next_firing"}
    run = world.task(desk("job.trigger", job="renamed")["task_id"])
    assert "Bearer abcdefgh" in not_none(run.param), "its secrets are still there"
    with pytest.raises(VersionConflict, match="at version 2, not 1"):
        desk("job.update", job="renamed", version=1, max_concurrency=5)
    with pytest.raises(WrongUse, match="nothing to change"):
        desk("job.update", job="renamed")
    with pytest.raises(NotFound):
        desk("job.update", job="sample", max_concurrency=5)


def test_what_was_read_can_be_sent_back(desk: Desk, world: JobWorld) -> None:
    """With stars where the secrets are, which stay what they were."""
    desk("job.create", **SAMPLE)
    read = desk("job.show", job="sample")
    sent = {name: read[name] for name in SAMPLE} | {"description": "edited"}
    desk("job.update", job=read["id"], version=read["version"], **sent)
    run = world.task(desk("job.trigger", job="sample")["task_id"])
    assert "Bearer abcdefgh" in not_none(run.param)
    world.clock.at(1)
    changed = {"Authorization": "Bearer other-one"}
    desk("job.update", job="sample", headers_json=changed)
    assert "Bearer other-one" in not_none(
        world.task(desk("job.trigger", job="sample")["task_id"]).param
    )


def test_a_call_can_become_a_task_and_the_reverse(desk: Desk) -> None:
    desk("job.create", **SAMPLE)
    task = desk("job.update", job="sample", type="strict", param={"n": 3})
    assert (task["type"], task["target_url"], task["param"]) == ("strict", None, {"n": 3})
    assert task["timeout_seconds"] == 20
    call = desk("job.update", job="sample", target_url="http://h/x")
    assert (call["type"], call["target_url"], call["param"]) == ("http", "http://h/x", None)


def test_fields_can_be_emptied(desk: Desk) -> None:
    desk("job.create", **SAMPLE | {"ends_at": "2031-01-01T00:00:00Z", "env": "prod"})
    assert desk("job.update", job="sample", ends_at=None)["ends_at"] is None
    shown = desk("job.update", job="sample", unset=["env", "max_concurrency"])
    assert (shown["env"], shown["max_concurrency"]) == (None, 0)
    with pytest.raises(WrongUse, match="'name' cannot be unset"):
        desk("job.update", job="sample", unset=["name"])


def test_a_wrong_change_changes_nothing(desk: Desk) -> None:
    before = desk("job.create", **SAMPLE)
    for wrong in ({"cron_expr": "nonsense"}, {"target_url": "http://h/{{x}}"}, {"type": "no"}):
        with pytest.raises(WrongUse):
            desk("job.update", job="sample", **wrong)
    assert desk("job.show", job="sample").items() >= before.items()


def test_enable_and_disable_are_said_once(desk: Desk, world: JobWorld) -> None:
    made = desk("job.create", **SAMPLE)
    world.materialise(made["id"], 60)
    assert desk("job.enable", job="sample")["version"] == 1, "it is: its firings stay"
    assert len(world.seconds(made["id"])) == 4
    off = desk("job.disable", job="sample", version=1)
    assert (off["status"], off["version"], off["next_firing"]) == ("DISABLED", 2, None)
    assert world.seconds(made["id"]) == []
    with pytest.raises(VersionConflict):
        desk("job.enable", job="sample", version=1)
    with pytest.raises(VersionConflict):
        desk("job.disable", job="sample", version=1)
    assert desk("job.enable", job="sample", version=2)["status"] == "ENABLED"


def test_a_deleted_job_is_gone_and_its_runs_are_not(desk: Desk, world: JobWorld) -> None:
    made = desk("job.create", **SAMPLE)
    run = desk("job.trigger", job="sample")["task_id"]
    assert desk("job.delete", job="sample")["deleted"] is True
    for command in ("job.show", "job.enable", "job.trigger", "job.runs", "job.delete"):
        with pytest.raises(NotFound):
            desk(command, job=made["id"])
    assert desk("job.list")["jobs"] == []
    assert desk("task.show", task_id=run)["status"] == "cancel"
