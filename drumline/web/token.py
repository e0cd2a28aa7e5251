"""The API token: who may ask."""

from __future__ import annotations

import hmac

from starlette.requests import Request

from drumline.errors import DrumlineError


class NoToken(DrumlineError):
    """This needs the API token as a bearer token; `drumline up` says where it is kept."""

    http_status = 401


def require(request: Request, token: str | None) -> None:
    """Refuse a request that does not carry the token."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if (
        not token
        or kind.lower() != "bearer"
        or not hmac.compare_digest(given.strip().encode(), token.encode())
    ):
        raise NoToken
