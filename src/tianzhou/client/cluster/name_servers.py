"""A client's name servers: it asks one, and also the next one when that is slow or fails (client.md §1.1, §3.3)."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Sequence
from typing import Any, Final

from tianzhou.client.cluster import address_server, rpc
from tianzhou.client.cluster.identity import NAMESRV_ENV, name_server_addresses
from tianzhou.errors import ConnectFailed, RemotingError, TianzhouError
from tianzhou.remoting.client import RemotingClient
from tianzhou.supervision import start_awaited
from tianzhou.wire.command import Command

SLOW_S: Final = 0.5
"""Seconds without an answer after which the next name server gets the request, too."""

_log = logging.getLogger(__name__)


class NameServers:
    """Addresses of name servers, configured or looked up, and which of them is in use.

    Args:
        addresses: `host:port`, see `name_server_addresses`.
        domain: an address server that lists them, when `addresses` is empty.
        subgroup: name of the list at the address server.
        unit_name: suffix of the address server's URL.
        rng: selects the first one to use.

    Raises:
        ConfigError: no address is given, or a text is no address.
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
        """Whether an address server lists the name servers."""
        return self._url is not None

    @property
    def in_use(self) -> str:
        """Address of the name server that gets requests now."""
        return self.addresses[self._turn % len(self.addresses)]

    async def look_up(self) -> None:
        """Update the list from the address server; do nothing without one.

        Raises:
            ConnectFailed: the address server does not answer.
            ConfigError: its list is empty or has no valid addresses.
        """
        if self._url is not None:
            self.addresses = name_server_addresses(await address_server.look_up(self._url))

    async def keep_looking_up(self) -> None:
        """Update the list from the address server every two minutes, until cancelled."""
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
        """Send a read request to the name server in use, and to the next one when it fails or is slow.

        The first answer counts. The name server that sent it becomes the one in use.

        Args:
            remoting: reaches the name servers.
            code: request code; the request must change nothing, because two name servers may get it.
            body: body of the request.
            timeout_ms: timeout of each attempt.
            header: header fields of the request.

        Raises:
            ConnectFailed: no name server answers.
        """
        addresses = list(self.addresses)
        first = self._turn % len(addresses)
        left = addresses[first:] + addresses[:first]
        waiting: dict[asyncio.Future[Command], str] = {}
        failures = []
        try:
            while left or waiting:
                if left:
                    address = left.pop(0)
                    attempt = remoting.invoke(address, rpc.request(code, body, **header), timeout_ms)
                    waiting[start_awaited(attempt)] = address
                limit_s = SLOW_S if left else None
                done, _ = await asyncio.wait(waiting, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    address = waiting.pop(one)
                    try:
                        reply = one.result()
                    except RemotingError as error:
                        failures.append(str(error))
                        continue
                    if address in self.addresses:
                        self._turn = self.addresses.index(address)
                    return reply
        finally:
            for one in waiting:
                one.cancel()
        raise ConnectFailed(f"no name server answers: {'; '.join(failures)}")
