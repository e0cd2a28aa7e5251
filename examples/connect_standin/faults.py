"""What can be made to go wrong."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Fault:
    """Something that goes wrong: for a share of the requests that fit, or for named connectors."""

    method: str = ".*"
    path: str = ".*"
    names: list[str] = field(default_factory=list)
    percent: float = 100.0
    status: int = 500
    message: str = "the stand-in was told to fail"
    what: str = "refuse"
    """refuse: nothing is done; lose: it is done and the connection drops; hold: it is done and the
    answer waits until /standin/release."""
    times: int = -1

    def strikes(self, request: web.Request) -> bool:
        if self.times == 0 or not re.fullmatch(self.method, request.method):
            return False
        if not re.search(self.path, request.path):
            return False
        if self.names and request.match_info.get("name") not in self.names:
            return False
        if random.uniform(0, 100) >= self.percent:
            return False
        self.times -= 1
        return True
