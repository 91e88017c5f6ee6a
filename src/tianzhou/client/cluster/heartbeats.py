"""Heartbeats: they report that a client is alive, and its producers and consumers (client.md §3.4)."""

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
"""Minimum seconds between heartbeats over new connections to a broker. The members' reaction to a heartbeat may close
the next connection."""
_log = logging.getLogger(__name__)


class Heartbeats:
    """Sender of heartbeats to the brokers of all known routes.

    Args:
        client_id: the client's id.
        remoting: carries the requests.
        routes: knows the brokers.
        data: returns the heartbeat to send now; None without producers and consumers, when no heartbeat is sent.
        spawn: runs a coroutine as a task of the client.
        greeted_again: called after a broker got a heartbeat over a new connection.
        interval_s: pause between heartbeats.
        timeout_ms: timeout of one heartbeat.
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
        """Send heartbeats at intervals until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.all()

    def end(self) -> None:
        """Stop the heartbeats to new brokers and over new connections."""
        self._ended = True

    async def all(self, *, strangers_only: bool = False) -> None:
        """Send a heartbeat to every known broker. Failures are logged, and the next round retries.

        Args:
            strangers_only: whether to skip brokers that already got a heartbeat.
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
        """Send a heartbeat to one broker."""
        async with self._lock:
            data = self._data()
            if data is not None:
                await self._tell(address, data)

    def greet_new(self) -> None:
        """Start a task that sends heartbeats to the brokers that got none yet."""
        if not self._ended and self._data() is not None:
            self._spawn(self.all(strangers_only=True))

    def connected(self, connection: Connection) -> None:
        """Send a heartbeat over a new connection, because a broker removes a client with its old connection."""
        if connection.remote_address in self._known_to and not self._ended:
            self._known_to.discard(connection.remote_address)
            self._spawn(self._greet_again(connection.remote_address))

    async def unregister(self, **group: str) -> None:
        """Unregister a group at all brokers that know this client: `producer_group=…` or `consumer_group=…`."""

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
        except Exception:  # noqa: BLE001 - the other brokers still have to get the heartbeat
            _log.exception("heartbeat of %s to %s failed", self._client_id, address)
        else:
            self._known_to.add(address)

    async def _greet_again(self, address: str) -> None:
        await asyncio.sleep(0)  # the client stores the connection only after this callback
        monotonic = self._remoting.group.monotonic
        early_s = self._greeted_s.get(address, -inf) + GREETING_INTERVAL_S - monotonic()
        if early_s > 0:
            await asyncio.sleep(early_s)
        self._greeted_s[address] = monotonic()
        await self.to(address)
        if address in self._known_to:
            self._greeted_again()
