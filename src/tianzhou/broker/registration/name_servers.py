"""Which name servers a broker registers at (broker.md §3.3, §26.1).

They are those of `namesrvAddr`, what the names there stand for, or those an address server lists.
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
    """The addresses a name stands for, `host:port` each.

    Raises:
        OSError: it stands for none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    hosts = dict.fromkeys(str(address[0]) for *_, address in found)
    return [f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts]


class NameServers:
    """The name servers of now.

    Args:
        settings: where they are given, or where they can be found.
        ask: asks an address server; tests have their own.
    """

    def __init__(self, settings: BrokerSettings, *, ask: Callable[[str], Awaitable[str]] = look_up) -> None:
        self._settings = settings
        self._ask = ask
        self._found: list[str] = []
        self._failed = ""

    @property
    def sought(self) -> bool:
        """Whether they have to be looked for, and again now and then."""
        settings = self._settings
        if settings.namesrv_addr:
            return settings.fetch_name_srv_addr_by_dns_lookup
        return settings.fetch_namesrv_addr_by_address_server

    @property
    def addresses(self) -> list[str]:
        """`host:port` each."""
        return self._found if self.sought else self._settings.namesrv_addresses

    async def refresh(self) -> bool:
        """Look for them; whether there are others than before. When that fails, those of before stay."""
        if not self.sought:
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
        """Look again now and then, until cancelled.

        Args:
            changed: called when there are others than before.
        """
        while True:
            settings = self._settings
            asks = self.sought and not settings.namesrv_addr
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
