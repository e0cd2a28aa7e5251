"""Where the web interface listens, and whether it may."""

from __future__ import annotations

import ipaddress
import socket

from drumline.config import Settings
from drumline.errors import BadConfig, Conflict

BACKLOG = 128


def bound(settings: Settings) -> socket.socket:
    """A socket at the address that is set, or a clear error."""
    host, port = settings.http_host, settings.http_port
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadConfig(reason=f"http_host {host!r} is no address: {error.strerror}") from None
    listener = socket.socket(family, kind)
    try:
        # A gateway that starts again must not wait until its last connections are forgotten.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise Conflict(
            reason=f"Port {port} on {host} cannot be had ({error.strerror}); name another with "
            "http_port in drumline.toml or DRUMLINE_HTTP_PORT"
        ) from None
    return listener


def is_local(settings: Settings) -> bool:
    """Can only this machine reach it?"""
    if settings.http_host == "localhost":
        return True
    try:
        return ipaddress.ip_address(settings.http_host).is_loopback
    except ValueError:
        return False


def require_secret(settings: Settings, token: str | None) -> None:
    """Refuse to be reached from elsewhere by anybody: open control ports are found in hours."""
    if not token and not is_local(settings):
        raise BadConfig(
            reason=f"http_host {settings.http_host} can be reached from other machines and there "
            f"is no API token in {settings.run_path}; `drumline up` makes one"
        )
