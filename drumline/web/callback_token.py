"""Reads the token of a callback, which is valid for one run and for nothing else."""

from __future__ import annotations

from starlette.requests import Request

from drumline.errors import DrumlineError
from drumline.telemetry import metrics
from drumline.web.api_tokens import bearer_token

HEADER = "Drumline-Callback-Token"


class NoCallbackToken(DrumlineError):
    """A callback needs its run's token: as a bearer token, or in Drumline-Callback-Token."""

    http_status = 401


def read_callback_token(request: Request) -> str:
    token = request.headers.get(HEADER) or bearer_token(request)
    if token is None:
        metrics.callbacks.labels(NoCallbackToken.__name__).inc()
        raise NoCallbackToken
    return token
