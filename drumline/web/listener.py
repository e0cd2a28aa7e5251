"""The socket on which the web interface listens."""

from __future__ import annotations

import ipaddress
import socket

from drumline.config import Settings
from drumline.errors import BadConfig, Conflict

BACKLOG = 128


def open_listener(settings: Settings) -> socket.socket:
    """Bind a socket to the configured address."""
    host, port = settings.http_host, settings.http_port
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadConfig(reason=f"http_host {host!r} is not an address: {error.strerror}") from None
    listener = socket.socket(family, kind)
    try:
        # A restarted gateway must not wait for the TIME_WAIT of its old connections.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise Conflict(
            reason=f"Port {port} on {host} cannot be used ({error.strerror}); choose another with "
            "http_port in drumline.toml or DRUMLINE_HTTP_PORT"
        ) from None
    return listener


def is_local(settings: Settings) -> bool:
    """Whether only this machine can reach the address."""
    if settings.http_host == "localhost":
        return True
    try:
        return ipaddress.ip_address(settings.http_host).is_loopback
    except ValueError:
        return False


def require_token(settings: Settings, token: str | None) -> None:
    """Refuse to serve other machines without a token: attackers find open ports within hours."""
    if not token and not is_local(settings):
        raise BadConfig(
            reason=f"http_host {settings.http_host} can be reached from other machines and there "
            f"is no API token in {settings.run_path}; `drumline up` makes one"
        )
