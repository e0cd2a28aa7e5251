"""REST and alarms in a running node, as documented."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drumline.system import procfs
from tests.receiver import Receiver
from tests.stack import PROGRAM, Stack

DOCS = Path(__file__).parents[2] / "docs"
SECRET = "sesame"  # noqa: S105  # of the test's own receiver
MAX_MEMORY_MB = 100


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / document).read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with closing(Receiver(503, 503, 200)) as receiver:
        yield receiver


@pytest.fixture(scope="module")
def stack(receiver: Receiver) -> Iterator[Stack]:
    hook = {"name": "ops", "url": receiver.url, "secret_env": "OPS_SECRET"}
    settings: dict[str, Any] = {
        "http_allow_loopback": True,
        "webhooks": json.dumps([hook]),
        "upkeep_interval": 0.2,
    }
    stack = Stack(workers=1, **settings)
    stack.environment["OPS_SECRET"] = SECRET
    with stack:
        yield stack


def test_documented_requests_work(stack: Stack) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    requests, tokens, trail = blocks("reference/rest.md", "sh")
    script = requests.replace("127.0.0.1:8127", f"127.0.0.1:{stack.http_port}")
    script = script.replace("var/api_token", str(stack.run_path / "api_token"))
    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", f"{script}\n{tokens}\n{trail}"],
        cwd=stack.home,
        env=stack.environment | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"batch.submit"' in done.stdout, "the audit trail has the change"
    gateway = stack.processes()["gateway"][0]
    assert procfs.memory_mb(gateway) < MAX_MEMORY_MB


def test_alarm_is_delivered_with_a_valid_signature(stack: Stack, receiver: Receiver) -> None:
    known: dict[str, Any] = {}
    (example,) = blocks("how-to/alarms.md", "python")
    exec(example, known)  # noqa: S102  # our own document
    batch_id = stack.call("batch.submit", batch_name="alarm", type="demo.noop", count=3)["batch_id"]
    stack.wait_for(lambda: len(receiver.matching("batch_id", batch_id)) >= 1, what="the alarm")
    assert len(receiver.deliveries) >= 3, "it was delivered until it was accepted"
    for headers, body in receiver.deliveries:
        assert known["is_genuine"](headers, body, SECRET.encode())
        assert not known["is_genuine"](headers, body + b" ", SECRET.encode())
    (message_id,) = {
        headers["webhook-id"] for headers, _ in receiver.matching("batch_id", batch_id)
    }
    message = json.loads(receiver.matching("batch_id", batch_id)[-1].body)
    assert message["id"] == message_id and message["data"]["status"] == "success"


def test_up_without_a_webhook_secret_is_refused(stack: Stack) -> None:
    idle = Stack(webhooks=stack.environment["DRUMLINE_WEBHOOKS"])
    try:
        refused = idle.run("up", "--detach", check=False)
        assert refused.returncode == 2
        assert "OPS_SECRET is not set" in refused.stderr
        found = idle.run("doctor", check=False)
        assert found.returncode == 1 and "OPS_SECRET is not set" in found.stdout
    finally:
        idle.close()
