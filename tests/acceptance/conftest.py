"""Fixtures: a running node, a node that is not started, a gateway alone, an empty run directory."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.domain.policy import HandlerSpec
from drumline.store import schema
from drumline.store.database import Database
from tests.acceptance.terminal import RunningGateway, Terminal
from tests.ports import free_port
from tests.stack import Stack
from tests.store.stub_gateway import UNDOES
from tests.store.world import REGION, SPEC, World

STRICT = HandlerSpec(
    "target",
    "strict",
    schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A node that the tests of a file share: each test leaves it as it was."""
    with Stack(workers=2) as started:
        yield started


@pytest.fixture
def idle() -> Iterator[Stack]:
    """A node that has not been started."""
    made = Stack(workers=1)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    run_dir = tempfile.mkdtemp(prefix="dl-")  # the path of tmp_path may be too long for a socket
    yield {
        "DRUMLINE_RUN_DIR": str(run_dir),
        "DRUMLINE_DATABASE_URL": f"sqlite:///{run_dir}/drumline.db",
        "DRUMLINE_REGION": REGION,
        "DRUMLINE_NODE": "node",
        "DRUMLINE_HTTP_PORT": str(free_port()),
    }
    shutil.rmtree(run_dir)


@pytest.fixture(scope="module")
def gateway_process(environment: dict[str, str]) -> Iterator[RunningGateway]:
    """A gateway without a dispatcher: submitted tasks stay pending."""
    database = Database(environment["DRUMLINE_DATABASE_URL"])
    schema.upgrade(database)
    world = World(database)
    world.announce(SPEC, UNDOES, STRICT)
    log = Path(environment["DRUMLINE_RUN_DIR"]) / "gateway.log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-c", "from actors.__main__ import main; main('gateway')"],
            env=os.environ | environment,
            stdout=file,
            stderr=file,
        ) as process,
    ):
        deadline = time.monotonic() + 20
        while not (log.parent / "control.sock").exists():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield RunningGateway(world, environment)
        process.terminate()
        process.wait(20)
    database.close()


@pytest.fixture
def gateway(gateway_process: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> RunningGateway:
    """The gateway, which command lines of this process find through the environment."""
    for name, value in gateway_process.environment.items():
        monkeypatch.setenv(name, value)
    return gateway_process


@pytest.fixture
def empty_run_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty run directory."""
    with tempfile.TemporaryDirectory(prefix="dl-") as path:
        monkeypatch.setenv("DRUMLINE_RUN_DIR", path)
        monkeypatch.delenv("DRUMLINE_DATABASE_URL", raising=False)
        yield Path(path)


@pytest.fixture
def drumline(capfd: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capfd)
