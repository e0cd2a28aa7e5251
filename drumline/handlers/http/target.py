"""The target of a URL: scheme, host and port in canonical form.

Hosts that libraries interpret in different ways are used to bypass address checks, so everything
except a plain name, a dotted IPv4 address or a bracketed IPv6 address is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from drumline.errors import WrongUse

Address = IPv4Address | IPv6Address

DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_HOST_LENGTH = 253
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>[^:]*))?")
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


class BadTarget(WrongUse):
    """{reason}"""


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """The scheme, host and port of a call."""

    scheme: str
    host: str
    """In lower case and ASCII; an address in its canonical form, without brackets."""
    port: int
    address: Address | None
    """The address, if the host is one."""

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @classmethod
    def parse(cls, origin: str) -> HttpTarget:
        """Read `scheme://authority`, the beginning of a URL."""
        scheme, _, authority = origin.partition("://")
        scheme = scheme.lower()
        if scheme not in DEFAULT_PORTS:
            raise BadTarget(reason=f"only http and https can be called, not {scheme}")
        if "@" in authority:
            raise BadTarget(reason="a user or password in a URL is refused; use a header")
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            raise BadTarget(reason="the host is invalid; write an IPv6 address in brackets")
        host, address = parse_host(match["host"])
        return cls(scheme, host, _port(match["port"], scheme), address)


def parse_host(text: str) -> tuple[str, Address | None]:
    """The canonical form of a host, and its address if the host is one."""
    if text.startswith("[") and text.endswith("]"):
        try:
            address = IPv6Address(text[1:-1])
        except ValueError:
            raise BadTarget(reason=f"{text} is not an IPv6 address") from None
        if address.scope_id is not None:
            raise BadTarget(reason=f"{text} names a network interface")
        return str(address), address
    host = _ascii(text).lower()
    labels = host.removesuffix(".").split(".")
    if len(host) > MAX_HOST_LENGTH or not all(map(_LABEL.fullmatch, labels)):
        raise BadTarget(reason=f"{text[:80]!r} is not a host name")
    if _NUMBER.fullmatch(labels[-1]):
        # 127.1, 0x7f000001, 2130706433 and 0177.0.0.1 all mean loopback to the system's resolver.
        try:
            address4 = IPv4Address(host)
        except ValueError:
            raise BadTarget(reason=f"{text} is not a dotted IPv4 address") from None
        return str(address4), address4
    return host, None


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    import idna

    try:
        return idna.encode(host, uts46=True).decode()
    except UnicodeError:
        raise BadTarget(reason=f"{host[:80]!r} is not a host name") from None


def _port(text: str | None, scheme: str) -> int:
    if not text:
        return DEFAULT_PORTS[scheme]
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise BadTarget(reason=f"{text[:20]!r} is not a port")
    return int(text)
