"""Settings of the console."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tianzhou.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Settings of a console's server.

    Attributes:
        namesrv_addr: addresses of the cluster's name servers.
        data: folder of the accounts and the audit log.
        host: address to listen on; on any address but loopback, all visitors have to log in.
        port: port to listen on; 0 for any free port.
        host_names: host names of the console, besides addresses and `localhost`.
        login: whether visitors have to log in also on loopback.
        idle_minutes: minutes without use after which a session ends.
        session_hours: hours after which any session ends.
        refresh_s: seconds between two measurements of the cluster for the pages.
        certificate: file of the TLS certificate; None serves plain HTTP.
        key: file of the certificate's private key.
        archive: folder of Parquet files that SQL may read as the table `archive`.
        tls: whether to use TLS to the cluster; None uses the environment's setting.
        trusted_proxies: addresses and networks of proxies in front of the console. Only their header X-Forwarded-For is
            trusted for the address of a visitor.
    """

    namesrv_addr: str
    data: Path
    host: str = "127.0.0.1"
    port: int = 8080
    host_names: tuple[str, ...] = ()
    login: bool = False
    idle_minutes: float = 30.0
    session_hours: float = 12.0
    refresh_s: float = 5.0
    certificate: Path | None = None
    key: Path | None = None
    archive: Path | None = None
    tls: bool | None = None
    trusted_proxies: tuple[str, ...] = ()


def check_proxies(proxies: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses and networks of trusted proxies.

    Raises:
        ConfigError: one of them is neither an address nor a network.
    """
    found = tuple(proxies)
    for proxy in found:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            raise ConfigError(
                f"trusted proxy {proxy!r} is no address and no network; give one such as 10.0.0.7 or 10.0.0.0/24"
            ) from None
    return found
