"""Detection and logging of another living broker with this broker's name and id (docs/adr/0024)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from tianzhou.broker.registration.master_lookup import answers, registered_broker
from tianzhou.broker.services import Services
from tianzhou.errors import TianzhouError
from tianzhou.escaping import shown
from tianzhou.model.names import MASTER_ID
from tianzhou.remoting.client import RemotingClient
from tianzhou.repeats import Repeats

LOOK_S: Final = 5.0
"""Minimum seconds between two reads of a route; registrations may be more frequent."""

_log = logging.getLogger(__name__)


class OtherHolder:
    """Detection of the other broker from the answers or the routes of name servers.

    Args:
        services: the broker's services; its replication gets the other broker's address.
        client: client for requests to name servers and the other broker.
    """

    def __init__(self, services: Services, client: RemotingClient) -> None:
        self._settings = services.tables.settings
        self._replication = services.replication
        self._address = services.address
        self._client = client
        self._clock = services.clock
        self._registered: dict[str, int] = {}
        """Name servers that accepted this broker's last registration, each with the broker id of the registration."""
        self._looked_s: dict[str, float] = {}
        self._routed: dict[str, str] = {}
        self._names_pairs: set[str] = set()
        """Name servers whose answers name the other broker, so that their routes need not be read."""
        self._found: dict[str, str] = {}
        self._lines = Repeats(lines=10)

    async def look(self, server: str) -> None:
        """Read the route before a registration, to find a broker that replaced this one since its last registration.

        Apache's name servers give a route to the broker that registered last. Tianzhou's name servers name the other
        broker in their answers, so their routes are not read. Before its first registration, a broker counts the
        registered broker only if that one answers. After a restart the route has the broker's former process, which
        does not answer.
        """
        if server in self._names_pairs or self._clock.monotonic() - self._looked_s.get(server, -inf) < LOOK_S:
            return
        self._looked_s[server] = self._clock.monotonic()
        broker_id, registered_id = self._replication.broker_id, self._registered.get(server)
        if registered_id != broker_id and self._may_take_over:
            return
        other = await self._holder(server, broker_id)
        if other and registered_id != broker_id and not await answers(self._client, other):
            other = ""
        if other is not None:
            self._routed[server] = other

    async def watch(self, servers: Callable[[], Iterable[str]]) -> None:
        """Read the routes of Apache's name servers between two registrations, until cancelled.

        So the first of two brokers logs the pair within `LOOK_S` and not after the period of registrations. A route
        with this broker proves nothing, because this broker may have registered after the other one.

        Args:
            servers: returns the addresses of the present name servers.
        """
        while True:
            await asyncio.sleep(LOOK_S)
            due = [one for one in servers() if one in self._registered and one not in self._names_pairs]
            await asyncio.gather(*(self._watch_one(server) for server in due))

    async def _watch_one(self, server: str) -> None:
        broker_id = self._registered[server]
        other = await self._holder(server, broker_id)
        if other and self._registered.get(server) == broker_id == self._replication.broker_id:
            self._note(server, other)

    async def _holder(self, server: str, broker_id: int) -> str | None:
        """Return the other broker that a name server has for this name and id; empty for this one, None if unknown."""
        try:
            other = await registered_broker(self._client, server, self._settings.broker_name, broker_id)
        except TianzhouError:
            return None
        return "" if other == self._address else other

    @property
    def _may_take_over(self) -> bool:
        """Whether this broker may replace a living one, as the next leader of a group does."""
        mastership = self._replication.mastership
        return mastership is not None and bool(mastership.group)

    def answered(self, server: str, named: str | None, *, accepted: bool, broker_id: int) -> None:
        """Note the answer to a registration.

        Args:
            server: address of the name server.
            named: address of the other broker that the answer names; empty when there is none, None when the name
                server names no other brokers.
            accepted: whether the name server accepted the registration.
            broker_id: broker id of the registration.
        """
        if named is None:
            self._names_pairs.discard(server)
        else:
            self._names_pairs.add(server)
            self._routed.pop(server, None)
        if self._registered.get(server, broker_id) != broker_id:
            self._routed.pop(server, None)
        if accepted:
            self._registered[server] = broker_id
        self._note(server, named or self._routed.get(server, ""))

    def _note(self, server: str, other: str) -> None:
        """Log a new pair, or the end of a pair."""
        before = self._found.get(server, "")
        self._found[server] = other
        self._replication.other_holder = next(filter(None, self._found.values()), "")
        name, broker_id = self._settings.broker_name, self._replication.broker_id
        is_master = broker_id == MASTER_ID
        if other and other != before and self._lines.due("pair", self._clock.monotonic()) is not None:
            pair = f"masters of broker {name}" if is_master else f"brokers {name} with brokerId={broker_id}"
            remedy = "another brokerName" if is_master else "another brokerId"
            _log.error(
                "two %s are alive: this one at %s and the other one at %s, as name server %s has it; "
                "clients reach one of them only: stop one of the two, or give it %s",
                pair, self._address, shown(other), server, remedy,
            )  # fmt: skip
        elif before and not other:
            again = "one master" if is_master else f"one broker with brokerId={broker_id}"
            _log.warning("broker %s has %s again, as name server %s has it", name, again, server)
