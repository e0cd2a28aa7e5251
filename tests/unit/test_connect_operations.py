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
from tests.connect_clusters import (
    ClusterSet,
    Crash,
    CrashAtChange,
    StoredCapture,
    run_with_timeout,
    running_clusters,
)

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


async def seed_connectors(clusters: ClusterSet) -> None:
    clusters["a"].cluster.seed(["orders", "stopped"])
    clusters["a"].cluster.aim(clusters["a"].cluster.connectors["stopped"], "STOPPED")
    await clusters["a"].cluster.connectors["stopped"].work  # type: ignore[misc]


def with_system(param: Any) -> Any:
    """Two systems serve az a: use k8s unless the param names one."""
    return {"system": "k8s", **(param or {})}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_idempotent_and_can_be_rolled_back(name: str) -> None:
    handler, param, target = OPERATIONS[name]

    async def main() -> None:
        async with running_clusters() as clusters:
            await seed_connectors(clusters)
            before, stored = clusters.snapshot(), StoredCapture()
            await clusters.run(handler, with_system(param), target=target, stored=stored)
            done = clusters.snapshot()
            assert done != before
            changes = len(clusters["a"].journal)

            await clusters.run(handler, with_system(param), target=target, stored=stored)
            assert clusters.snapshot() == done
            assert len(clusters["a"].journal) == changes, "a second run changed something"

            await clusters.run(
                handler, with_system(param), target=target, stored=stored, rollback=True
            )
            assert clusters.snapshot() == before
            await clusters.run(
                handler, with_system(param), target=target, stored=stored, rollback=True
            )
            assert clusters.snapshot() == before

    run_with_timeout(main())


@pytest.mark.parametrize("after", [False, True], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_survives_a_crash_at_every_change(name: str, after: bool) -> None:
    handler, param, target = OPERATIONS[name]

    async def attempt(
        clusters: ClusterSet, stored: StoredCapture, at: int, *, rollback: bool
    ) -> bool:
        """Crash at the n-th change and run again. False if there is no n-th change."""
        with CrashAtChange(at, after=after) as crash:
            try:
                await clusters.run(
                    handler, with_system(param), target=target, stored=stored, rollback=rollback
                )
            except Crash:
                await clusters.run(
                    handler, with_system(param), target=target, stored=stored, rollback=rollback
                )
        return crash.crashed

    async def once(at: int, expected: Any) -> bool:
        async with running_clusters() as clusters:
            await seed_connectors(clusters)
            before, stored = clusters.snapshot(), StoredCapture()
            crashed = await attempt(clusters, stored, at, rollback=False)
            assert clusters.snapshot() == expected, f"crash at change {at}"
            undone = await attempt(clusters, stored, at, rollback=True)
            assert clusters.snapshot() == before, f"crash at change {at} of the rollback"
            return crashed or undone

    async def without_crash() -> Any:
        async with running_clusters() as clusters:
            await seed_connectors(clusters)
            await clusters.run(handler, with_system(param), target=target)
            return clusters.snapshot()

    async def main() -> None:
        at, expected = 0, await without_crash()
        while await once(at, expected):
            at += 1
        assert at > 0

    run_with_timeout(main())


@pytest.mark.parametrize("after", [False, True], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_interrupted_operation_is_rolled_back(name: str, after: bool) -> None:
    """A task that failed in the middle is rolled back without having been finished first."""
    handler, param, target = OPERATIONS[name]

    async def once(at: int) -> bool:
        async with running_clusters() as clusters:
            await seed_connectors(clusters)
            before, stored = clusters.snapshot(), StoredCapture()
            with CrashAtChange(at, after=after):
                try:
                    await clusters.run(handler, with_system(param), target=target, stored=stored)
                    return False
                except Crash:
                    pass
            await clusters.run(
                handler, with_system(param), target=target, stored=stored, rollback=True
            )
            assert clusters.snapshot() == before, f"crash at change {at}"
            return True

    async def main() -> None:
        at = 0
        while await once(at):
            at += 1
        assert at > 0

    run_with_timeout(main())


@pytest.mark.parametrize("what", ["lose", "refuse"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_survives_lost_and_refused_requests(name: str, what: str) -> None:
    """The first three changes get no response or are refused: the state is read, then retried."""
    handler, param, target = OPERATIONS[name]

    def faults() -> list[Fault]:
        return [Fault("POST|PUT|PATCH|DELETE", what=what, times=3)]

    async def main() -> None:
        async with running_clusters() as clusters:
            await seed_connectors(clusters)
            await clusters.run(handler, with_system(param), target=target)
            expected = clusters.snapshot()
        async with running_clusters() as clusters:
            await seed_connectors(clusters)
            before, stored = clusters.snapshot(), StoredCapture()
            for server in clusters.servers.values():
                server.faults = faults()
            await clusters.run(handler, with_system(param), target=target, stored=stored)
            assert clusters.snapshot() == expected
            for path in ("/config$", "/offsets$", "/connectors$"):
                for server in clusters.servers.values():
                    # A move sets the configuration of its copy once more, to take the mark off.
                    assert max(server.count("PATCH|POST", path).values(), default=0) <= 1
            for server in clusters.servers.values():
                server.faults = faults()
            await clusters.run(
                handler, with_system(param), target=target, stored=stored, rollback=True
            )
            assert clusters.snapshot() == before

    run_with_timeout(main())


def test_reset_gtid_is_not_repeated_once_the_connector_runs_again() -> None:
    """A running connector moves its offsets: only the mark shows that they were reset."""

    async def main() -> None:
        async with running_clusters(
            Manners(delay=0.004, rebalance=0.002, events=100_000.0)
        ) as clusters:
            clusters["a"].cluster.seed(["orders"])
            stored, param = StoredCapture(), with_system({"gtids": f"{SOURCE}:1-5"})
            with CrashAtChange(2, after=True) as crash, pytest.raises(Crash):
                await clusters.run(ResetGtid(), param, stored=stored)
            assert crash.crashed
            await clusters.run(ResetGtid(), param, stored=stored)
            assert clusters["a"].count("PATCH", "/offsets") == {"orders": 1}

    run_with_timeout(main())


def test_offsets_are_altered_only_after_the_tasks_have_stopped() -> None:
    """A stopping task writes its offsets last and must not overwrite the new ones."""

    async def main() -> None:
        async with running_clusters(Manners(delay=0.05, rebalance=0.0, events=10.0)) as clusters:
            clusters["a"].cluster.seed(["orders"])
            connector = clusters["a"].cluster.connectors["orders"]
            clusters["a"].cluster.aim(connector, "PAUSED")  # so that nothing moves after the reset
            await connector.work
            await clusters.run(ResetGtid(), with_system({"gtids": f"{SOURCE}:1-5"}))
            ((_, offset),) = [v for k, v in connector.offsets.items() if "server" in k]
            assert offset["gtids"] == f"{SOURCE}:1-5"

    run_with_timeout(main())


def test_move_takes_the_newest_offsets_both_ways() -> None:
    async def main() -> None:
        async with running_clusters(
            Manners(delay=0.004, rebalance=0.0, events=50_000.0)
        ) as clusters:
            clusters["a"].cluster.seed(["orders"])
            stored, param = StoredCapture(), with_system({"to_az": "az-b"})
            await clusters.run(SwitchAz(), param, stored=stored)
            assert "orders" not in clusters["a"].cluster.connectors
            moved = clusters["b"].cluster.connectors["orders"]
            at_b = moved.done
            assert at_b > 1000
            await clusters.run(SwitchAz(), param, stored=stored, rollback=True)
            assert clusters["a"].cluster.connectors["orders"].done >= at_b

    run_with_timeout(main())


def test_change_of_a_paused_connector_leaves_it_paused() -> None:
    async def main() -> None:
        async with running_clusters() as clusters:
            clusters["a"].cluster.seed(["orders"])
            connector = clusters["a"].cluster.connectors["orders"]
            clusters["a"].cluster.aim(connector, "PAUSED")
            await connector.work
            await clusters.run(ChangeConfig(), with_system({"replicas": 2}))
            assert connector.config["tasks.max"] == "2"
            assert connector.target == connector.state == "PAUSED"

    run_with_timeout(main())


def test_older_connect_without_patch_gets_the_whole_config() -> None:
    async def main() -> None:
        async with running_clusters(
            Manners(delay=0.004, patch_config=False, events=0.0)
        ) as clusters:
            clusters["a"].cluster.seed(["orders"])
            before = dict(clusters["a"].cluster.connectors["orders"].config)
            stored = StoredCapture()
            await clusters.run(ChangeConfig(), with_system({"replicas": 2}), stored=stored)
            now = clusters["a"].cluster.connectors["orders"].config
            assert now == before | {"tasks.max": "2"}
            await clusters.run(
                ChangeConfig(), with_system({"replicas": 2}), stored=stored, rollback=True
            )
            assert clusters["a"].cluster.connectors["orders"].config == before

    run_with_timeout(main())


def test_start_restarts_failed_tasks() -> None:
    async def main() -> None:
        async with running_clusters() as clusters:
            clusters["a"].cluster.seed(["orders"], {"standin.fail": "task"})
            connector = clusters["a"].cluster.connectors["orders"]
            clusters["a"].cluster.restart(connector)
            await connector.work
            assert connector.tasks[0]["state"] == "FAILED"
            del connector.config["standin.fail"]
            await clusters.run(StartConnector(), with_system(None))
            assert connector.tasks[0]["state"] == "RUNNING"

    run_with_timeout(main())


def test_connector_that_fails_is_an_error_with_its_reason_and_without_its_password() -> None:
    async def main() -> None:
        async with running_clusters() as clusters:
            clusters["a"].cluster.seed(["orders"])
            with pytest.raises(ConnectError) as caught:
                await clusters.run(ChangeConfig(), with_system({"set": {"standin.fail": "task"}}))
            assert "its task 0 failed" in str(caught.value)
            assert "Access denied with password ***" in str(caught.value)
            assert "plain-secret" not in str(caught.value)

    run_with_timeout(main())


@pytest.mark.parametrize(
    ("handler", "param", "target", "words"),
    [
        (StopConnector(), {}, "missing", "no connector missing in Connect cluster a"),
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
def test_impossible_operation_is_refused_before_any_change(
    handler: Handler, param: Any, target: str, words: str
) -> None:
    async def main() -> None:
        async with running_clusters() as clusters:
            await seed_connectors(clusters)
            stored = StoredCapture()
            with pytest.raises(WrongUse) as caught:
                await clusters.run(handler, with_system(param), target=target, stored=stored)
            assert words in str(caught.value)
            assert stored.before is None
            assert not clusters["a"].journal

    run_with_timeout(main())


def test_connector_in_both_clusters_is_not_moved() -> None:
    async def main() -> None:
        async with running_clusters() as clusters:
            clusters["a"].cluster.seed(["orders"])
            clusters["b"].cluster.seed(["orders"])
            with pytest.raises(WrongUse, match="exists in a and in b"):
                await clusters.run(SwitchAz(), with_system({"to_az": "az-b"}))

    run_with_timeout(main())


def test_rollback_of_a_move_refuses_to_delete_a_copy_that_runs() -> None:
    async def main() -> None:
        async with running_clusters() as clusters:
            clusters["a"].cluster.seed(["orders"])
            stored, param = StoredCapture(), with_system({"to_az": "az-b"})
            await clusters.run(SwitchAz(), param, stored=stored)
            clusters["a"].cluster.seed(["orders"])  # as if an operator had created it again
            with pytest.raises(WrongUse, match="also runs in b"):
                await clusters.run(SwitchAz(), param, stored=stored, rollback=True)
            assert "orders" in clusters["b"].cluster.connectors

    run_with_timeout(main())


def test_secrets_stay_in_connect() -> None:
    """The stored capture has no password, and changes of other settings keep it."""

    async def main() -> None:
        async with running_clusters() as clusters:
            await seed_connectors(clusters)
            for handler, param, target in OPERATIONS.values():
                stored = StoredCapture()
                await clusters.run(handler, with_system(param), target=target, stored=stored)
                await clusters.run(
                    handler, with_system(param), target=target, stored=stored, rollback=True
                )
                assert stored.before is not None
                assert stored.after is not None
                assert "plain-secret" not in stored.before + stored.after
            stored_value = clusters["a"].cluster.connectors["orders"].config["database.password"]
            assert stored_value == "plain-secret-of-orders"

    run_with_timeout(main())
