"""Locality of peers: on this machine or on another one."""

from __future__ import annotations

import ipaddress

from tianzhou.remoting.connection import Connection


def is_on_this_machine(connection: Connection) -> bool:
    """Whether a peer is on this machine. For a load balancer, its client must be on this machine, too.

    Every peer can send a PROXY header, so the header alone never makes a peer local.
    """
    return all(host and (host == connection.local_ip or is_loopback(host)) for host in origin(connection))


def origin(connection: Connection) -> tuple[str, str]:
    """Return the host of a peer's socket, and the host of its PROXY header (the same without a header)."""
    return str(ipaddress.ip_address(connection.remote_host_bytes)), connection.remote_ip


def is_loopback(host: str) -> bool:
    """Whether a listening address or host name is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
