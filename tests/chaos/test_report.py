"""The report shows the records around a violation and the faults that were not injected."""

from chaos.context import NodeContext
from chaos.history import Began, Called, Ended, FaultInjected, FaultMissed, History, Record
from chaos.laws import Violation, check
from chaos.report import page


def began(at: float, task_id: int, fence: int) -> Began:
    return Began(
        at=at, task_id=task_id, fence=fence, attempt=fence, type="chaos.sync", timeout=20.0,
        runner_pid=11, keeper_pid=10,
    )  # fmt: skip


SUBMITTED = Called(
    at=12.0, request_id="r", command="task.schedule", arguments={}, answer={"task_id": 1}
)
FIRST, SECOND = began(13.0, 1, fence=1), began(15.0, 1, fence=2)
END = Ended(at=16.0, task_id=1, fence=1)
NEAR = FaultInjected(at=13.5, kind="stop-worker", until=14.5, pids=(10,))
RECORDS: list[Record] = [
    FaultInjected(at=0.5, kind="kill-ticker", until=0.5),
    SUBMITTED,
    FIRST,
    began(13.2, 2, fence=1),
    NEAR,
    SECOND,
    END,
    FaultMissed(at=17.0, kind="kill-runner", reason="no runner was running"),
]


def test_a_violation_is_shown_with_its_tasks_and_the_faults_near_it() -> None:
    history = History(RECORDS)
    (violation,) = [v for v in check(history) if v.law == "runs_of_a_task_never_overlap"]
    assert NodeContext(history).around(violation) == [SUBMITTED, FIRST, NEAR, SECOND, END]


def test_a_violation_without_records_is_shown_with_its_tasks() -> None:
    violation = Violation("law", "task 1 is still pending", tasks=(1,))
    around = NodeContext(History(RECORDS)).around(violation)
    assert around == [SUBMITTED, FIRST, NEAR, SECOND, END]


def test_the_page_tells_the_violation_and_the_fault_that_was_not_injected() -> None:
    history = History(RECORDS)
    text = page(history, check(history), "bin/chaos --seed 1")
    assert "not injected             1  kill-runner (no runner was running) 1\n" in text
    assert "task 1 ran under fences 1 and 2 at the same time" in text
    line = "task 1 began under fence 2, attempt 2, in runner 11 of keeper 10"
    assert f">   14.500 s  {line}" in text
    assert "13.000 s  fault stop-worker hit 10, until 1.0 s later" in text
