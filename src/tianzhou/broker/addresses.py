"""Addresses and ports of a broker: the machine's own address, and ports with their neighbours (broker.md §3.2)."""

from __future__ import annotations

import socket

from tianzhou.errors import ConfigError
from tianzhou.process.free_ports import free_port

FAST_PORT_BELOW = 2
"""Distance of the fast port, which serves no pulls, below the main port."""


def first_address() -> str:
    """Return this machine's first address that is not loopback, or 127.0.0.1 when it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends no packet; the kernel only selects the route's source address.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def host_bytes(address: str) -> bytes:
    """Return the 4 or 16 bytes of the advertised address; resolve a name.

    Raises:
        ConfigError: the name does not resolve.
    """
    try:
        family, _, _, _, found = socket.getaddrinfo(address.strip("[]"), None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(
            f"brokerIP1={address}: does not resolve ({error}); give an address of this machine"
        ) from error
    return socket.inet_pton(family, str(found[0]).partition("%")[0])


def free_port_pair(host: str) -> int:
    """Return a free port whose fast port, the port between and the replication port are free too.

    Raises:
        ConfigError: there is no such port, or the host's address cannot be bound.
    """
    return free_port(host, below=FAST_PORT_BELOW, above=1)
