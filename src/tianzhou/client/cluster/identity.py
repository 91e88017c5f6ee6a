"""Identity of a client: addresses of name servers, client ids, unique ids (client.md §1.1, wire.md §4.7, §14)."""

from __future__ import annotations

import itertools
import os
import re
import socket
import time
from collections.abc import Sequence
from typing import Any

from tianzhou.errors import ConfigError, Faults
from tianzhou.escaping import shown
from tianzhou.model.server_addresses import address_fault

NAMESRV_ENV = "NAMESRV_ADDR"
_SCHEMES = frozenset({"http", "https"})
_ENDPOINT = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\.")
VIP_PORT_BELOW = 2
_serial = itertools.count()


def name_server_addresses(addresses: str | Sequence[str] | None) -> list[str]:
    """Return the addresses of the name servers.

    Args:
        addresses: `host:port`, or `http://host:port` as RocketMQ writes endpoints; one text joined by `;` or several
            texts; None reads the environment variable `NAMESRV_ADDR`.

    Raises:
        ConfigError: no address is given, or texts are no addresses; names each text with its fault.
    """
    source = ""
    if addresses is None:
        addresses = os.environ.get(NAMESRV_ENV, "")
        source = f"the environment's {NAMESRV_ENV}: "
    parts: list[Any] = addresses.replace(",", ";").split(";") if isinstance(addresses, str) else list(addresses)
    result: list[str] = []
    faults = Faults(source)
    for part in parts:
        if not isinstance(part, str):
            faults.note(f"name server address {part!r} is a {type(part).__name__}; write it as text, 'host:9876'")
            continue
        address = part.strip()
        if not address:
            continue
        scheme, separator, rest = address.partition("://")
        if separator and scheme in _SCHEMES:
            address = rest
        if fault := address_fault(address):
            faults.note(f"name server address {shown(repr(part))} is no host:port, as in 127.0.0.1:9876: {fault}")
        elif address not in result:
            result.append(address)
    faults.check()
    if not result:
        given = f" in {source}{addresses!r}" if addresses else ""
        raise ConfigError(
            f"no name server address{given}: pass namesrv_addr='host:9876' or set the environment's {NAMESRV_ENV}"
        )
    return result


def endpoint_namespace(addresses: str | Sequence[str] | None) -> str | None:
    """Return the namespace in an address of the form `http://MQ_INST_….…:9876`; None for any other address."""
    first = addresses if isinstance(addresses, str) else next(iter(addresses or ()), "")
    match = _ENDPOINT.match(first.strip())
    return match[1] if match else None


def vip_address(address: str) -> str:
    """Return the address of a broker's fast port: its own port minus two (client.md §21)."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - VIP_PORT_BELOW}"


def local_ip(towards: str = "") -> str:
    """Return the IPv4 address that this machine uses to reach a peer; no packet is sent.

    Args:
        towards: the peer, `host:port`.
    """
    host = towards.rpartition(":")[0].strip("[]") or "198.51.100.1"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def instance_name() -> str:
    """Return a unique name on this machine: process id, nanoseconds, and a counter in case the clock is coarse."""
    return f"{os.getpid()}#{time.time_ns()}{next(_serial) % 1000:03d}"


def make_client_id(ip: str, name: str, unit_name: str | None = None) -> str:
    """Return a client id in RocketMQ's form: `ip@instance[@unit]`."""
    return f"{ip}@{name}@{unit_name}" if unit_name else f"{ip}@{name}"
