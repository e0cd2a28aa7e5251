"""The runs of a job: listed, predicted, triggered and retried, within one region."""

from typing import Any

import pytest

from drumline.domain.release import RunEnd
from drumline.errors import Conflict, DrumlineError, WrongUse
from drumline.store.job import firings, jobs
from drumline.store.job.firings import Plan
from tests.store.job_samples import SAMPLE, TASK
from tests.store.job_world import SECOND, STANDARD, START, JobWorld
from tests.store.stub_gateway import StubGateway
from tests.store.world import REGION, not_none


def test_runs_are_listed_by_status_and_time_in_pages(gateway: StubGateway, world: JobWorld) -> None:
    job_id, worker = world.job(name="busy", overlap_action="SKIP"), world.keeper()
    world.run_firing(job_id, 1, worker)
    world.fire(job_id, 2)
    world.start(job_id, 2, worker)
    world.fire(job_id, 3)
    world.materialise(job_id, 10)

    def runs(**options: Any) -> list[tuple[int, str]]:
        found = gateway("job.runs", job="busy", **options)["runs"]
        times = {r["id"]: not_none(world.task(r["id"]).scheduled_at) for r in found}
        return [((times[r["id"]] - START) // SECOND, r["status"]) for r in found]

    assert runs() == [(3, "skipped"), (2, "running"), (1, "success")]
    assert runs(status=["success", "skipped"]) == [(3, "skipped"), (1, "success")]
    assert runs(since=str(START // SECOND + 2)) == [(3, "skipped"), (2, "running")]
    assert runs(until=str(START // SECOND + 2)) == [(2, "running"), (1, "success")]
    assert len(runs(status=["scheduled"])) == 7, "those to come, if they are asked for"
    page = gateway("job.runs", job="busy", limit=2)
    assert [r["status"] for r in page["runs"]] == ["skipped", "running"]
    assert page["runs"][0]["reason"].startswith("skipped: 1 earlier run")
    rest = gateway("job.runs", job="busy", limit=2, before=page["next"])
    assert [r["status"] for r in rest["runs"]] == ["success"] and rest["next"] is None
    with pytest.raises(WrongUse, match="since"):
        runs(since="yesterday")


def test_next_firings_of_jobs_and_expressions(gateway: StubGateway) -> None:
    gateway("job.create", **TASK | {"timezone": "Europe/Berlin"})
    found = gateway("job.next", job="task", after="2030-03-29T12:00:00Z", count=2)
    assert found["firings"] == [
        {"utc": "2030-04-01T04:00:00.000000Z", "local": "2030-04-01T06:00:00+02:00"},
        {"utc": "2030-04-02T04:00:00.000000Z", "local": "2030-04-02T06:00:00+02:00"},
    ]
    bare = gateway("job.next", cron_expr="*/30 * * * * *", count=3)
    assert [one["utc"][-10:] for one in bare["firings"]] == [
        "30.000000Z",
        "00.000000Z",
        "30.000000Z",
    ]
    assert gateway("job.next", cron_expr="@after 5s")["firings"] == []
    for wrong in ({}, {"job": "task", "cron_expr": "* * * * *"}, {"cron_expr": "* * *"}):
        with pytest.raises(WrongUse):
            gateway("job.next", **wrong)


def test_a_trigger_answers_with_its_outcome_and_reason(
    gateway: StubGateway, world: JobWorld
) -> None:
    gateway("job.create", **SAMPLE | {"overlap_action": "ALLOW"})
    done = [gateway("job.trigger", job="sample")]
    world.clock.at(0.1)
    done.append(gateway("job.trigger", job="sample"))
    gateway("job.update", job="sample", concurrency_policy="SKIP")
    world.clock.at(0.2)
    done.append(gateway("job.trigger", job="sample"))
    assert [one["done"] for one in done] == ["runs", "queued", "skipped"]
    assert "max_concurrency is 1" in done[1]["reason"]
    assert done[2]["cause"] == "concurrency"
    assert "max_concurrency is 1" in gateway("task.show", task_id=done[1]["task_id"])["why"]


def test_a_failed_run_is_retried_under_the_limit(gateway: StubGateway, world: JobWorld) -> None:
    job_id, worker = world.job(max_concurrency=1), world.keeper()
    world.run_firing(job_id, 1, worker, RunEnd.ERROR)
    failed = world.at(job_id, 1).id
    world.fire(job_id, 2)
    with pytest.raises(Conflict, match="max_concurrency is 1"):
        gateway("task.retry", task_id=failed)
    world.start(job_id, 2, worker)
    world.finish(job_id, 2, worker)
    assert gateway("task.retry", task_id=failed)["status"] == "retry_pending"
    assert world.fire(job_id, 3).state == "scheduled", "the retried run counts"


def test_firings_of_another_region_are_not_listed(gateway: StubGateway, world: JobWorld) -> None:
    other = world.write(lambda tx: jobs.create(tx, "elsewhere", STANDARD))
    with pytest.raises(DrumlineError):
        gateway("job.show", job=other)
    row = world.job_row(other)
    world.write(lambda tx: firings.materialise(tx, [Plan(row, [START + SECOND], START + SECOND)]))
    world.clock.at(2)
    assert world.database.read(lambda tx: firings.read_undecided(tx, REGION, tx.now, 10)) == []
