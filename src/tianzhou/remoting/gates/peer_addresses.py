"""Addresses of peers: load balancers with a trusted PROXY header, and the connections per address. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, TypeAlias

from tianzhou.errors import ConfigError
from tianzhou.escaping import shown

KEY: Final = "proxyProtocolTrusted"
"""The setting that lists trusted load balancers."""
MOST_RANGES: Final = 1_000
_SEPARATORS: Final = re.compile(r"[;,\s]+")
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Range: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def _address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def host_of(name: str) -> tuple[str, bytes]:
    """Return a peer's IP address as text and as the bytes stored in messages. An IPv4-mapped IPv6 address becomes IPv4.

    Raises:
        ValueError: it is not an IP address.
    """
    address = ipaddress.ip_address(name.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address), address.packed


class TrustedProxies:
    """Load balancers whose PROXY header is trusted; none by default.

    Every peer can send such a header. If the server trusted every peer, a peer could claim an address that access
    control admits, or a new address with each connection.

    Args:
        ranges: addresses and networks.
    """

    def __init__(self, ranges: Iterable[_Range] = ()) -> None:
        self._ranges = tuple(ranges)

    @classmethod
    def parse(cls, text: str) -> TrustedProxies:
        """Parse the setting: addresses and networks in CIDR form, joined by `;` or `,`.

        Raises:
            ConfigError: an entry is neither, or there are more than 1000.
        """
        parts = [part for part in _SEPARATORS.split(text) if part]
        if len(parts) > MOST_RANGES:
            raise ConfigError(f"{KEY}: {len(parts)} addresses, at most {MOST_RANGES} are allowed; name their networks")
        ranges = []
        for part in parts:
            try:
                ranges.append(ipaddress.ip_network(part))
            except ValueError as error:
                raise ConfigError(
                    f"{KEY}={shown(text)}: {shown(str(error))}; list addresses and networks, as in "
                    "10.0.0.7;192.168.4.0/24"
                ) from None
        return cls(ranges)

    def trusts(self, host: str) -> bool:
        """Whether the PROXY header of a socket's peer is trusted.

        Args:
            host: the address of the peer's socket.
        """
        if not self._ranges:
            return False
        address = _address(host)
        return address is not None and any(address in one for one in self._ranges)


class PeerCounts:
    """Counter of connections per address. IPv6 counts by its first 64 bits, as one machine may own that network."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, host: str) -> int:
        """Return the present number of connections of an address."""
        return self._counts.get(_key(host), 0)

    def add(self, host: str) -> None:
        """Count a new connection."""
        key = _key(host)
        self._counts[key] = self._counts.get(key, 0) + 1

    def remove(self, host: str) -> None:
        """Remove a counted connection."""
        key = _key(host)
        left = self._counts.get(key, 0) - 1
        if left > 0:
            self._counts[key] = left
        else:
            self._counts.pop(key, None)


def _key(host: str) -> bytes:
    address = _address(host)
    if address is None:
        return host.encode("utf-8", "replace")
    return address.packed if address.version == 4 else address.packed[:8]
