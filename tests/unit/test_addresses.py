"""Which addresses may be called: spellings, ranges, the allowlist, and resolved names."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.config import Settings
from drumline.errors import BadConfig
from drumline.handlers.http.addresses import (
    OTHER_PROTOCOL_PORTS,
    RANGES,
    AddressRefused,
    AddressRules,
    RangeKind,
    parse_allowlist,
)
from drumline.handlers.http.connector import CheckedResolver, connection_limit
from drumline.handlers.http.target import BadTarget, HttpTarget

DEFAULT = AddressRules()
DEMO = AddressRules(allow_loopback=True)
LISTED = AddressRules(
    allowlist=parse_allowlist(
        [
            "localhost",
            "metadata.example",
            "*.svc.example",
            "127.0.0.0/30",
            "[::1]:8443",
            "smtp.x:25",
        ]
    )
)


def refused(rules: AddressRules, url: str) -> str | None:
    """Why a URL is refused before anything is resolved."""
    try:
        rules.check_target(HttpTarget.parse(url))
    except (AddressRefused, BadTarget) as error:
        return str(error)
    return None


# --- hosts that are addresses ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("0.0.0.0", "unspecified"),  # noqa: S104
        ("0.1.2.3", "unspecified"),
        ("169.254.169.254", "metadata"),
        ("169.254.170.2", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("169.254.0.1", "link-local"),
        ("192.0.0.8", "reserved"),
        ("192.88.99.1", "6to4"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "broadcast"),
        ("[::]", "unspecified"),
        ("[::1]", "loopback"),
        ("[0:0:0:0:0:0:0:1]", "loopback"),
        ("[0000:0000:0000:0000:0000:0000:0000:0001]", "loopback"),
        ("[::0.0.0.1]", "loopback"),
        ("[fe80::1]", "link-local"),
        ("[febf::1]", "link-local"),
        ("[fec0::1]", "site-local"),
        ("[ff02::1]", "multicast"),
        ("[fd00:ec2::254]", "metadata"),
        ("[FD00:0EC2:0::254]", "metadata"),
        ("[fd20:ce::254]", "metadata"),
        ("[::ffff:127.0.0.1]", "mapped"),
        ("[::ffff:7f00:1]", "mapped"),
        ("[::FFFF:169.254.169.254]", "mapped"),
        ("[::ffff:10.0.0.1]", "mapped"),
        ("[::ffff:8.8.8.8]", "mapped"),
        ("[::ffff:0:127.0.0.1]", "translated"),
        ("[::127.0.0.1]", "compatible"),
        ("[::7f00:1]", "compatible"),
        ("[64:ff9b::7f00:1]", "NAT64"),
        ("[64:ff9b::169.254.169.254]", "NAT64"),
        ("[64:ff9b:1::1]", "NAT64"),
        ("[2002:7f00:1::]", "6to4"),
        ("[2002:a9fe:a9fe::1]", "6to4"),
        ("[2001:0:7f00:1::]", "Teredo"),
        ("[2001:10::1]", "reserved"),
        ("[100::1]", "not a public address"),
        ("[4000::1]", "not a public address"),
    ],
)
def test_address_of_a_forbidden_range_is_refused(address: str, why: str) -> None:
    for scheme, port in (("http", ""), ("https", ":8443")):
        reason = refused(DEFAULT, f"{scheme}://{address}{port}")
        assert reason is not None and why in reason


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.100.100.201",
     "8.8.8.8", "1.1.1.1", "172.32.0.1", "198.18.0.1", "[2606:4700::1]", "[fd12:3456::1]",
     "[fc00::1]", "[2a00:1450::1]"],
)  # fmt: skip
def test_public_and_private_services_may_be_called(address: str) -> None:
    assert refused(DEFAULT, f"http://{address}") is None


def test_each_setting_permits_its_range_and_no_other() -> None:
    for url in ("http://127.0.0.1:8080", "http://[::1]"):
        assert refused(DEFAULT, url) is not None
        assert refused(DEMO, url) is None
    for address in ("0.0.0.0", "169.254.169.254", "[::ffff:127.0.0.1]", "[::127.0.0.1]"):  # noqa: S104
        assert refused(DEMO, f"http://{address}") is not None
    closed = AddressRules(allow_private=False)
    for address in ("10.0.0.1", "192.168.0.1", "172.20.0.1", "100.64.0.1", "[fd12::1]"):
        reason = refused(closed, f"http://{address}")
        assert reason is not None and "http_allow_private" in reason
    assert refused(closed, "http://8.8.8.8") is None


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1",
     "127.0.0.1.", "127.0.0.01", "0x7f.0x0.0x0.0x1", "0X7F.1", "1.2.3.4.5", "256.1.1.1",
     "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "example.0x7f", "foo.123",
     "\uff11\uff12\uff17.0.0.1.", "127。1"],
)  # fmt: skip
def test_an_unusual_spelling_of_an_ipv4_address_is_refused(host: str) -> None:
    for rules in (DEFAULT, DEMO, AddressRules(allowlist=parse_allowlist(["0.0.0.0/0"]))):
        reason = refused(rules, f"http://{host}")
        assert reason is not None and "is not a dotted IPv4 address" in reason


@pytest.mark.parametrize(
    "host", ["①②⑦.0.0.1", "\uff11\uff12\uff17.0.0.1", "127。0。0。1", "127.0.0.1"]
)
def test_host_is_normalised_as_by_the_resolver(host: str) -> None:
    assert HttpTarget.parse(f"http://{host}").host == "127.0.0.1"
    assert refused(DEFAULT, f"http://{host}") is not None


@pytest.mark.parametrize(
    ("origin", "why"),
    [
        ("ftp://example", "only http and https"),
        ("file://example", "only http and https"),
        ("gopher://example", "only http and https"),
        ("http://user@example", "a user or password"),
        ("http://user:pw@example", "a user or password"),
        ("http://example@169.254.169.254", "a user or password"),
        ("http://::1", "brackets"),
        ("http://[::1", "host is invalid"),
        ("http://[::1]x", "host is invalid"),
        ("http://[127.0.0.1]", "not an IPv6 address"),
        ("http://[fe80::1%eth0]", "names a network interface"),
        ("http://[::1]:", None),
        ("http://exam ple", "not a host name"),
        ("http://example..com", "not a host name"),
        ("http://.example", "not a host name"),
        ("http://%31%32%37.0.0.1", "not a host name"),
        ("http://" + "a" * 64, "not a host name"),
        ("http://" + "a." * 130 + "b", "not a host name"),
        ("http://example:0", "not a port"),
        ("http://example:65536", "not a port"),
        ("http://example:080", "not a port"),
        ("http://example:8_0", "not a port"),
        ("http://example:\uff18\uff10", "not a port"),
        ("http://example:80:81", "host is invalid"),
        ("http://xn--a", None),
    ],
)
def test_ambiguous_url_is_refused(origin: str, why: str | None) -> None:
    if why is None:
        HttpTarget.parse(origin)
        return
    with pytest.raises(BadTarget, match=why):
        HttpTarget.parse(origin)


@pytest.mark.parametrize(
    ("origin", "one"),
    [
        ("HTTP://EXAMPLE.Com:80", "http://example.com"),
        ("https://example:443", "https://example"),
        ("https://example:80", "https://example:80"),
        ("http://[2606:4700:0:0::1]:81", "http://[2606:4700::1]:81"),
        ("http://bücher.example", "http://xn--bcher-kva.example"),
        ("http://a_b-c.example.", "http://a_b-c.example."),
    ],
)
def test_target_is_normalised(origin: str, one: str) -> None:
    assert HttpTarget.parse(origin).origin == one


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_no_ipv6_form_of_an_ipv4_address_is_permitted(address: IPv4Address) -> None:
    forms = [f"::ffff:{address}", f"::{address}", f"64:ff9b::{address}", f"::ffff:0:{address}"]
    six = IPv6Address((0x2002 << 112) | (int(address) << 80))
    for form in [*forms, str(six)]:
        if IPv6Address(form) != IPv6Address("::1"):
            assert DEMO.refusal(IPv6Address(form)) is not None


@given(st.integers(0, 2**32 - 1).map(IPv4Address) | st.integers(0, 2**128 - 1).map(IPv6Address))
def test_the_first_range_that_matches_decides(address: IPv4Address | IPv6Address) -> None:
    kinds = [kind for text, kind, _ in RANGES if address in ip_network(text)]
    outside = isinstance(address, IPv6Address) and address not in ip_network("2000::/3")
    expected = kinds[0] is RangeKind.PRIVATE if kinds else not outside
    assert (DEFAULT.refusal(address) is None) is expected


def test_no_range_is_hidden_by_an_earlier_wider_one() -> None:
    networks = [ip_network(text) for text, _, _ in RANGES]
    for i, network in enumerate(networks):
        for earlier in networks[:i]:
            if isinstance(network, IPv4Network) is isinstance(earlier, IPv4Network):
                assert not network.subnet_of(earlier)  # type: ignore[arg-type]  # same version


# --- ports and the allowlist ----------------------------------------------------------------------


def test_ports_of_other_protocols_are_refused() -> None:
    for port in (22, 25, 6379, 11211):
        assert port in OTHER_PROTOCOL_PORTS
        reason = refused(DEFAULT, f"http://example.com:{port}")
        assert reason is not None and f"port {port}" in reason
        assert refused(DEFAULT, f"http://10.0.0.1:{port}") is not None
        assert refused(DEMO, f"http://127.0.0.1:{port}") is not None
    assert refused(LISTED, "http://smtp.x:25") is None
    assert refused(LISTED, "http://localhost:25") is not None  # listed, but not for this port


@pytest.mark.parametrize(
    ("host", "port", "addresses", "allowed"),
    [
        ("localhost", 80, ["127.0.0.1", "::1"], True),  # by name, for any address
        ("localhost.", 80, ["127.0.0.1"], True),
        ("metadata.example", 80, ["169.254.169.254"], True),
        ("other.example", 80, ["127.0.0.2"], True),  # by address
        ("other.example", 80, ["127.0.0.4"], False),
        ("other.example", 8443, ["::1"], True),
        ("other.example", 443, ["::1"], False),
        ("other.example", 80, ["8.8.8.8", "127.0.0.1"], True),
        ("other.example", 80, ["8.8.8.8", "127.0.0.9"], False),  # every answer counts
        ("a.svc.example", 80, ["10.0.0.1"], True),
        ("a.svc.example", 80, ["127.0.0.9"], False),  # a pattern does not permit addresses
        ("svc.example", 80, ["169.254.169.254"], False),
        ("evil-localhost", 80, ["127.0.0.9"], False),
        ("localhost.evil", 80, ["127.0.0.9"], False),
        ("nothing.example", 80, [], False),
    ],
)
def test_allowlist_overrides_the_ranges(
    host: str, port: int, addresses: list[str], allowed: bool
) -> None:
    answers = [ip_address(address) for address in addresses]
    if allowed:
        LISTED.check_addresses(host, port, answers)
    else:
        with pytest.raises(AddressRefused, match="may not be called"):
            LISTED.check_addresses(host, port, answers)


def test_with_only_allowlist_other_targets_are_refused() -> None:
    names = AddressRules(
        allowlist=parse_allowlist(["api.example", "*.svc.example"]), only_allowlist=True
    )
    assert refused(names, "http://api.example") is None
    assert refused(names, "http://a.b.svc.example") is None
    for url in ("http://example", "http://svc.example", "http://8.8.8.8", "http://xsvc.example"):
        reason = refused(names, url)
        assert reason is not None and "not in http_allowlist" in reason
    # With a network in the list, what a name resolves to decides.
    networks = AddressRules(allowlist=parse_allowlist(["10.1.0.0/16"]), only_allowlist=True)
    assert refused(networks, "http://any.example") is None
    networks.check_addresses("any.example", 80, [ip_address("10.1.2.3")])
    with pytest.raises(AddressRefused, match="not in http_allowlist"):
        networks.check_addresses(
            "any.example", 80, [ip_address("10.1.2.3"), ip_address("10.2.0.1")]
        )


@pytest.mark.parametrize(
    "line",
    ["10.0.0.1/8", "exa mple", "*.1.2.3.4", "*", "*.", "name:0", "name:65536", "127.1", "[::1",
     "http://example", "0x7f000001", "a*b", "user@host"],
)  # fmt: skip
def test_invalid_entry_of_the_allowlist_is_named(line: str) -> None:
    with pytest.raises(BadConfig, match="http_allowlist") as caught:
        parse_allowlist([line])
    assert repr(line) in str(caught.value)


def test_allowlist_is_parsed() -> None:
    parsed = parse_allowlist(
        [" Name.Example ", "", "name:8080", "*.a.b:1", "::1", "[::1]:80", "[fd00::/8]:80",
         "10.0.0.0/8:81", "1.2.3.4"]
    )  # fmt: skip
    assert [(a.name, a.network and str(a.network), a.port) for a in parsed] == [
        ("name.example", None, None),
        ("name", None, 8080),
        (".a.b", None, 1),
        ("", "::1/128", None),
        ("", "::1/128", 80),
        ("", "fd00::/8", 80),
        ("", "10.0.0.0/8", 81),
        ("", "1.2.3.4/32", None),
    ]


def test_rules_are_made_from_the_settings() -> None:
    assert AddressRules.of(Settings()) == DEFAULT
    assert AddressRules.of(Settings(http_allow_loopback=True)) == DEMO


# --- names ----------------------------------------------------------------------------------------


def resolve(
    rules: AddressRules, lookup: Callable[[str, int], Sequence[str]], host: str = "name.example"
) -> list[str]:
    async def go() -> list[str]:
        resolver = CheckedResolver(rules, lookup)
        try:
            answers = await resolver.resolve(host, 80)
            for answer in answers:
                info = (answer["family"], socket.SOCK_STREAM, 0, "", (answer["host"], 80))
                resolver.open_socket(info).close()
            return [answer["host"] for answer in answers]
        finally:
            await resolver.close()

    return asyncio.run(go())


def test_every_resolved_address_is_checked() -> None:
    assert resolve(DEFAULT, lambda *_: ["10.0.0.1", "2606:4700::1"]) == ["10.0.0.1", "2606:4700::1"]
    for bad in ("127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1", "fe80::1%eth0"):
        for answers in ([bad], ["8.8.8.8", bad], [bad, "8.8.8.8"]):
            with pytest.raises(AddressRefused, match=r"name\.example may not be called"):
                resolve(DEFAULT, lambda *_, answers=answers: answers)
    with pytest.raises(AddressRefused, match="no address"):
        resolve(DEFAULT, lambda *_: [])


def test_socket_is_opened_for_checked_addresses_only() -> None:
    assert resolve(LISTED, lambda *_: ["169.254.169.254"], "metadata.example")
    info = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("169.254.169.254", 80))

    async def open_unresolved() -> None:
        resolver = CheckedResolver(LISTED)
        try:
            resolver.open_socket(info)
        finally:
            await resolver.close()

    with pytest.raises(AddressRefused):
        asyncio.run(open_unresolved())


def test_name_permitted_by_a_pattern_gets_a_socket() -> None:
    lines = parse_allowlist(["*.svc.example"])
    rules = AddressRules(allowlist=lines, only_allowlist=True)
    assert resolve(rules, lambda *_: ["10.0.0.1"], "a.svc.example") == ["10.0.0.1"]
    with pytest.raises(AddressRefused, match="not in http_allowlist"):
        resolve(rules, lambda *_: ["10.0.0.1"], "a.example")


def test_name_that_cannot_be_encoded_is_unknown() -> None:
    def lookup(host: str, port: int) -> Sequence[str]:
        raise UnicodeError("label too long")

    with pytest.raises(socket.gaierror):
        resolve(DEFAULT, lookup)


def test_connection_limit_is_at_least_16() -> None:
    assert connection_limit() >= 16
