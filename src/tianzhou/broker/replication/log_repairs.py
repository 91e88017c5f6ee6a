"""Repair of broken bytes of the commit log from another broker of the group (docs/adr/0016)."""

from __future__ import annotations

import logging
from typing import Final

from tianzhou.broker.registration.members import GroupMembers
from tianzhou.broker.replication.replication import Replication
from tianzhou.errors import TianzhouError
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

PIECE: Final = 1 << 20
"""Maximum bytes of the log in one request."""
_TIMEOUT_MS: Final = 2_000

_log = logging.getLogger(__name__)


class LogRepairs:
    """Requests for bytes of the log to the master, the members of a group and other brokers of this name.

    Args:
        replication: the broker's replication, with the addresses of master or members.
        members: addresses of other brokers of this name.
        client: client for requests to them.
    """

    def __init__(self, replication: Replication, members: GroupMembers, client: RemotingClient) -> None:
        self._replication = replication
        self._members = members
        self._client = client

    async def __call__(self, offset: int, size: int) -> bytes | None:
        """Return another broker's bytes at a log offset, which the caller must check; None without an answer."""
        for address in dict.fromkeys(self._replication.holders + await self._members.others()):
            try:
                return await self._ask(address, offset, size)
            except TianzhouError as error:
                _log.warning("%s does not give bytes %d to %d of the log: %s", address, offset, offset + size, error)
        return None

    async def _ask(self, address: str, offset: int, size: int) -> bytes:
        found = bytearray()
        code = RequestCode.READ_LOG
        while len(found) < size:
            fields = write_header(code, offset=offset + len(found), size=min(size - len(found), PIECE))
            reply = await self._client.invoke(address, Command(code, fields=fields), _TIMEOUT_MS)
            if reply.code != ResponseCode.SUCCESS or not reply.body:
                raise TianzhouError(reply.remark or f"answer {reply.code} with {len(reply.body)} bytes")
            found += reply.body
        return bytes(found)
