"""Free ports for servers that may listen anywhere, with the neighbours they need."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from typing import Any, Final

from tianzhou.errors import ConfigError

_OUTGOING_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_OUTGOING_PORTS: Final = (32_768, 60_999)
_FIRST_PORT: Final = 10_000
_END: Final = 65_536
_ENOUGH: Final = 1_000
_TRIES: Final = 256


def free_port(host: str, *, below: int = 0, above: int = 0) -> int:
    """A free port whose neighbours are free as well.

    It is one that the kernel gives to no outgoing connection, where there are enough of those, so that nothing but
    another server takes it before the one it is for.

    Args:
        host: at which the server will listen; empty for all addresses.
        below: how many ports right below it have to be free.
        above: how many ports right above it have to be free.

    Raises:
        ConfigError: there is none, or nothing can listen on the host.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.bind(address)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}: {error.strerror}; give an address of this machine") from error
    ports = _ports_of_servers()
    for _ in range(_TRIES):
        port = secrets.choice(ports)
        near = range(port - below, port + above + 1)
        if near.stop <= _END and all(_is_free(family, (address[0], one, *address[2:])) for one in near):
            return port
    raise ConfigError(f"no free ports found on {host}; give a port")


def _ports_of_servers() -> range:
    """Ports that no outgoing connection gets by chance; all that need no privilege where there are too few."""
    try:
        first, last = map(int, _OUTGOING_PORTS.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        first, last = _DEFAULT_OUTGOING_PORTS
    widest = max(range(_FIRST_PORT, first), range(last + 1, _END), key=len)
    return widest if len(widest) >= _ENOUGH else range(_FIRST_PORT, _END)


def _is_free(family: int, address: tuple[Any, ...]) -> bool:
    with socket.socket(family) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
        return True
