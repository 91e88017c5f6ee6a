"""Addresses and ports of a broker: the machine's own address, and ports with their neighbours (broker.md §3.2)."""

from __future__ import annotations

import socket

from tianzhou.errors import ConfigError
from tianzhou.process.free_ports import free_port

FAST_PORT_BELOW = 2
"""By how much the port that serves no pulls is below the main one."""


def first_address() -> str:
    """This machine's first address that is not loopback, or 127.0.0.1 when it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only asks the kernel for the route's source address.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def host_bytes(address: str) -> bytes:
    """The 4 or 16 bytes of the advertised address; a name is resolved.

    Raises:
        ConfigError: it does not resolve.
    """
    try:
        family, _, _, _, found = socket.getaddrinfo(address.strip("[]"), None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(
            f"brokerIP1={address}: does not resolve ({error}); give an address of this machine"
        ) from error
    return socket.inet_pton(family, str(found[0]).partition("%")[0])


def free_port_pair(host: str) -> int:
    """A free port with a free fast port, and free ones between them and for replication.

    Raises:
        ConfigError: there is none, or nothing can listen on the host.
    """
    return free_port(host, below=FAST_PORT_BELOW, above=1)
