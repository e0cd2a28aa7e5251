"""Connect's REST interface over a cluster, and `/standin/...` to make it misbehave."""

from __future__ import annotations

import asyncio
import base64
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from examples.connect_standin.cluster import Cluster, Connector, Manners, Refused
from examples.connect_standin.faults import Fault

ALTERED = (
    "The Connect framework-managed offsets for this connector have been altered successfully. "
    "However, if this connector manages offsets externally, they will need to be manually "
    "altered in the system that the connector uses."
)


class Server:
    """One cluster behind one port of the loopback interface."""

    def __init__(self, name: str = "connect", manners: Manners | None = None) -> None:
        self.cluster = Cluster(name, manners)
        self.faults: list[Fault] = []
        self.journal: list[dict[str, Any]] = []
        """Every change that was asked for, and whether it was done."""
        self.released = asyncio.Event()
        self.holding = 0
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> str:
        self._runner = web.AppRunner(self.app(), access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        host, bound = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{bound}"
        return self.url

    async def stop(self) -> None:
        self.released.set()
        await self.cluster.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def count(self, method: str, path: str) -> Counter[str]:
        """How often each connector was asked for a change that was then made."""
        return Counter(
            entry["name"]
            for entry in self.journal
            if re.fullmatch(method, entry["method"])
            and entry["done"]
            and re.search(path, entry["path"])
        )

    # --- the way in ------------------------------------------------------------------------------

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._mannered])
        one = "/connectors/{name}"
        routes: tuple[tuple[str, str, Callable[[web.Request], Awaitable[web.Response]]], ...] = (
            ("GET", "/", self.root),
            ("GET", "/connectors", self.listed),
            ("POST", "/connectors", self.create),
            ("GET", one, self.info),
            ("DELETE", one, self.delete),
            ("GET", one + "/config", self.get_config),
            ("PUT", one + "/config", self.put_config),
            ("PATCH", one + "/config", self.patch_config),
            ("GET", one + "/status", self.get_status),
            ("PUT", one + "/pause", self.pause),
            ("PUT", one + "/resume", self.resume),
            ("PUT", one + "/stop", self.stop_connector),
            ("POST", one + "/restart", self.restart),
            ("GET", one + "/offsets", self.get_offsets),
            ("PATCH", one + "/offsets", self.alter_offsets),
            ("DELETE", one + "/offsets", self.reset_offsets),
            ("POST", "/standin/faults", self.set_faults),
            ("POST", "/standin/release", self.release),
            ("POST", "/standin/seed", self.set_seed),
            ("GET", "/standin/journal", self.get_journal),
        )
        for method, path, handle in routes:
            app.router.add_route(method, path, handle)
        return app

    @web.middleware
    async def _mannered(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path.startswith("/standin/"):
            return await handler(request)
        manners = self.cluster.manners
        if manners.password and not _knows(request, manners.password):
            return _error(401, "User cannot access the resource.")
        if manners.latency:
            await asyncio.sleep(random.uniform(0, 2 * manners.latency))
        entry = {
            "method": request.method, "path": request.path, "done": False,
            "name": request.match_info.get("name", ""),
        }  # fmt: skip
        if request.method != "GET":
            self.journal.append(entry)
        fault = next((fault for fault in self.faults if fault.strikes(request)), None)
        if fault is not None and fault.what == "refuse":
            return _error(fault.status, fault.message)
        try:
            answer = await handler(request)
        except Refused as refusal:
            return _error(refusal.status, refusal.message)
        entry["done"] = True
        if fault is not None:
            await self._misbehave(fault, request)
        return answer

    async def _misbehave(self, fault: Fault, request: web.Request) -> None:
        if fault.what == "hold":
            self.holding += 1
            try:
                await self.released.wait()
            finally:
                self.holding -= 1
        elif request.transport is not None:
            request.transport.close()

    # --- Connect's -------------------------------------------------------------------------------

    async def root(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "3.9.0", "kafka_cluster_id": self.cluster.name})

    async def listed(self, request: web.Request) -> web.Response:
        expand = request.query.getall("expand", [])
        if not expand:
            return web.json_response(list(self.cluster.connectors))
        found: dict[str, dict[str, Any]] = {}
        for connector in self.cluster.connectors.values():
            each = found.setdefault(connector.name, {})
            if "status" in expand and connector.state is not None:
                each["status"] = connector.status()
            if "info" in expand:
                each["info"] = connector.info()
        return web.json_response(found)

    async def info(self, request: web.Request) -> web.Response:
        self.cluster.require_balance()
        return web.json_response(self._named(request).info())

    async def get_config(self, request: web.Request) -> web.Response:
        self.cluster.require_balance()
        return web.json_response(self._named(request).config)

    async def get_status(self, request: web.Request) -> web.Response:
        connector = self._named(request)
        if connector.state is None:
            raise Refused(404, f"No status found for connector {connector.name}")
        return web.json_response(connector.status())

    async def create(self, request: web.Request) -> web.Response:
        body = await request.json()
        config = _validated(body["config"], body["name"])
        self.cluster.require_balance()
        connector = self.cluster.create(body["name"], config, body.get("initial_state", "RUNNING"))
        return web.json_response(connector.info(), status=201)

    async def delete(self, request: web.Request) -> web.Response:
        self.cluster.require_balance()
        self.cluster.delete(request.match_info["name"])
        return web.Response(status=204)

    async def put_config(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        config = _validated(await request.json(), name)
        self.cluster.require_balance()
        if name not in self.cluster.connectors:
            made = self.cluster.create(name, config, "RUNNING")
            return web.json_response(made.info(), status=201)
        connector = self._named(request)
        self.cluster.configure(connector, config)
        return web.json_response(connector.info())

    async def patch_config(self, request: web.Request) -> web.Response:
        if not self.cluster.manners.patch_config:
            raise Refused(405, "HTTP 405 Method Not Allowed")
        self.cluster.require_balance()
        connector = self._named(request)
        merged = {**connector.config, **(await request.json())}
        kept = {key: value for key, value in merged.items() if value is not None}
        self.cluster.configure(connector, _validated(kept, connector.name))
        return web.json_response(connector.info())

    async def pause(self, request: web.Request) -> web.Response:
        self.cluster.aim(self._named(request), "PAUSED")
        return web.Response(status=202)

    async def resume(self, request: web.Request) -> web.Response:
        self.cluster.aim(self._named(request), "RUNNING")
        return web.Response(status=202)

    async def stop_connector(self, request: web.Request) -> web.Response:
        self.cluster.require_balance()
        self.cluster.aim(self._named(request), "STOPPED")
        return web.Response(status=204)

    async def restart(self, request: web.Request) -> web.Response:
        self.cluster.require_balance()
        connector = self._named(request)
        self.cluster.restart(connector)
        return web.json_response(connector.status(), status=202)

    async def get_offsets(self, request: web.Request) -> web.Response:
        connector = self._named(request)
        self.cluster.look(connector)
        found = [{"partition": p, "offset": o} for p, o in connector.offsets.values()]
        return web.json_response({"offsets": found})

    async def alter_offsets(self, request: web.Request) -> web.Response:
        body = await request.json()
        if not body.get("offsets"):
            raise Refused(
                400, "Partitions / offsets need to be provided for an alter offsets request"
            )
        self.cluster.require_balance()
        connector = self.cluster.stopped(request.match_info["name"])
        for each in body["offsets"]:
            connector.alter(each["partition"], each["offset"])
        return web.json_response({"message": ALTERED})

    async def reset_offsets(self, request: web.Request) -> web.Response:
        self.cluster.require_balance()
        connector = self.cluster.stopped(request.match_info["name"])
        connector.offsets.clear()
        connector.done = 0.0
        return web.json_response({"message": ALTERED.replace("altered", "reset")})

    def _named(self, request: web.Request) -> Connector:
        return self.cluster.get(request.match_info["name"])

    # --- not Connect's ---------------------------------------------------------------------------

    async def set_faults(self, request: web.Request) -> web.Response:
        self.faults = [Fault(**each) for each in await request.json()]
        self.released.clear()
        return web.json_response({})

    async def release(self, request: web.Request) -> web.Response:
        self.released.set()
        return web.json_response({})

    async def set_seed(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.cluster.seed(body["names"], body.get("config"))
        return web.json_response({})

    async def get_journal(self, request: web.Request) -> web.Response:
        return web.json_response({"holding": self.holding, "entries": self.journal})


def _validated(config: dict[str, Any], name: str) -> dict[str, str]:
    """A configuration as Connect keeps it, or its complaint, which quotes the values."""
    made = {"name": name, **{key: str(value) for key, value in config.items()}}
    problems = []
    if made["name"] != name:
        raise Refused(400, f"Connector name configuration ({made['name']}) doesn't match ({name})")
    if not made.get("connector.class"):
        problems.append('Missing required configuration "connector.class"')
    if not re.fullmatch("[1-9][0-9]*", made.get("tasks.max", "1")):
        problems.append(f"Invalid value {made['tasks.max']} for configuration tasks.max")
    if disliked := made.get("standin.refuse"):
        problems.append(f"Invalid value {made.get(disliked)} for configuration {disliked}")
    if problems:
        count, lines = len(problems), "\n".join(problems)
        raise Refused(
            400,
            f"Connector configuration is invalid and contains the following {count} error(s):\n"
            + lines,
        )
    return made


def _knows(request: web.Request, password: str) -> bool:
    wanted = base64.b64encode(f"connect:{password}".encode()).decode()
    return request.headers.get("Authorization") == f"Basic {wanted}"


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error_code": status, "message": message}, status=status)
