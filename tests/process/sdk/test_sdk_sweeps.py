"""Sweeps through the SDK: created, controlled, waited for."""

from pathlib import Path

import pytest

from drumline import Client
from drumline.errors import Conflict, NotFound, WrongUse
from tests.process.sdk_stack import WAIT


def test_a_sweep_is_created_found_again_and_waited_for(client: Client, tmp_path: Path) -> None:
    name = tmp_path.name
    sweep = client.create_sweep(name, "demo.sweep", items=["one", "two", "three"], extra={"a": 1})
    assert sweep.wait(WAIT) == "finished" and sweep.finished
    assert (sweep.done, sweep.errors, sweep.details["extra"]) == (3, 0, {"a": 1})
    assert client.sweep(name).id == client.sweep(sweep.id).id == sweep.id
    assert repr(sweep) == f"<Sweep {sweep.id}>"


def test_a_sweep_is_started_updated_and_stopped(client: Client, tmp_path: Path) -> None:
    sweep = client.create_sweep(
        tmp_path.name, "demo.sweep", total=10**9, rate=1, partitions=1, start=False
    )
    assert sweep.status == "created"
    sweep.start()
    assert not sweep.finished
    sweep.update(rate=2, errors=5)
    assert (sweep.details["rate"], sweep.details["error_budget"]) == (2, 5)
    sweep.stop("enough for today")
    assert sweep.wait(WAIT) == "stopped"
    assert sweep.details["reason"].endswith(": enough for today")
    sweep.start()
    sweep.stop(force=True)
    assert sweep.wait(WAIT) == "stopped"


def test_impossible_requests_are_refused(client: Client, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"no runner handles sweeps of type 'demo.noop'"):
        client.create_sweep("s", "demo.noop", total=1)
    with pytest.raises(NotFound):
        client.sweep("no such sweep")
    sweep = client.create_sweep(tmp_path.name, "demo.sweep", total=1)
    sweep.wait(WAIT)
    with pytest.raises(Conflict):
        sweep.start()
