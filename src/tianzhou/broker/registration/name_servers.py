"""Addresses of the name servers a broker registers at (broker.md §3.3, §26.1).

The addresses come from `namesrvAddr`, from DNS look-ups of its names, or from an address server.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from tianzhou.broker.settings import BrokerSettings
from tianzhou.client.cluster.address_server import look_up, lookup_url
from tianzhou.errors import ConnectFailed

SHORTEST_PERIOD_MS = 10

_log = logging.getLogger(__name__)


async def resolve(host: str, port: int) -> list[str]:
    """Resolve a name to addresses, `host:port` each.

    Raises:
        OSError: the name does not resolve.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    hosts = dict.fromkeys(str(address[0]) for *_, address in found)
    return [f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts]


class CurrentNameServers:
    """The current name servers.

    Args:
        settings: the broker's settings, with the name servers or the way to look them up.
        ask: fetches the list of an address server; tests replace it.
    """

    def __init__(self, settings: BrokerSettings, *, ask: Callable[[str], Awaitable[str]] = look_up) -> None:
        self._settings = settings
        self._ask = ask
        self._found: list[str] = []
        self._failed = ""

    @property
    def looked_up(self) -> bool:
        """Whether the addresses have to be looked up periodically."""
        settings = self._settings
        if settings.namesrv_addr:
            return settings.fetch_name_srv_addr_by_dns_lookup
        return settings.fetch_namesrv_addr_by_address_server

    @property
    def addresses(self) -> list[str]:
        """Addresses of the name servers, each `host:port`."""
        return self._found if self.looked_up else self._settings.namesrv_addresses

    async def refresh(self) -> bool:
        """Look up the addresses; return whether they changed. After a failure the known ones stay."""
        if not self.looked_up:
            return False
        try:
            found = await (self._by_name() if self._settings.namesrv_addr else self._by_address_server())
        except (OSError, ConnectFailed) as error:
            if str(error) != self._failed:
                self._failed = str(error)
                _log.warning("name servers cannot be looked up: %s; trying again", error)
            return False
        self._failed = ""
        if found == self._found:
            return False
        self._found = found
        _log.info("name servers are %s", ", ".join(found))
        return True

    async def run(self, changed: Callable[[], None]) -> None:
        """Look up the addresses periodically until cancelled.

        Args:
            changed: callback after a change.
        """
        while True:
            settings = self._settings
            asks = self.looked_up and not settings.namesrv_addr
            period = settings.fetch_namesrv_addr_interval if asks else settings.update_name_server_addr_period
            await asyncio.sleep(max(period, SHORTEST_PERIOD_MS) / 1000)
            if await self.refresh():
                changed()

    async def _by_name(self) -> list[str]:
        found: dict[str, None] = {}
        for address in self._settings.namesrv_addresses:
            host, _, port = address.rpartition(":")
            found.update(dict.fromkeys(await resolve(host.strip("[]"), int(port))))
        return sorted(found)

    async def _by_address_server(self) -> list[str]:
        settings = self._settings
        text = await self._ask(lookup_url(settings.namesrv_domain, settings.namesrv_domain_subgroup))
        return [address.strip() for address in text.split(";") if address.strip()]
