"""Every operation on connectors, against clusters that behave like Kafka Connect."""

from __future__ import annotations

from typing import Any

import pytest

from drumline.errors import WrongUse
from drumline.handlers.base import Handler
from drumline.handlers.connect.change_config import ChangeConfig
from drumline.handlers.connect.client import ConnectError
from drumline.handlers.connect.move import SwitchAz, SwitchRunSystem
from drumline.handlers.connect.panama import PanamaMigrate
from drumline.handlers.connect.reset_gtid import ResetGtid
from drumline.handlers.connect.start_stop import StartConnector, StopConnector
from examples.connect_standin.cluster import SOURCE, Manners
from examples.connect_standin.faults import Fault
from tests.connect_world import Crash, Kept, Saboteur, World, together, world

PANAMA = {
    "source": {
        "host": "db.example", "user": "repl", "password": "${file:/secrets:db}", "server_id": 9,
    },
    "topic_prefix": "shop",
    "bootstrap_servers": "kafka:9092",
    "tables": ["shop.orders"],
    "start_at": {"file": "mysql-bin.000003", "pos": 4, "gtids": f"{SOURCE}:1-77"},
}  # fmt: skip

OPERATIONS: dict[str, tuple[Handler, Any, str]] = {
    "start": (StartConnector(), None, "stopped"),
    "stop": (StopConnector(), None, "orders"),
    "change_config": (
        ChangeConfig(),
        {"replicas": 3, "cpu": 0.5, "set": {"max.batch.size": "1"}, "unset": ["database.user"]},
        "orders",
    ),
    "reset_gtid": (ResetGtid(), {"gtids": f"{SOURCE}:1-5"}, "orders"),
    "switch_az": (SwitchAz(), {"to_az": "az-b", "set": {"database.hostname": "db-b"}}, "orders"),
    "switch_run_system": (SwitchRunSystem(), {"to_system": "vm", "system": "k8s"}, "orders"),
    "panama": (PanamaMigrate(), {**PANAMA, "system": "k8s"}, "shop"),
}


async def prepared(made: World) -> None:
    made["a"].cluster.seed(["orders", "stopped"])
    made["a"].cluster.aim(made["a"].cluster.connectors["stopped"], "STOPPED")
    await made["a"].cluster.connectors["stopped"].work  # type: ignore[misc]


def place(param: Any) -> Any:
    """Two systems serve az a; where it does not matter, the test means k8s."""
    return {"system": "k8s", **(param or {})}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_done_found_done_and_rolled_back(name: str) -> None:
    handler, param, target = OPERATIONS[name]

    async def main() -> None:
        async with world() as made:
            await prepared(made)
            before, kept = made.snapshot(), Kept()
            await made.run(handler, place(param), target=target, kept=kept)
            done = made.snapshot()
            assert done != before
            changes = len(made["a"].journal)

            await made.run(handler, place(param), target=target, kept=kept)
            assert made.snapshot() == done
            assert len(made["a"].journal) == changes, "a second run changed something"

            await made.run(handler, place(param), target=target, kept=kept, rollback=True)
            assert made.snapshot() == before
            await made.run(handler, place(param), target=target, kept=kept, rollback=True)
            assert made.snapshot() == before

    together(main())


@pytest.mark.parametrize("after", [False, True], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_survives_a_crash_at_every_change(name: str, after: bool) -> None:
    handler, param, target = OPERATIONS[name]

    async def attempt(made: World, kept: Kept, at: int, *, rollback: bool) -> bool:
        """Crash at the n-th change, begin again. False when there is no n-th change."""
        with Saboteur(at, after=after) as saboteur:
            try:
                await made.run(handler, place(param), target=target, kept=kept, rollback=rollback)
            except Crash:
                await made.run(handler, place(param), target=target, kept=kept, rollback=rollback)
        return saboteur.struck

    async def once(at: int, expected: Any) -> bool:
        async with world() as made:
            await prepared(made)
            before, kept = made.snapshot(), Kept()
            struck = await attempt(made, kept, at, rollback=False)
            assert made.snapshot() == expected, f"crash at change {at}"
            undone = await attempt(made, kept, at, rollback=True)
            assert made.snapshot() == before, f"crash at change {at} of the rollback"
            return struck or undone

    async def straight() -> Any:
        async with world() as made:
            await prepared(made)
            await made.run(handler, place(param), target=target)
            return made.snapshot()

    async def main() -> None:
        at, expected = 0, await straight()
        while await once(at, expected):
            at += 1
        assert at > 0

    together(main())


@pytest.mark.parametrize("after", [False, True], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_half_done_operation_is_rolled_back(name: str, after: bool) -> None:
    """A task that failed in the middle is rolled back without having been finished first."""
    handler, param, target = OPERATIONS[name]

    async def once(at: int) -> bool:
        async with world() as made:
            await prepared(made)
            before, kept = made.snapshot(), Kept()
            with Saboteur(at, after=after):
                try:
                    await made.run(handler, place(param), target=target, kept=kept)
                    return False
                except Crash:
                    pass
            await made.run(handler, place(param), target=target, kept=kept, rollback=True)
            assert made.snapshot() == before, f"crash at change {at}"
            return True

    async def main() -> None:
        at = 0
        while await once(at):
            at += 1
        assert at > 0

    together(main())


@pytest.mark.parametrize("what", ["lose", "refuse"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_survives_answers_that_get_lost(name: str, what: str) -> None:
    """The first three changes have no answer, or are refused: looked after, then asked again."""
    handler, param, target = OPERATIONS[name]

    def trouble() -> list[Fault]:
        return [Fault("POST|PUT|PATCH|DELETE", what=what, times=3)]

    async def main() -> None:
        async with world() as made:
            await prepared(made)
            await made.run(handler, place(param), target=target)
            expected = made.snapshot()
        async with world() as made:
            await prepared(made)
            before, kept = made.snapshot(), Kept()
            for server in made.servers.values():
                server.faults = trouble()
            await made.run(handler, place(param), target=target, kept=kept)
            assert made.snapshot() == expected
            for path in ("/config$", "/offsets$", "/connectors$"):
                for server in made.servers.values():
                    # A move sets the configuration of its copy once more, to take the mark off.
                    assert max(server.count("PATCH|POST", path).values(), default=0) <= 1
            for server in made.servers.values():
                server.faults = trouble()
            await made.run(handler, place(param), target=target, kept=kept, rollback=True)
            assert made.snapshot() == before

    together(main())


def test_reset_gtid_is_not_repeated_after_the_connector_went_on() -> None:
    """Once it runs, its offsets move: only the mark says that they were reset."""

    async def main() -> None:
        async with world(Manners(delay=0.004, rebalance=0.002, events=100_000.0)) as made:
            made["a"].cluster.seed(["orders"])
            kept, param = Kept(), place({"gtids": f"{SOURCE}:1-5"})
            with Saboteur(2, after=True) as saboteur, pytest.raises(Crash):
                await made.run(ResetGtid(), param, kept=kept)
            assert saboteur.struck
            await made.run(ResetGtid(), param, kept=kept)
            assert made["a"].count("PATCH", "/offsets") == {"orders": 1}

    together(main())


def test_offsets_are_altered_only_when_the_tasks_are_gone() -> None:
    """A task that is still going down writes its offsets last: they must not win."""

    async def main() -> None:
        async with world(Manners(delay=0.05, rebalance=0.0, events=10.0)) as made:
            made["a"].cluster.seed(["orders"])
            connector = made["a"].cluster.connectors["orders"]
            made["a"].cluster.aim(connector, "PAUSED")  # so that nothing moves after the reset
            await connector.work
            await made.run(ResetGtid(), place({"gtids": f"{SOURCE}:1-5"}))
            ((_, offset),) = [v for k, v in connector.offsets.items() if "server" in k]
            assert offset["gtids"] == f"{SOURCE}:1-5"

    together(main())


def test_move_takes_the_newest_offsets_both_ways() -> None:
    async def main() -> None:
        async with world(Manners(delay=0.004, rebalance=0.0, events=50_000.0)) as made:
            made["a"].cluster.seed(["orders"])
            kept, param = Kept(), place({"to_az": "az-b"})
            await made.run(SwitchAz(), param, kept=kept)
            assert "orders" not in made["a"].cluster.connectors
            moved = made["b"].cluster.connectors["orders"]
            at_b = moved.done
            assert at_b > 1000
            await made.run(SwitchAz(), param, kept=kept, rollback=True)
            assert made["a"].cluster.connectors["orders"].done >= at_b

    together(main())


def test_change_of_a_paused_connector_leaves_it_paused() -> None:
    async def main() -> None:
        async with world() as made:
            made["a"].cluster.seed(["orders"])
            connector = made["a"].cluster.connectors["orders"]
            made["a"].cluster.aim(connector, "PAUSED")
            await connector.work
            await made.run(ChangeConfig(), place({"replicas": 2}))
            assert connector.config["tasks.max"] == "2"
            assert connector.target == connector.state == "PAUSED"

    together(main())


def test_older_connect_without_patch_gets_the_whole_config() -> None:
    async def main() -> None:
        async with world(Manners(delay=0.004, patch_config=False, events=0.0)) as made:
            made["a"].cluster.seed(["orders"])
            before = dict(made["a"].cluster.connectors["orders"].config)
            kept = Kept()
            await made.run(ChangeConfig(), place({"replicas": 2}), kept=kept)
            now = made["a"].cluster.connectors["orders"].config
            assert now == before | {"tasks.max": "2"}
            await made.run(ChangeConfig(), place({"replicas": 2}), kept=kept, rollback=True)
            assert made["a"].cluster.connectors["orders"].config == before

    together(main())


def test_start_restarts_what_failed() -> None:
    async def main() -> None:
        async with world() as made:
            made["a"].cluster.seed(["orders"], {"standin.fail": "task"})
            connector = made["a"].cluster.connectors["orders"]
            made["a"].cluster.restart(connector)
            await connector.work
            assert connector.tasks[0]["state"] == "FAILED"
            del connector.config["standin.fail"]
            await made.run(StartConnector(), place(None))
            assert connector.tasks[0]["state"] == "RUNNING"

    together(main())


def test_connector_that_fails_is_an_error_with_its_reason_and_without_its_password() -> None:
    async def main() -> None:
        async with world() as made:
            made["a"].cluster.seed(["orders"])
            with pytest.raises(ConnectError) as caught:
                await made.run(ChangeConfig(), place({"set": {"standin.fail": "task"}}))
            assert "its task 0 failed" in str(caught.value)
            assert "Access denied with password ***" in str(caught.value)
            assert "plain-secret" not in str(caught.value)

    together(main())


@pytest.mark.parametrize(
    ("handler", "param", "target", "words"),
    [
        (StopConnector(), {}, "nobody", "no connector nobody in Connect cluster a"),
        (ChangeConfig(), {}, "orders", "it changes nothing"),
        (ChangeConfig(), {"set": {"name": "x"}}, "orders", "cannot be changed"),
        (
            ChangeConfig(), {"set": {"database.password": "hunter22"}}, "orders",
            "database.password in the new configuration is a plain secret",
        ),
        (
            ChangeConfig(), {"set": {"database.password": "${file:/x:y}"}}, "orders",
            "database.password in the present configuration is a plain secret",
        ),
        (ResetGtid(), {}, "orders", "give gtids, or file and pos"),
        (SwitchAz(), {"to_az": "az-z"}, "orders", "no Connect cluster fits"),
        (PanamaMigrate(), {**PANAMA}, "orders", "another connector orders exists"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_before_anything_changes(
    handler: Handler, param: Any, target: str, words: str
) -> None:
    async def main() -> None:
        async with world() as made:
            await prepared(made)
            kept = Kept()
            with pytest.raises(WrongUse) as caught:
                await made.run(handler, place(param), target=target, kept=kept)
            assert words in str(caught.value)
            assert kept.before is None
            assert not made["a"].journal

    together(main())


def test_connector_in_both_clusters_is_not_moved() -> None:
    async def main() -> None:
        async with world() as made:
            made["a"].cluster.seed(["orders"])
            made["b"].cluster.seed(["orders"])
            with pytest.raises(WrongUse, match="exists in a and in b"):
                await made.run(SwitchAz(), place({"to_az": "az-b"}))

    together(main())


def test_rollback_of_a_move_refuses_to_delete_a_copy_that_runs() -> None:
    async def main() -> None:
        async with world() as made:
            made["a"].cluster.seed(["orders"])
            kept, param = Kept(), place({"to_az": "az-b"})
            await made.run(SwitchAz(), param, kept=kept)
            made["a"].cluster.seed(["orders"])  # somebody made it again
            with pytest.raises(WrongUse, match="also runs in b"):
                await made.run(SwitchAz(), param, kept=kept, rollback=True)
            assert "orders" in made["b"].cluster.connectors

    together(main())


def test_secrets_stay_in_connect() -> None:
    """Neither what is kept of a task nor what it did to other settings knows the password."""

    async def main() -> None:
        async with world() as made:
            await prepared(made)
            for handler, param, target in OPERATIONS.values():
                kept = Kept()
                await made.run(handler, place(param), target=target, kept=kept)
                await made.run(handler, place(param), target=target, kept=kept, rollback=True)
                assert kept.before is not None
                assert kept.after is not None
                assert "plain-secret" not in kept.before + kept.after
            kept_there = made["a"].cluster.connectors["orders"].config["database.password"]
            assert kept_there == "plain-secret-of-orders"

    together(main())
