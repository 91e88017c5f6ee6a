"""The list of addresses that may connect to the HA port and to the port of a group's members. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final

from tianzhou.errors import ConfigError, ProtocolError

KEY: Final = "replicationAllowedAddresses"
MOST: Final = 1000
"""Maximum number of entries of the list; each connection is compared with all of them."""


class AllowedAddresses:
    """A list of addresses and CIDR ranges; an empty list allows all addresses.

    Args:
        text: addresses and ranges such as `10.0.0.0/24`, IPv4 or IPv6, separated by commas.

    Raises:
        ConfigError: an entry is neither an address nor a range, or there are too many entries.
    """

    def __init__(self, text: str = "") -> None:
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        if len(entries) > MOST:
            raise ConfigError(f"{KEY}: {len(entries)} entries, {MOST} are the most; give ranges such as 10.0.0.0/24")
        self._networks = [_network(entry) for entry in entries]

    @property
    def lists_any(self) -> bool:
        """Whether the list has entries."""
        return bool(self._networks)

    def check(self, ip: str) -> None:
        """Raise when the list does not allow connections from an address.

        Args:
            ip: the peer's address, without its port.

        Raises:
            ProtocolError: the list has entries, and none contains the address.
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
"""An empty list, which allows all addresses."""


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(entry)
    except ValueError as error:
        raise ConfigError(
            f"{KEY}: {entry[:64]!r} is no address or range ({error}); give for example 10.0.0.7 or 10.0.0.0/24"
        ) from error
