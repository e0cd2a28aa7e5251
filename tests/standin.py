"""The stand-in for Kafka Connect as a separate process, for tests of a whole node."""

import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

ROOT = Path(__file__).parent.parent
PLACES: Mapping[str, tuple[str, str]] = {
    "a": ("az-a", "k8s"), "b": ("az-b", "k8s"), "vm": ("az-a", "vm"),
}  # fmt: skip


class StandIn:
    """Three clusters: `a` and `b` are azs of one run system, `vm` is another system in az a."""

    def __init__(self, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.connect_standin", "--clusters", ",".join(PLACES),
             *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.urls: dict[str, str] = json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def settings(self, **more: Any) -> str:
        """The clusters as Drumline's setting `connect`."""
        quick = {"poll": 0.1, "settle": 0.2, **more}
        return json.dumps(
            [
                {"name": name, "url": self.urls[name], "az": az, "system": system, **quick}
                for name, (az, system) in PLACES.items()
            ]
        )

    def request(self, cluster: str, path: str, body: Any = None) -> Any:
        message = urllib.request.Request(  # noqa: S310  # our own server on the loopback
            self.urls[cluster] + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(message, timeout=30) as answer:  # noqa: S310
            return json.load(answer)

    def seed(self, cluster: str, names: Iterable[str], **config: str) -> None:
        self.request(cluster, "/standin/seed", {"names": list(names), "config": config})

    def faults(self, cluster: str, *faults: Mapping[str, Any]) -> None:
        """Replace the faults of a cluster."""
        self.request(cluster, "/standin/faults", faults)

    def release(self, cluster: str) -> None:
        self.request(cluster, "/standin/release", {})

    def held_requests(self, cluster: str) -> int:
        found: int = self.request(cluster, "/standin/journal")["holding"]
        return found

    def executed_changes(self, cluster: str, method: str, end: str) -> Counter[str]:
        """The number of executed changes by connector."""
        entries = self.request(cluster, "/standin/journal")["entries"]
        return Counter(
            entry["name"]
            for entry in entries
            if entry["done"] and entry["method"] == method and entry["path"].endswith(end)
        )

    def connectors(self, cluster: str) -> dict[str, dict[str, Any]]:
        """The configurations and states of all connectors, by name."""
        found = self.request(cluster, "/connectors?expand=info&expand=status")
        return {
            name: {"config": each["info"]["config"], "status": each.get("status")}
            for name, each in found.items()
        }

    def configs(self, cluster: str) -> dict[str, dict[str, str]]:
        return {name: each["config"] for name, each in self.connectors(cluster).items()}

    def state(self, cluster: str, name: str) -> str | None:
        each = self.connectors(cluster).get(name)
        return (
            None if each is None or each["status"] is None else each["status"]["connector"]["state"]
        )

    def offsets(self, cluster: str, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.request(
            cluster, f"/connectors/{quote(name, safe='')}/offsets"
        )["offsets"]
        return found
