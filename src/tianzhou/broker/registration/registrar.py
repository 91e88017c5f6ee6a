"""Registration at all name servers of a broker, independently and in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from tianzhou.broker.registration.name_servers import CurrentNameServers
from tianzhou.broker.registration.other_holder import OtherHolder
from tianzhou.broker.registration.registration_states import RegistrationState, is_ready, is_settled
from tianzhou.broker.registration.server_registration import RETRY_S, ServerRegistration
from tianzhou.broker.registration.topic_bodies import TopicBodies
from tianzhou.broker.services import Services
from tianzhou.remoting.client import RemotingClient
from tianzhou.watermark import Watermark


class Registrar:
    """Registrations of this broker at every name server, and its unregistration at the stop.

    Args:
        services: the broker's services.
        client: client for requests to the name servers.
        names: the name servers.
    """

    def __init__(self, services: Services, client: RemotingClient, names: CurrentNameServers) -> None:
        self._services = services
        self._topics = services.tables.topics
        self._client = client
        self._names = names
        self._hold_ms = services.store.settings.disappear_time_after_start
        self._supervisor = services.supervisor
        self._requested = Watermark(1)
        self._changes = Watermark(0)
        self._ready = asyncio.Event()
        self._servers: dict[str, ServerRegistration] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._bodies = TopicBodies(services.tables)
        self._pair = OtherHolder(services, client)
        self._topics.listeners.append(self._topics_changed)

    async def ready(self) -> None:
        """Return once a name server has registered this broker and each other name server has answered or timed out."""
        await self._ready.wait()

    @property
    def registered(self) -> bool:
        """Whether a name server has registered this broker; True when there are no name servers."""
        return self._ready.is_set() and (any(one.registered for one in self._states) or not self._names.addresses)

    @property
    def _states(self) -> Collection[RegistrationState]:
        return [one.state for one in self._servers.values()]

    def request(self) -> None:
        """Register as soon as possible, because the last registration is out of date."""
        self._requested.advance(self._requested.value + 1)

    def register_again(self) -> None:
        """Register all topics as soon as possible although none changed, because the answers name the master."""
        self._whole_table_is_due()
        self.request()

    async def settled(self, timeout_s: float = 3.0) -> bool:
        """Wait until the registrations requested so far are done at all name servers that answer.

        Returns:
            False when they are not done after `timeout_s`.
        """
        if not self._names.addresses and not self._names.looked_up:
            return True
        number = self._requested.value
        return await self._until(lambda: is_settled(self._states, number), timeout_s)

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for a condition of the states; return False after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self._changes.reach(self._changes.value + 1)
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Run one registration for each name server until cancelled."""
        if self._hold_ms > 0:
            hold_ms, self._hold_ms = self._hold_ms, 0
            await asyncio.sleep(hold_ms / 1000)
        self._supervisor.own("other brokers of this name", lambda: self._pair.watch(lambda: self._names.addresses))
        while True:
            requested = self._requested.value
            if not self._names.addresses:
                await self._names.refresh()
            addresses = self._names.addresses
            await self._follow(addresses)
            self._changed()
            try:
                async with asyncio.timeout(None if addresses or not self._names.looked_up else RETRY_S):
                    await self._requested.reach(requested + 1)
            except TimeoutError:
                continue

    async def _follow(self, addresses: list[str]) -> None:
        """Start registrations at new name servers, and stop those at name servers that are no longer listed."""
        for address in addresses:
            if address not in self._servers:
                server = self._servers[address] = ServerRegistration(
                    address, self._services, self._client, self._bodies, self._pair, self._requested, self._changed
                )
                self._tasks[address] = self._supervisor.own(f"registering at {address}", server.run)
        gone = [address for address in self._servers if address not in addresses]
        for address in gone:
            self._servers.pop(address).forget()
        await self._supervisor.stop(*(self._tasks.pop(address) for address in gone))

    def _changed(self) -> None:
        """Note a change of the states."""
        self._changes.advance(self._changes.value + 1)
        if is_ready(self._states) or not (self._names.addresses or self._names.looked_up):
            self._ready.set()

    def _topics_changed(self, topics: list[str]) -> None:
        """Note changed topics; after a deletion or a change without names the complete table is due."""
        known = self._topics.all()
        if topics and all(topic in known for topic in topics):
            for server in self._servers.values():
                server.topics_changed(set(topics))
        else:
            self._whole_table_is_due()

    def _whole_table_is_due(self) -> None:
        for server in self._servers.values():
            server.topics_changed(set())

    async def unregister(self) -> None:
        """Unregister at every name server in parallel."""
        for server in self._servers.values():
            server.forget()
        await asyncio.gather(*(server.unregister() for server in self._servers.values()))
