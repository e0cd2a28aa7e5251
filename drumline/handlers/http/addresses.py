"""The rules for the addresses that may be called.

The operator's allowlist comes first. Every other name is resolved once, each address in the result
is checked against the ranges below, and the connection goes to one of these addresses: a name that
resolves differently the next time gains nothing. Private networks are allowed, because users'
services are there; a scheduler must not give access to this machine, its links, and the metadata
services that hand out credentials.

The ranges are listed here because `ipaddress.is_private` and similar properties changed between
Python releases, and are wrong for some ranges in 3.11.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from drumline.config import Settings
from drumline.errors import BadConfig, WrongUse
from drumline.handlers.http.target import Address, BadTarget, HttpTarget, parse_host

Network = IPv4Network | IPv6Network


class AddressRefused(WrongUse):
    """{host} may not be called: {reason}"""


class RangeKind(Enum):
    """The setting that allows a range. The allowlist allows any."""

    LOOPBACK = "http_allow_loopback"
    PRIVATE = "http_allow_private"
    NEVER = "http_allowlist"


RANGES: tuple[tuple[str, RangeKind, str], ...] = (
    # They hand out credentials to every client.
    ("169.254.169.254/32", RangeKind.NEVER, "a metadata service"),
    ("169.254.170.2/32", RangeKind.NEVER, "a metadata service"),
    ("100.100.100.200/32", RangeKind.NEVER, "a metadata service"),
    ("168.63.129.16/32", RangeKind.NEVER, "a metadata service"),
    ("192.0.0.192/32", RangeKind.NEVER, "a metadata service"),
    ("fd00:ec2::/32", RangeKind.NEVER, "a metadata service"),
    ("fd20:ce::254/128", RangeKind.NEVER, "a metadata service"),
    # This machine and its links.
    ("0.0.0.0/8", RangeKind.NEVER, "an unspecified address, which means this machine"),
    ("127.0.0.0/8", RangeKind.LOOPBACK, "a loopback address"),
    ("169.254.0.0/16", RangeKind.NEVER, "a link-local address"),
    ("192.0.0.0/24", RangeKind.NEVER, "reserved"),
    ("192.88.99.0/24", RangeKind.NEVER, "a 6to4 relay"),
    ("224.0.0.0/4", RangeKind.NEVER, "a multicast address"),
    ("255.255.255.255/32", RangeKind.NEVER, "the broadcast address"),
    ("240.0.0.0/4", RangeKind.NEVER, "reserved"),
    ("::/128", RangeKind.NEVER, "an unspecified address, which means this machine"),
    ("::1/128", RangeKind.LOOPBACK, "a loopback address"),
    ("fe80::/10", RangeKind.NEVER, "a link-local address"),
    ("fec0::/10", RangeKind.NEVER, "a site-local address, long withdrawn"),
    ("ff00::/8", RangeKind.NEVER, "a multicast address"),
    # IPv6 that carries an IPv4 address past the IPv4 rules.
    ("::ffff:0:0/96", RangeKind.NEVER, "an IPv4 address inside an IPv6 one (mapped)"),
    ("::ffff:0:0:0/96", RangeKind.NEVER, "an IPv4 address inside an IPv6 one (translated)"),
    ("::/96", RangeKind.NEVER, "an IPv4 address inside an IPv6 one (compatible)"),
    ("64:ff9b::/96", RangeKind.NEVER, "an IPv4 address inside an IPv6 one (NAT64)"),
    ("64:ff9b:1::/48", RangeKind.NEVER, "an IPv4 address inside an IPv6 one (NAT64)"),
    ("2002::/16", RangeKind.NEVER, "an IPv4 address inside an IPv6 one (6to4)"),
    ("2001::/32", RangeKind.NEVER, "an IPv4 address inside an IPv6 one (Teredo)"),
    ("2001::/23", RangeKind.NEVER, "reserved"),
    # Users' own services.
    ("10.0.0.0/8", RangeKind.PRIVATE, "a private address"),
    ("100.64.0.0/10", RangeKind.PRIVATE, "a shared address"),
    ("172.16.0.0/12", RangeKind.PRIVATE, "a private address"),
    ("192.168.0.0/16", RangeKind.PRIVATE, "a private address"),
    ("198.18.0.0/15", RangeKind.PRIVATE, "a benchmarking address"),
    ("fc00::/7", RangeKind.PRIVATE, "a private address"),
)  # fmt: skip
"""The first match decides. Other IPv4 addresses are public, other IPv6 only within 2000::/3."""

_RANGES = tuple((ip_network(text), kind, what) for text, kind, what in RANGES)
_PUBLIC_V6 = IPv6Network("2000::/3")

OTHER_PROTOCOL_PORTS = frozenset(
    (1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102,
     103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465,
     512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993,
     995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6665, 6666, 6667,
     6668, 6669, 6679, 6697, 10080, 11211)
)  # fmt: skip
"""Ports of other protocols, which could interpret a request as commands: the Fetch standard's list,
Redis and memcached."""


class AllowlistEntry(NamedTuple):
    """One entry of `http_allowlist`."""

    name: str = ""
    """`api.example`, or `.example` for every name with this ending; empty for a network."""
    network: Network | None = None
    port: int | None = None
    """None: every port except those of other protocols."""

    def opens(self, port: int) -> bool:
        return self.port == port or (self.port is None and port not in OTHER_PROTOCOL_PORTS)

    def is_name(self, host: str) -> bool:
        return self.network is None and self.name == host

    def covers_name(self, host: str) -> bool:
        if self.name.startswith("."):
            return host.endswith(self.name)
        return self.is_name(host)

    def covers_address(self, address: Address) -> bool:
        return self.network is not None and address in self.network


@dataclass(frozen=True, slots=True)
class AddressRules:
    """The rules of this node's settings."""

    allow_loopback: bool = False
    allow_private: bool = True
    allowlist: tuple[AllowlistEntry, ...] = ()
    only_allowlist: bool = False

    @classmethod
    def of(cls, settings: Settings) -> AddressRules:
        return cls(
            allow_loopback=settings.http_allow_loopback,
            allow_private=settings.http_allow_private,
            allowlist=parse_allowlist(settings.http_allowlist),
            only_allowlist=settings.http_only_allowlist,
        )

    def check_target(self, target: HttpTarget) -> None:
        """Refuse what needs no name resolution: an address, a port, an unlisted name."""
        if target.address is not None:
            self.check_addresses(target.host, target.port, [target.address])
            return
        listed = self._covers_name(target.host, target.port)
        self._check_port(target.host, target.port, listed)
        if not any(allowed.network for allowed in self.allowlist):
            self._check_listed(target.host, listed)

    def check_addresses(self, host: str, port: int, addresses: Sequence[Address]) -> bool:
        """Refuse a host unless every address that it resolved to may be called.

        Returns True if the allowlist contains the host itself and so trusts its addresses.
        """
        if not addresses:
            raise AddressRefused(host=host, reason="it has no address")
        if any(allowed.is_name(host.removesuffix(".")) for allowed in self._opened(port)):
            return True
        # A pattern does not vouch for addresses: anybody who can create a name that matches it
        # could point that name at this machine.
        listed = self._covers_name(host, port)
        for address in addresses:
            if not self._covers_address(address, port):
                self._check_port(host, port, listed)
                self._check_listed(host, listed)
                if (reason := self.refusal(address)) is not None:
                    raise AddressRefused(host=host, reason=reason)
        return False

    def check_address(self, address: Address, port: int) -> None:
        """Refuse an address by itself, independent of the name."""
        if not self._covers_address(address, port) and (reason := self.refusal(address)):
            raise AddressRefused(host=str(address), reason=reason)

    def refusal(self, address: Address) -> str | None:
        """Why an address may not be called, without regard to the allowlist."""
        for network, kind, what in _RANGES:
            if address in network:
                if kind is RangeKind.LOOPBACK and self.allow_loopback:
                    return None
                if kind is RangeKind.PRIVATE and self.allow_private:
                    return None
                return f"{address} is {what} ({kind.value} would allow it)"
        if address.version == 6 and address not in _PUBLIC_V6:
            return f"{address} is not a public address ({RangeKind.NEVER.value} would allow it)"
        return None

    def _opened(self, port: int) -> list[AllowlistEntry]:
        return [allowed for allowed in self.allowlist if allowed.opens(port)]

    def _covers_name(self, host: str, port: int) -> bool:
        name = host.removesuffix(".")
        return any(allowed.covers_name(name) for allowed in self._opened(port))

    def _covers_address(self, address: Address, port: int) -> bool:
        return any(allowed.covers_address(address) for allowed in self._opened(port))

    def _check_port(self, host: str, port: int, listed: bool) -> None:
        if port in OTHER_PROTOCOL_PORTS and not listed:
            reason = (
                f"port {port} belongs to another protocol ({RangeKind.NEVER.value} would allow it)"
            )
            raise AddressRefused(host=host, reason=reason)

    def _check_listed(self, host: str, listed: bool) -> None:
        if self.only_allowlist and not listed:
            raise AddressRefused(host=host, reason="it is not in http_allowlist")


def parse_allowlist(lines: Iterable[str]) -> tuple[AllowlistEntry, ...]:
    """Read entries `name`, `*.name`, `address` or `network/bits`, each optionally with `:port`."""
    return tuple(_parse_allowed(line.strip()) for line in lines if line.strip())


def _parse_allowed(line: str) -> AllowlistEntry:
    try:
        return AllowlistEntry(network=ip_network(line))
    except ValueError:
        pass  # a name, or an entry with a port
    text, port = line, None
    head, colon, tail = line.rpartition(":")
    if colon and not head.endswith(":") and tail.isdecimal() and ":" not in head.split("]")[-1]:
        text, port = head, int(tail)
    try:
        if port is not None and not 1 <= port <= 65535:
            raise ValueError(f"{port} is not a port")
        if text.startswith("[") and text.endswith("]"):
            return AllowlistEntry(network=ip_network(text[1:-1]), port=port)
        if "/" in text:
            return AllowlistEntry(network=ip_network(text), port=port)
        if text.startswith("*."):
            return AllowlistEntry(name="." + _name(text[2:]), port=port)
        host, address = parse_host(text)
        if address is not None:
            return AllowlistEntry(network=ip_network(address), port=port)
        return AllowlistEntry(name=_name(host), port=port)
    except (ValueError, BadTarget) as error:
        raise BadConfig(reason=f"http_allowlist: {line!r}: {error}") from None


def _name(text: str) -> str:
    host, address = parse_host(text)
    if address is not None:
        raise ValueError("an address cannot follow *.")
    return host.removesuffix(".")


def parse_address(text: str) -> Address:
    """An address from the resolver, without its interface (`%eth0`)."""
    return ip_address(text.partition("%")[0])
