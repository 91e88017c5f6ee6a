"""Addresses from which the HA port and the port of a group's members take connections. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final

from tianzhou.errors import ConfigError, ProtocolError

KEY: Final = "replicationAllowedAddresses"
MOST: Final = 1000
"""Entries of the list; each connection is compared with all of them."""


class AllowedAddresses:
    """A list of addresses and CIDR ranges; an empty one allows all.

    Args:
        text: addresses and ranges such as `10.0.0.0/24`, IPv4 or IPv6, separated by commas.

    Raises:
        ConfigError: an entry is neither, or there are too many.
    """

    def __init__(self, text: str = "") -> None:
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        if len(entries) > MOST:
            raise ConfigError(f"{KEY}: {len(entries)} entries, {MOST} are the most; give ranges such as 10.0.0.0/24")
        self._networks = [_network(entry) for entry in entries]

    @property
    def lists_any(self) -> bool:
        """Whether there is a list."""
        return bool(self._networks)

    def check(self, ip: str) -> None:
        """Return when connections from an address are taken.

        Args:
            ip: the peer's address, without its port.

        Raises:
            ProtocolError: they are not.
        """
        if not self._networks:
            return
        try:
            address = ipaddress.ip_address(ip.partition("%")[0])
        except ValueError:
            address = None
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if address is None or not any(address in network for network in self._networks):
            raise ProtocolError(f"its address is not among {KEY}; add it there if it is a broker of this group")


EVERYBODY: Final = AllowedAddresses()
"""No list."""


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(entry)
    except ValueError as error:
        raise ConfigError(
            f"{KEY}: {entry[:64]!r} is no address or range ({error}); give for example 10.0.0.7 or 10.0.0.0/24"
        ) from error
