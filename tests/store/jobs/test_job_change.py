"""Updating, enabling, disabling and deleting jobs."""

import pytest

from drumline.errors import NotFound, VersionConflict, WrongUse
from tests.store.job_samples import SAMPLE
from tests.store.job_world import JobWorld
from tests.store.stub_gateway import StubGateway
from tests.store.world import not_none


def test_an_update_leaves_other_fields_unchanged(gateway: StubGateway, world: JobWorld) -> None:
    before = gateway("job.create", **SAMPLE)
    after = gateway("job.update", job="sample", version=1, cron_expr="*/20 * * * *", name="renamed")
    different = {name for name in after if after[name] != before[name]}
    assert different == {"name", "cron_expr", "version", "next_firing"}
    run = world.task(gateway("job.trigger", job="renamed")["task_id"])
    assert "Bearer abcdefgh" in not_none(run.param), "its secrets are kept"
    with pytest.raises(VersionConflict, match="at version 2, not 1"):
        gateway("job.update", job="renamed", version=1, max_concurrency=5)
    with pytest.raises(WrongUse, match="nothing to change"):
        gateway("job.update", job="renamed")
    with pytest.raises(NotFound):
        gateway("job.update", job="sample", max_concurrency=5)


def test_a_job_that_was_read_can_be_sent_back(gateway: StubGateway, world: JobWorld) -> None:
    """Masked secrets keep their stored values."""
    gateway("job.create", **SAMPLE)
    read = gateway("job.show", job="sample")
    sent = {name: read[name] for name in SAMPLE} | {"description": "edited"}
    gateway("job.update", job=read["id"], version=read["version"], **sent)
    run = world.task(gateway("job.trigger", job="sample")["task_id"])
    assert "Bearer abcdefgh" in not_none(run.param)
    world.clock.at(1)
    changed = {"Authorization": "Bearer other-one"}
    gateway("job.update", job="sample", headers_json=changed)
    assert "Bearer other-one" in not_none(
        world.task(gateway("job.trigger", job="sample")["task_id"]).param
    )


def test_a_job_can_change_from_a_call_to_a_task_and_back(gateway: StubGateway) -> None:
    gateway("job.create", **SAMPLE)
    task = gateway("job.update", job="sample", type="strict", param={"n": 3})
    assert (task["type"], task["target_url"], task["param"]) == ("strict", None, {"n": 3})
    assert task["timeout_seconds"] == 20
    call = gateway("job.update", job="sample", target_url="http://h/x")
    assert (call["type"], call["target_url"], call["param"]) == ("http", "http://h/x", None)


def test_fields_can_be_unset(gateway: StubGateway) -> None:
    gateway("job.create", **SAMPLE | {"ends_at": "2031-01-01T00:00:00Z", "env": "prod"})
    assert gateway("job.update", job="sample", ends_at=None)["ends_at"] is None
    shown = gateway("job.update", job="sample", unset=["env", "max_concurrency"])
    assert (shown["env"], shown["max_concurrency"]) == (None, 0)
    with pytest.raises(WrongUse, match="'name' cannot be unset"):
        gateway("job.update", job="sample", unset=["name"])


def test_a_refused_update_changes_nothing(gateway: StubGateway) -> None:
    before = gateway("job.create", **SAMPLE)
    for wrong in ({"cron_expr": "nonsense"}, {"target_url": "http://h/{{x}}"}, {"type": "no"}):
        with pytest.raises(WrongUse):
            gateway("job.update", job="sample", **wrong)
    assert gateway("job.show", job="sample").items() >= before.items()


def test_enabling_an_enabled_job_changes_nothing_and_versions_are_checked(
    gateway: StubGateway, world: JobWorld
) -> None:
    made = gateway("job.create", **SAMPLE)
    world.materialise(made["id"], 60)
    assert gateway("job.enable", job="sample")["version"] == 1, "it is enabled: its firings stay"
    assert len(world.seconds(made["id"])) == 4
    off = gateway("job.disable", job="sample", version=1)
    assert (off["status"], off["version"], off["next_firing"]) == ("DISABLED", 2, None)
    assert world.seconds(made["id"]) == []
    with pytest.raises(VersionConflict):
        gateway("job.enable", job="sample", version=1)
    with pytest.raises(VersionConflict):
        gateway("job.disable", job="sample", version=1)
    assert gateway("job.enable", job="sample", version=2)["status"] == "ENABLED"


def test_the_runs_of_a_deleted_job_stay(gateway: StubGateway, world: JobWorld) -> None:
    made = gateway("job.create", **SAMPLE)
    run = gateway("job.trigger", job="sample")["task_id"]
    assert gateway("job.delete", job="sample")["deleted"] is True
    for command in ("job.show", "job.enable", "job.trigger", "job.runs", "job.delete"):
        with pytest.raises(NotFound):
            gateway(command, job=made["id"])
    assert gateway("job.list")["jobs"] == []
    assert gateway("task.show", task_id=run)["status"] == "cancel"
