"""Handlers for Kafka Connect connectors: target types `cdc` and `panama`."""

from __future__ import annotations

from drumline.handlers.connect.change_config import ChangeConfig
from drumline.handlers.connect.move import SwitchAz, SwitchRunSystem
from drumline.handlers.connect.panama import PanamaMigrate
from drumline.handlers.connect.reset_gtid import ResetGtid
from drumline.handlers.connect.start_stop import StartConnector, StopConnector
from drumline.handlers.registry import register

for _handler in (
    StartConnector,
    StopConnector,
    ChangeConfig,
    ResetGtid,
    SwitchAz,
    SwitchRunSystem,
    PanamaMigrate,
):
    register(_handler.target_type, _handler)
