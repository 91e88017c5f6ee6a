"""Heartbeats: that a client lives, and what it produces and consumes (client.md §3.4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Final

from tianzhou.client.cluster import rpc
from tianzhou.client.cluster.routes import RouteTable
from tianzhou.errors import TianzhouError
from tianzhou.model import HeartbeatData
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection

GREETING_INTERVAL_S: Final = 1.0
"""Between two heartbeats over new connections to a broker: what members do when it has had one may end the next."""
_log = logging.getLogger(__name__)


class Heartbeats:
    """Sends heartbeats to the brokers of all known routes.

    Args:
        client_id: of the client.
        remoting: carries the requests.
        routes: knows the brokers.
        data: what to announce now; None, when there are neither producers nor consumers, sends nothing.
        spawn: runs a coroutine as a task of the client.
        greeted_again: called when a broker has had a heartbeat over a new connection.
        interval_s: pause between heartbeats.
        timeout_ms: limit of one heartbeat.
    """

    def __init__(
        self,
        client_id: str,
        remoting: RemotingClient,
        routes: RouteTable,
        data: Callable[[], HeartbeatData | None],
        spawn: Callable[[Coroutine[Any, Any, Any]], object],
        greeted_again: Callable[[], None],
        *,
        interval_s: float,
        timeout_ms: float,
    ) -> None:
        self._client_id = client_id
        self._remoting = remoting
        self._routes = routes
        self._data = data
        self._spawn = spawn
        self._greeted_again = greeted_again
        self._interval_s = interval_s
        self._timeout_ms = timeout_ms
        self._known_to: set[str] = set()
        self._greeted_s: dict[str, float] = {}  # when a broker had the last over a new connection, by address
        self._lock = asyncio.Lock()
        self._ended = False

    async def run(self) -> None:
        """Send heartbeats at intervals, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.all()

    def end(self) -> None:
        """Send no more heartbeats by oneself."""
        self._ended = True

    async def all(self, *, strangers_only: bool = False) -> None:
        """Tell every known broker that this client lives; failures are logged, the next round tries again.

        Args:
            strangers_only: leave out the brokers that know it already.
        """
        async with self._lock:
            data = self._data()
            if data is None:
                return
            addresses = self._routes.addresses(masters_only=not data.consumers)
            if strangers_only:
                addresses = [address for address in addresses if address not in self._known_to]
            await asyncio.gather(*(self._tell(address, data) for address in addresses))

    async def to(self, address: str) -> None:
        """Tell one broker that this client lives."""
        async with self._lock:
            data = self._data()
            if data is not None:
                await self._tell(address, data)

    def greet_new(self) -> None:
        """Tell the brokers that do not know this client, soon."""
        if not self._ended and self._data() is not None:
            self._spawn(self.all(strangers_only=True))

    def connected(self, connection: Connection) -> None:
        """A connection was made. A broker forgets a client with its connection, so the new one is used at once."""
        if connection.remote_address in self._known_to and not self._ended:
            self._known_to.discard(connection.remote_address)
            self._spawn(self._greet_again(connection.remote_address))

    async def unregister(self, **group: str) -> None:
        """Tell the brokers that a group is gone: `producer_group=…` or `consumer_group=…`."""

        async def one(address: str) -> None:
            try:
                await rpc.unregister(self._remoting, address, self._client_id, timeout_ms=self._timeout_ms, **group)
            except TianzhouError as error:
                _log.info("could not unregister %s from %s: %s", self._client_id, address, error)

        await asyncio.gather(*(one(address) for address in self._routes.addresses() if address in self._known_to))

    async def _tell(self, address: str, data: HeartbeatData) -> None:
        try:
            await rpc.heartbeat(self._remoting, address, data, self._timeout_ms)
        except TianzhouError as error:
            _log.info("heartbeat of %s to %s failed: %s", self._client_id, address, error)
        except Exception:  # noqa: BLE001 - the other brokers have to hear all the same
            _log.exception("heartbeat of %s to %s failed", self._client_id, address)
        else:
            self._known_to.add(address)

    async def _greet_again(self, address: str) -> None:
        await asyncio.sleep(0)  # the connection becomes the client's only after this callback
        monotonic = self._remoting.group.monotonic
        early_s = self._greeted_s.get(address, -inf) + GREETING_INTERVAL_S - monotonic()
        if early_s > 0:
            await asyncio.sleep(early_s)
        self._greeted_s[address] = monotonic()
        await self.to(address)
        if address in self._known_to:
            self._greeted_again()
