"""`/healthz` and `/readyz`, for load balancers and people."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from drumline.command_layer.base import Context
from drumline.node import readiness


def routes(context: Context) -> list[Route]:
    async def healthz(request: Request) -> JSONResponse:
        """The process answers."""
        return JSONResponse({"alive": True})

    def readyz(request: Request) -> JSONResponse:
        """Whether the node is ready for work; if not, why."""
        missing = readiness.missing(context)
        return JSONResponse(
            {"ready": not missing, "missing": missing}, status_code=503 if missing else 200
        )

    return [Route("/healthz", healthz), Route("/readyz", readyz)]
