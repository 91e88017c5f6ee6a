"""Bytes of the commit log that are broken here and whole at another broker of the group (docs/adr/0016)."""

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
"""Bytes of the log that one request may ask for."""
_TIMEOUT_MS: Final = 2_000

_log = logging.getLogger(__name__)


class LogRepairs:
    """Asks a slave's master, the members of a group, and whoever else is of this broker's name, for bytes of the log.

    Args:
        replication: knows the master, or the members.
        members: knows the others.
        client: reaches them.
    """

    def __init__(self, replication: Replication, members: GroupMembers, client: RemotingClient) -> None:
        self._replication = replication
        self._members = members
        self._client = client

    async def __call__(self, offset: int, size: int) -> bytes | None:
        """The bytes that another broker has at a log offset; None when none has them. The caller has to check them."""
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
