"""The pure parts of the benchmark: order of samples, medians, ratios, targets, tables."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from bench import docs, limit
from bench.catalogue import AGAINST, PLANS, WITH_PEERS, benchmarks
from bench.figure import (
    BEST_PEER,
    LIMIT,
    OTHER_CHECKOUT,
    OURS,
    Benchmark,
    BenchOptions,
    Contestant,
    Figure,
    FigureTarget,
    Samples,
    at_least,
    at_most,
)
from bench.peers.measure import rate_after_ramp_up
from bench.peers.peer import PEERS
from bench.report import HEAD, markdown_table, number, row_of, with_spread, write_json
from bench.results import all_met, is_met, latency_summary, result_of, target_text
from bench.rounds import steps_of, take_samples, time_left

RATE = Figure("P1", "throughput", "tasks/s", (at_least(0.5, LIMIT),), higher_is_better=True)
DELAY = Figure("P3", "latency", "ms", (at_most(2, "Dramatiq"),))


def contestant(name: str, *values: float, seconds: float = 1) -> Contestant:
    left = iter(values)
    return Contestant(name, seconds, lambda: {"P1": next(left)})


def test_the_values_are_medians_and_the_ratio_is_the_median_of_the_ratios_in_each_round() -> None:
    samples = {OURS: [10.0, 40.0, 30.0], LIMIT: [20.0, 50.0, 100.0], "Celery": [1.0, 5.0, 3.0]}
    result = result_of(RATE, samples)
    assert (result.ours, result.limit, result.peers) == (30, 50, {"Celery": 3})
    assert result.ratio == 0.5  # of 0.5, 0.8 and 0.3; the ratio of the medians would be 0.6
    assert result.spread == {
        OURS: (10, 40),
        LIMIT: (20, 100),
        "Celery": (1, 5),
        "ratio": (0.3, 0.8),
    }
    assert result.met is True


def test_without_a_limit_there_is_no_ratio_and_a_target_on_it_is_not_judged() -> None:
    result = result_of(RATE, {OURS: [10.0]})
    assert (result.limit, result.ratio, result.met) == (None, None, None)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (at_least(10), True),
        (at_least(10.1), False),
        (at_most(10), True),
        (at_most(9.9), False),
        (at_least(0.5, LIMIT), True),
        (at_least(0.51, LIMIT), False),
        (at_least(2, BEST_PEER), True),
        (at_least(2.1, BEST_PEER), False),
        (at_most(10, "RQ"), True),
        (at_most(1, "Procrastinate"), None),
    ],
    ids=lambda value: target_text(value) if isinstance(value, FigureTarget) else str(value),
)
def test_whether_a_target_is_met(target: FigureTarget, expected: bool | None) -> None:
    samples = {OURS: [10.0], LIMIT: [20.0], "RQ": [1.0], "Huey": [5.0]}
    assert is_met(RATE, target, samples) is expected


def test_the_best_peer_is_the_lowest_where_lower_is_better() -> None:
    samples = {OURS: [10.0], "RQ": [20.0], "Huey": [5.0]}
    assert is_met(DELAY, at_most(2, BEST_PEER), samples) is True
    assert is_met(DELAY, at_most(1.9, BEST_PEER), samples) is False
    assert is_met(DELAY, at_most(1, BEST_PEER), {OURS: [10.0]}) is None


def test_another_checkout_is_shown_with_the_peers_but_is_not_the_best_of_them() -> None:
    samples = {OURS: [10.0], OTHER_CHECKOUT: [9.0], "RQ": [1.0]}
    assert is_met(RATE, at_least(10, BEST_PEER), samples) is True
    assert result_of(RATE, samples).peers == {OTHER_CHECKOUT: 9, "RQ": 1}


def test_a_value_of_zero_is_exceeded_by_any_other() -> None:
    assert is_met(DELAY, at_most(1, "RQ"), {OURS: [0.1], "RQ": [0.0]}) is False


def test_a_missed_target_decides_and_an_unjudged_one_leaves_the_answer_open() -> None:
    assert all_met([True, True]) is True
    assert all_met([True, None, False]) is False
    assert all_met([True, None]) is None
    assert all_met([]) is None


def test_contestants_take_turns() -> None:
    benchmark = Benchmark((RATE,), (contestant(OURS), contestant(LIMIT), contestant("RQ")), 2)
    assert [(s.round, s.contestant.name) for s in steps_of([benchmark])] == [
        (0, OURS),
        (0, LIMIT),
        (0, "RQ"),
        (1, OURS),
        (1, LIMIT),
        (1, "RQ"),
    ]


def test_the_time_left_counts_measured_durations_before_expected_ones() -> None:
    benchmark = Benchmark((RATE,), (contestant(OURS, seconds=10), contestant(LIMIT, seconds=5)), 2)
    steps = steps_of([benchmark])
    assert time_left(steps, {}) == 30
    assert time_left(steps[1:], {(0, OURS): 4.0}) == 5 + 4 + 5


def test_samples_are_kept_by_figure_and_contestant_and_progress_is_shown() -> None:
    benchmark = Benchmark((RATE,), (contestant(OURS, 1, 2), contestant(LIMIT, 3, 4)), 2)
    samples: Samples = {}
    texts: list[str] = []
    assert take_samples([benchmark], samples, texts.append, texts.append)
    assert samples == {"P1": {OURS: [1, 2], LIMIT: [3, 4]}}
    assert texts[0] == "P1, round 1 of 2: ours; about 0:04 left"
    assert len(texts) == 4


def test_a_peer_that_fails_is_left_out_with_a_warning() -> None:
    broken = contestant("RQ", 5)  # its second sample raises StopIteration
    benchmark = Benchmark((RATE,), (contestant(OURS, 1, 2, 3), broken), 3)
    samples: Samples = {}
    warnings: list[str] = []
    assert not take_samples([benchmark], samples, lambda _: None, warnings.append)
    assert samples == {"P1": {OURS: [1, 2, 3]}}
    assert len(warnings) == 1 and warnings[0].startswith("P1: RQ failed and is left out")


@pytest.mark.parametrize("name", [OURS, LIMIT])
def test_a_failure_of_ours_or_of_the_limit_leaves_the_figure_out(name: str) -> None:
    other = {OURS: LIMIT, LIMIT: OURS}[name]
    broken = Benchmark((RATE,), (contestant(other, 1, 2), contestant(name, 5)), 3)
    samples: Samples = {}
    warnings: list[str] = []
    assert not take_samples([broken], samples, lambda _: None, warnings.append)
    assert samples == {}
    assert len(warnings) == 1


def test_numbers_are_short() -> None:
    assert [number(v) for v in (0.4123, 5.94, 99.9, 1234.5)] == ["0.412", "5.94", "99.9", "1,234"]
    assert with_spread(None, None) == ""
    assert with_spread(5.0, (5.0, 5.0)) == "5"
    assert with_spread(5.0, (4.0, 7.5)) == "5 (4 to 7.5)"


def test_a_row_of_the_table() -> None:
    result = result_of(RATE, {OURS: [10.0, 12.0], LIMIT: [20.0, 20.0], "RQ": [1.0, 3.0]})
    assert row_of(result) == (
        "P1",
        "throughput",
        "11 (10 to 12) tasks/s",
        "20",
        "0.55 (0.5 to 0.6)",
        "RQ 2 (1 to 3)",
        "≥ 0.5 x limit",
        "yes",
    )
    lines = markdown_table([result]).splitlines()
    assert len(lines) == 3
    assert {line.count("|") for line in lines} == {len(HEAD) + 1}


def test_the_json_has_what_a_reader_needs(tmp_path: Path) -> None:
    write_json([result_of(RATE, {OURS: [10.0], LIMIT: [40.0]})], tmp_path / "results.json")
    (found,) = json.loads((tmp_path / "results.json").read_text())
    assert found == {
        "id": "P1",
        "title": "throughput",
        "ours": 10,
        "unit": "tasks/s",
        "peers": {},
        "limit": 40,
        "ratio": 0.25,
        "spread": {OURS: [10, 10], LIMIT: [40, 40], "ratio": [0.25, 0.25]},
        "target": "≥ 0.5 x limit",
        "met": False,
    }


def test_the_latency_is_summed_up_by_median_tail_and_their_ratio() -> None:
    found = latency_summary([float(n) for n in range(101)])
    assert found == {"P3": 50, "P3b": 99, "P3c": 1.98}


def test_the_rate_of_a_peer_leaves_its_start_up_out() -> None:
    ramp_up = [0.0]
    steady = [100 + n / 50 for n in range(10)]
    assert rate_after_ramp_up([*ramp_up, *steady]) == pytest.approx(50)


@pytest.mark.parametrize("quick", [True, False])
def test_every_figure_has_an_id_of_its_own_and_is_measured_on_ours_first(quick: bool) -> None:
    planned = benchmarks(PLANS, BenchOptions(quick=quick, peers=PEERS))
    ids = [figure.id for benchmark in planned for figure in benchmark.figures]
    assert len(ids) == len(set(ids))
    assert all(benchmark.contestants[0].name == OURS for benchmark in planned)


def test_the_targets_name_peers_that_are_measured() -> None:
    measured = {
        (figure.id, contestant.name)
        for benchmark in benchmarks(PLANS, BenchOptions(peers=PEERS))
        for figure in benchmark.figures
        for contestant in benchmark.contestants
    }
    for benchmark in benchmarks(PLANS, BenchOptions(peers=PEERS)):
        for figure in benchmark.figures:
            for target in figure.targets:
                assert target.of in ("", BEST_PEER) or (figure.id, target.of) in measured


def test_the_figures_with_peers_and_those_against_another_checkout_exist() -> None:
    assert set(AGAINST) | WITH_PEERS <= PLANS.keys()


def test_the_page_gets_the_results_between_its_marks() -> None:
    page = docs.PAGE.read_text()
    text = docs.results_text([result_of(RATE, {OURS: [10.0], LIMIT: [40.0]})])
    once = docs.with_results(page, text)
    assert "Targets that are not met: P1." in once
    assert docs.with_results(once, text) == once
    assert once.partition(docs.BEGIN)[0] == page.partition(docs.BEGIN)[0]
    assert once.partition(docs.END)[2] == page.partition(docs.END)[2]


def test_the_limit_acquires_and_releases_each_row_once() -> None:
    with sqlite3.connect(":memory:") as connection:
        for statement in limit.SQLITE_DDL:
            connection.execute(statement)
        database = limit.PlainDatabase(connection, "?")
        database.insert(3)
        ids = "?, ?"
        for statement, values, conditions in (
            (limit.ACQUIRE, limit.ACQUIRE_VALUES, limit.ACQUIRE_CONDITIONS),
            (limit.RELEASE, limit.RELEASE_VALUES, limit.RELEASE_CONDITIONS),
        ):
            text = statement.format(ids=ids)
            assert database.execute(text, (*values, 1, 2, *conditions)) == 2
            assert database.execute(text, (*values, 1, 2, *conditions)) == 0
        rows = connection.execute("SELECT status, attempt, version, fence FROM task").fetchall()
    assert rows == [("success", 1, 2, 1), ("success", 1, 2, 1), ("pending", 0, 0, 0)]
