"""Hosts of peers as sockets name them. Pure."""

from __future__ import annotations

import ipaddress


def host_of(name: str) -> tuple[str, bytes]:
    """A peer's IP address as text and as the bytes messages keep of it; IPv4 is IPv4 on sockets of both kinds, too.

    Raises:
        ValueError: it is no address.
    """
    address = ipaddress.ip_address(name.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address), address.packed
