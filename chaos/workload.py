"""The workload of a run: batches with rollback, one-shots, jobs, asynchronous calls and a sweep."""

from __future__ import annotations

import http.server
import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from chaos.history import CallbackSent, Called, Recorder
from drumline.client import Client
from drumline.client.control import new_request_id
from drumline.errors import DrumlineError, NotReachable

CONTROL_SECONDS = 10.0
SYNC_TYPES = ("chaos.sync", "chaos.once")
ASYNC_TYPES = ("chaos.async",)
CALLBACK_JOB = "chaos-callbacks"
JOBS: tuple[dict[str, Any], ...] = (
    {"max_concurrency": 1, "concurrency_policy": "QUEUE"},
    {"overlap_action": "SKIP"},
    {"max_concurrency": 2, "concurrency_policy": "SKIP", "failure_action": "RETRY"},
    {"catch_up_mode": "COMPACT"},
)


class Workload:
    """Sends commands from one thread until it is stopped. What it sends depends on the seed."""

    def __init__(self, endpoint: str, recorder: Recorder, seed: int, receiver_url: str) -> None:
        self.client = Client(endpoint, timeout=CONTROL_SECONDS, actor="chaos")
        self.recorder = recorder
        self.chance = random.Random(f"workload {seed}")
        self.receiver_url = receiver_url
        self.batches: list[int] = []
        self.jobs: list[int] = []
        self.targets = 0
        self.types: tuple[str, ...] = SYNC_TYPES + ASYNC_TYPES
        """The types of one-shots and batches at present."""

    def prepare(self, seconds: float) -> None:
        """What runs during the whole workload: the jobs and the sweep."""
        for number, policies in enumerate(JOBS):
            self._create_job(
                f"chaos-{number}", type="chaos.sync", param={"seconds": 0.4}, **policies
            )
        self._create_job(
            CALLBACK_JOB, target_url=self.receiver_url, http_method="POST", exec_type="ASYNC",
            callback_timeout_sec=20,
        )  # fmt: skip
        made = self.call(
            "sweep.create", name="chaos", type="chaos.items", total=int(seconds * 100),
            rate=200.0, partitions=2,
        )  # fmt: skip
        if made is not None:
            self.call("sweep.start", sweep=str(made["id"]))

    def run(self, stop: threading.Event) -> None:
        actions: tuple[tuple[int, Callable[[], object]], ...] = (
            (10, self.one_shot),
            (2, self.urgent_one_shot),
            (3, self.batch),
            (3, self.change_batch),
            (1, self.steer_batch),
            (2, self.repeated_request),
        )
        weights = [weight for weight, _ in actions]
        while not stop.wait(self.chance.uniform(0.02, 0.3)):
            action = self.chance.choices(actions, weights)[0][1]
            action()

    def set_async(self, wanted: bool) -> None:
        """Submit work for event loops as well, or only work for one task at a time."""
        self.types = SYNC_TYPES + ASYNC_TYPES if wanted else SYNC_TYPES
        self.call("job.enable" if wanted else "job.disable", job=CALLBACK_JOB)

    def end(self) -> None:
        """Stop what recurs, so that the node can become idle."""
        for job_id in self.jobs:
            self.call("job.disable", job=str(job_id))

    # --- actions ---------------------------------------------------------------------------------

    def one_shot(self) -> None:
        type_ = self.chance.choice(self.types)
        self.call(
            "task.schedule", type=type_, param=self._param(), priority=self.chance.randrange(8)
        )

    def urgent_one_shot(self) -> None:
        self.call("task.schedule", type="chaos.sync", param={"seconds": 0.05}, priority=9)

    def batch(self) -> None:
        params = [{"target_id": str(n), "param": self._param(0.3)} for n in range(20)]
        type_ = self.chance.choice(self.types)
        self.call("batch.submit", batch_name="chaos", type=type_, targets=params)

    def change_batch(self) -> None:
        targets = [
            {"target_id": f"t{self.targets + n}", "param": self._param(0.1)} for n in range(10)
        ]
        self.targets += len(targets)
        made = self.call(
            "batch.submit", batch_name="chaos", type="chaos.change", target_type="chaos",
            targets=targets,
        )  # fmt: skip
        if made is not None:
            self.batches.append(made["batch_id"])

    def steer_batch(self) -> None:
        """Roll back the oldest batch; one that still runs is refused, and comes again."""
        if self.batches and self.call("batch.rollback", batch_id=self.batches[0]) is not None:
            self.batches.pop(0)

    def repeated_request(self) -> None:
        request_id = new_request_id()
        for _ in range(2):
            self.call("task.schedule", request_id, type="chaos.sync", param={"seconds": 0.02})

    # --- sending ---------------------------------------------------------------------------------

    def call(
        self, command: str, request_id: str | None = None, **arguments: Any
    ) -> dict[str, Any] | None:
        """Send a command and record its outcome. None: refused, or unknown."""
        request_id = request_id or new_request_id()
        at = time.monotonic()
        answer: dict[str, Any] | None = None
        error: str | None = None
        try:
            answer = self.client.call(command, request_id=request_id, **arguments)
        except NotReachable:
            pass  # the outcome stays unknown
        except DrumlineError as refused:
            error = str(refused)
        self.recorder.write(
            Called(
                at=at, request_id=request_id, command=command, arguments=arguments, answer=answer,
                error=error,
            )
        )  # fmt: skip
        return answer

    def _create_job(self, name: str, **fields: Any) -> None:
        made = self.call("job.create", name=name, cron_expr="* * * * * *", **fields)
        if made is not None:
            self.jobs.append(made["id"])

    def _param(self, longest: float = 1.0) -> dict[str, Any]:
        failures = 1 if self.chance.random() < 0.1 else 0
        return {"seconds": round(self.chance.uniform(0.0, longest), 3), "failures": failures}


class Receiver:
    """A service that accepts asynchronous calls and calls back, every time twice."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                url = self.headers.get("Drumline-Callback-Url", "")
                token = self.headers.get("Drumline-Callback-Token", "")
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()
                threading.Thread(target=outer.call_back, args=(url, token), daemon=True).start()

            def log_message(self, format: str, *args: object) -> None:
                """The harness needs no access log."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/call"

    def call_back(self, url: str, token: str) -> None:
        for _ in range(2):
            status = self._post(url, token)
            self.recorder.write(
                CallbackSent(
                    at=time.monotonic(), task_id=int(url.rpartition("/")[2]), token=token,
                    status=status,
                )
            )  # fmt: skip

    @staticmethod
    def _post(url: str, token: str) -> int:
        """The status of the response; 0 if there was none."""
        body = json.dumps({"status": "success"}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        request = urllib.request.Request(url, body, headers)  # noqa: S310  # http://127.0.0.1
        with suppress(urllib.error.URLError, OSError):
            try:
                with urllib.request.urlopen(request, timeout=5.0) as response:  # noqa: S310
                    return int(response.status)
            except urllib.error.HTTPError as error:
                return error.code
        return 0

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
