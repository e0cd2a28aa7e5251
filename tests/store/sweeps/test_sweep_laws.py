"""No order of events breaks what holds of a sweep."""

from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumline.domain.release import RunEnd
from drumline.domain.sweeps.partition import PartitionResult
from drumline.domain.sweeps.states import SweepState
from drumline.errors import Conflict
from drumline.store.sweep.partitions import HeldPartition
from drumline.store.tables import sweep as sweep_table
from drumline.store.tables import sweep_partition
from tests.store.stub_gateway import StubGateway
from tests.store.sweep_world import SweepWorld, begin

MOVES = st.lists(
    st.sampled_from(["start", "stop", "force", "hold", "flush", "end", "short", "die", "drain"]),
    max_size=30,
)


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(moves=MOVES)
def test_no_order_of_events_breaks_the_laws(
    world: SweepWorld, gateway: StubGateway, moves: list[str]
) -> None:
    world.database.write(
        lambda tx: [tx.execute(t.delete()) for t in (sweep_partition, sweep_table)]
    )
    begin(gateway, partitions=2, parallel=2, start=False)
    held: list[HeldPartition] = []
    starts = [0, 50]
    for move in moves:
        _move(world, gateway, move, held)
        row, parts = world.show("s"), world.parts("s")
        if parts:
            now = [part.start_index for part in parts]
            assert all(a >= b for a, b in zip(now, starts, strict=True)), "never back"
            starts = now
        under_way = [part for part in parts if part.task_id is not None]
        assert (row.state in ("running", "stopping")) == bool(under_way)
        for part in under_way:
            assert world.task(part.task_id).status in ("pending", "running")
        done = bool(parts) and all(part.start_index == part.end_index for part in parts)
        assert (row.state == "finished") == (done and not under_way)
    assert world.check_laws() is not None
    assert SweepState(row.state if moves else "created")


def _move(world: SweepWorld, gateway: StubGateway, move: str, held: list[HeldPartition]) -> None:
    match move:
        case "start" | "stop" | "force":
            command = "sweep.start" if move == "start" else "sweep.stop"
            more = {"force": True} if move == "force" else {}
            with suppress(Conflict):
                gateway(command, sweep="s", **more)
        case "hold":
            for part in world.parts("s"):
                if part.task_id and world.task(part.task_id).status == "pending":
                    held.append(world.hold("s", part.number))
                    return
        case "flush" if held:
            part = next(p for p in world.parts("s") if p.task_id == held[0].task_id)
            world.flush(held[0], min(part.end_index, part.start_index + 30))
        case "end" if held:
            one = held.pop(0)
            part = next(p for p in world.parts("s") if p.task_id == one.task_id)
            world.flush(one, part.end_index)
            world.end(one, result=PartitionResult(part.end_index, 0, True))
        case "short" if held:
            world.end(
                held.pop(0),
                result=PartitionResult(0, 1, False, "a reason", stopped_by_handler=True),
            )
        case "die" if held:
            one = held.pop(0)
            world.die(one.keeper_id)
            world.give_back(one.keeper_id, died=[one.task_id])
        case "drain" if held:
            world.end(held.pop(0), RunEnd.GIVEN_BACK, PartitionResult(0, 0, False))
