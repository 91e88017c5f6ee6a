"""Another living master of this broker's name: how this broker finds it, and logs the pair (docs/adr/0024)."""

from __future__ import annotations

import logging
from math import inf
from typing import Final

from tianzhou.broker.registration.master_lookup import registered_master
from tianzhou.broker.services import Services
from tianzhou.errors import TianzhouError
from tianzhou.escaping import shown
from tianzhou.remoting.client import RemotingClient
from tianzhou.repeats import Repeats

LOOK_S: Final = 5.0
"""Minimum seconds between two reads of a route: changes of topics register more often."""

_log = logging.getLogger(__name__)


class OtherMaster:
    """Finds the other master by the answers of name servers, or by the route of those that refuse nobody.

    Args:
        services: of the broker; its replication gets the address.
        client: reaches name servers.
    """

    def __init__(self, services: Services, client: RemotingClient) -> None:
        self._settings = services.tables.settings
        self._replication = services.replication
        self._address = services.address
        self._client = client
        self._clock = services.clock
        self._registered: set[str] = set()
        """Name servers that took this broker's last registration as the master."""
        self._looked_s: dict[str, float] = {}
        self._routed: dict[str, str] = {}
        self._names_pairs: set[str] = set()
        """Name servers whose answers name another master, so that their routes need not be read."""
        self._found: dict[str, str] = {}
        self._lines = Repeats(lines=10)

    async def look(self, server: str) -> None:
        """Read from the route, before a registration, who took this master's place since its last one.

        Apache's name servers give a route to the master that registered last. Those of ours name the other master in
        their answers, and their routes are not read.
        """
        now_s = self._clock.monotonic()
        if (
            server in self._names_pairs
            or server not in self._registered
            or now_s - self._looked_s.get(server, -inf) < LOOK_S
        ):
            return
        self._looked_s[server] = now_s
        try:
            other = await registered_master(self._client, server, self._settings.broker_name)
        except TianzhouError:
            return
        self._routed[server] = "" if other == self._address else other

    def answered(self, server: str, named: str | None, *, is_master: bool) -> None:
        """Note the answer to a registration.

        Args:
            server: address of the name server.
            named: address of the other master that the answer names; empty when there is none, None when the name
                server names no other masters.
            is_master: whether this broker registered as the master.
        """
        other = named or ""
        if named is None:
            self._names_pairs.discard(server)
        else:
            self._names_pairs.add(server)
            self._routed.pop(server, None)
        if not is_master:
            self._registered.discard(server)
            self._routed.pop(server, None)
            other = ""
        else:
            self._registered.add(server)
            other = other or self._routed.get(server, "")
        before = self._found.get(server, "")
        self._found[server] = other
        self._replication.other_master = next(filter(None, self._found.values()), "")
        if other and other != before and self._lines.due("pair", self._clock.monotonic()) is not None:
            _log.error(
                "two masters of broker %s are alive: this one at %s and the other one at %s, as name server %s has it; "
                "clients reach one of them only: stop one of the two, or give it another brokerName",
                self._settings.broker_name, self._address, shown(other), server,
            )  # fmt: skip
        elif before and not other:
            _log.warning("broker %s has one master again, as name server %s has it", self._settings.broker_name, server)
