"""Settings of the console."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tianzhou.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How a console is served.

    Attributes:
        namesrv_addr: name servers of the cluster.
        data: folder of its accounts and its audit log.
        host: where it listens; anywhere but on loopback everybody has to log in.
        port: its port, 0 for any free one.
        host_names: names it is reached by, besides addresses and `localhost`.
        login: whether to log in on loopback, too.
        idle_minutes: a session nobody uses ends after this time.
        session_hours: any session ends after this time.
        refresh_s: how often the cluster is looked at for the pages.
        certificate: file of the TLS certificate; None serves plain HTTP.
        key: file of its private key.
        archive: folder of Parquet files that SQL may read as the table `archive`.
        tls: whether the cluster is spoken to by TLS; None leaves it to the environment.
        trusted_proxies: addresses and networks of proxies in front of the console. Only their header X-Forwarded-For
            names the address of a visitor.
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
