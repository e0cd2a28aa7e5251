"""The token of a callback. It is the run's own, and opens nothing else."""

from __future__ import annotations

from starlette.requests import Request

from drumline.errors import DrumlineError
from drumline.telemetry import metrics
from drumline.web.token import given

HEADER = "Drumline-Callback-Token"


class NoCallbackToken(DrumlineError):
    """A callback shows its run's token: as a bearer token, or in Drumline-Callback-Token."""

    http_status = 401


def callback_token(request: Request) -> str:
    token = request.headers.get(HEADER) or given(request)
    if token is None:
        metrics.callbacks.labels(NoCallbackToken.__name__).inc()
        raise NoCallbackToken
    return token
