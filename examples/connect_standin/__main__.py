"""A stand-in for Kafka Connect: its REST interface with its manners, and nothing behind it.

    python -m examples.connect_standin --port 8083 --connectors 500
    python -m examples.connect_standin --clusters az-a,az-b

It answers a change at once and makes it true later; refuses with 409 while its workers rebalance;
keeps offsets that move on while a connector runs and may be altered only while it is stopped; and
a task that is still going down when its offsets are altered writes its own over them, as a real
one does. Prints the addresses as JSON when it is ready.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import suppress

from examples.connect_standin.cluster import Manners
from examples.connect_standin.faults import Fault
from examples.connect_standin.server import Server


async def serve(options: argparse.Namespace) -> None:
    manners = Manners(options.delay, options.rebalance, options.latency)
    servers = {name: Server(name, manners) for name in options.clusters.split(",")}
    urls = {}
    for number, (name, server) in enumerate(servers.items()):
        urls[name] = await server.start(options.port + number if options.port else 0)
        if options.fail_percent:
            server.faults = [Fault("POST|PUT|PATCH|DELETE", percent=options.fail_percent)]
    first = next(iter(servers.values()))
    first.cluster.seed(f"connector-{number:04}" for number in range(options.connectors))
    print(json.dumps(urls), flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        for server in servers.values():
            await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="connect_standin", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--port", type=int, default=0, help="of the first cluster; 0: any free one")
    parser.add_argument("--clusters", default="connect", help="names, one port after the other")
    parser.add_argument("--connectors", type=int, default=0, help="seeded in the first cluster")
    parser.add_argument("--delay", type=float, default=0.2, help="seconds for a change of state")
    parser.add_argument("--rebalance", type=float, default=0.05, help="seconds of 409")
    parser.add_argument("--latency", type=float, default=0.0, help="mean seconds of an answer")
    parser.add_argument("--fail-percent", type=float, default=0.0, help="of the changes")
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
