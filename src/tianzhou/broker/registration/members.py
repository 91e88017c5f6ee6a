"""Look-up of the other brokers of this one's name at name servers (broker.md §4)."""

from __future__ import annotations

import asyncio
import logging

from tianzhou.broker.registration.name_servers import CurrentNameServers
from tianzhou.broker.services import Services
from tianzhou.errors import TianzhouError
from tianzhou.remoting.client import RemotingClient
from tianzhou.supervision import start_owned
from tianzhou.wire.bodies.route import MEMBER_GROUP
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

MEMBER_TIMEOUT_MS = 1_000

_log = logging.getLogger(__name__)


class GroupMembers:
    """Cached look-up of the other brokers of this broker's name.

    Args:
        services: the broker's services.
        client: client for requests to name servers.
        names: the name servers.
    """

    def __init__(self, services: Services, client: RemotingClient, names: CurrentNameServers) -> None:
        self._settings = services.tables.settings
        self._replication = services.replication
        self._client = client
        self._names = names
        self._clock = services.clock
        self._members: list[str] = []
        self._looked_up_at = -1e9

    async def others(self) -> list[str]:
        """Return the addresses of the other brokers."""
        settings, now = self._settings, self._clock.monotonic()
        if now - self._looked_up_at < settings.sync_broker_member_group_period / 1000:
            return self._members
        self._looked_up_at = now
        code = RequestCode.GET_BROKER_MEMBER_GROUP
        fields = write_header(code, cluster_name=settings.broker_cluster_name, broker_name=settings.broker_name)
        request = Command(code, fields=fields)
        # Run in parallel: a slow name server must not delay the answer of another one.
        lookups = [start_owned(self._asked(address, request), "broker") for address in self._names.addresses]
        try:
            for lookup in asyncio.as_completed(lookups):
                if (found := await lookup) is not None:
                    own = self._replication.broker_id
                    self._members = [where for number, where in found.items() if number != own]
                    break
        finally:
            for one in lookups:
                one.cancel()
        return self._members

    async def _asked(self, address: str, request: Command) -> dict[int, str] | None:
        """Return ids and addresses of the brokers of this name at one name server; None when it has none."""
        try:
            reply = await self._client.invoke(address, request, MEMBER_TIMEOUT_MS)
            found = MEMBER_GROUP.loads(reply.body) if reply.code == ResponseCode.SUCCESS else None
        except TianzhouError as error:
            name = self._settings.broker_name
            _log.warning("name server %s does not answer which brokers have the name %s: %s", address, name, error)
            return None
        return None if found is None else found.broker_addrs
