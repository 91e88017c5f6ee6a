"""The name servers a client asks: one of them until it does not answer, then the next (client.md §1.1, §3.3)."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Sequence
from typing import Any

from tianzhou.client.cluster import address_server, rpc
from tianzhou.client.cluster.identity import NAMESRV_ENV, name_server_addresses
from tianzhou.errors import ConnectFailed, RemotingError, TianzhouError
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.command import Command

_log = logging.getLogger(__name__)


class NameServers:
    """Addresses of name servers, given or looked up, and which of them is in use.

    Args:
        addresses: `host:port`, see `name_server_addresses`.
        domain: an address server that lists them, when none is given.
        subgroup: which of its lists.
        unit_name: appended to its URL.
        rng: chooses which comes first.

    Raises:
        ConfigError: there is none, or one is no address.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] | None,
        domain: str | None,
        subgroup: str,
        unit_name: str | None,
        rng: random.Random,
    ) -> None:
        self._url: str | None = None
        if domain and not addresses and not os.environ.get(NAMESRV_ENV):
            self._url = address_server.lookup_url(domain, subgroup, unit_name)
        self.addresses = [] if self._url else name_server_addresses(addresses)
        self._turn = rng.randrange(len(self.addresses)) if self.addresses else 0

    @property
    def looked_up(self) -> bool:
        """Whether an address server lists them."""
        return self._url is not None

    @property
    def in_use(self) -> str:
        """The one that requests go to now."""
        return self.addresses[self._turn % len(self.addresses)]

    async def look_up(self) -> None:
        """Ask the address server for the list; does nothing without one.

        Raises:
            ConnectFailed: it does not answer.
            ConfigError: its list is empty or no list.
        """
        if self._url is not None:
            self.addresses = name_server_addresses(await address_server.look_up(self._url))

    async def keep_looking_up(self) -> None:
        """Ask it again every two minutes, until cancelled."""
        await asyncio.sleep(address_server.FIRST_REFRESH_S)
        while True:
            try:
                await self.look_up()
            except TianzhouError as error:
                _log.warning("the list of name servers stays as it was: %s", error)
            await asyncio.sleep(address_server.REFRESH_S)

    async def ask(
        self, remoting: RemotingClient, code: int, body: bytes, timeout_ms: float, header: dict[str, Any]
    ) -> Command:
        """Send a request to the name server in use, and to the others in turn when it does not answer.

        Raises:
            ConnectFailed: none of them answers.
        """
        failures = []
        for _ in range(len(self.addresses)):
            try:
                return await remoting.invoke(self.in_use, rpc.request(code, body, **header), timeout_ms)
            except RemotingError as error:
                failures.append(str(error))
                self._turn = (self._turn + 1) % len(self.addresses)
        raise ConnectFailed(f"no name server answers: {'; '.join(failures)}")
