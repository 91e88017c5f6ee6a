"""Queue locks of ordered consumption (41, 42), by this broker or by a quorum of its group (broker.md §15.6)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.large_bodies import LARGE, decoded
from tianzhou.broker.registration.members import MEMBER_TIMEOUT_MS, GroupMembers
from tianzhou.broker.registration.name_servers import CurrentNameServers
from tianzhou.broker.services import Services
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageQueue
from tianzhou.model.name_rules import BROKER, CLIENT_ID, GROUP, TOPIC
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.side_thread import ASIDE
from tianzhou.remoting.turns import Slices
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LOCKED_QUEUES, LockRequest
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

FEW = 64
"""Maximum queues of a request that is answered at once."""

_log = logging.getLogger(__name__)


class QueueLockHandler(Handler):
    """Handler that grants queue locks.

    With `lockInStrictMode` and more than one replica configured, a queue counts as locked when most of the brokers
    that share this one's name have granted it.

    Args:
        services: the broker's services.
        client: client for requests to name servers and the other members.
        names: the name servers.
    """

    def __init__(self, services: Services, client: RemotingClient, names: CurrentNameServers) -> None:
        super().__init__(services)
        self._client = client
        self._members = GroupMembers(services, client, names)

    @serves(RequestCode.LOCK_BATCH_MQ)
    def lock(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply] | Slices[Reply]:
        """Lock queues for ordered consumption."""
        request = _lock_request(command)
        now = int(self._clock.monotonic() * 1000)
        granted = self._tables.locks.lock(request.consumer_group, request.client_id, request.queues, now)
        if request.only_this_broker or self._quorum <= 1:
            # Answer the few locks of an ordinary consumer at once.
            if len(granted) <= FEW:
                return command.reply(ResponseCode.SUCCESS, body=LOCKED_QUEUES.dumps(granted))
            return self._granted(command, granted)
        return self._agree(command, request, granted)

    @staticmethod
    def _granted(command: Command, queues: list[MessageQueue]) -> Slices[Reply]:
        return command.reply(ResponseCode.SUCCESS, body=(yield from LOCKED_QUEUES.slices(queues)))

    @serves(RequestCode.UNLOCK_BATCH_MQ)
    def unlock(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Release a client's own locks."""
        request = _lock_request(command)
        self._tables.locks.unlock(request.consumer_group, request.client_id, request.queues)
        if request.only_this_broker or self._quorum <= 1:
            return command.reply(ResponseCode.SUCCESS)
        return self._unlock_all(command, request)

    @property
    def _quorum(self) -> int:
        return self._store.settings.total_replicas // 2 + 1 if self._tables.settings.lock_in_strict_mode else 1

    async def _agree(self, command: Command, request: LockRequest, granted: list[MessageQueue]) -> Reply:
        """Return the queues that most members grant."""
        votes = Counter(granted)
        wish = LockRequest(request.client_id, request.consumer_group, granted, only_this_broker=True)
        for reply in await self._ask_others(RequestCode.LOCK_BATCH_MQ, wish):
            if len(reply.body) < LARGE:
                votes.update(LOCKED_QUEUES.loads(reply.body))
            else:
                votes.update(await ASIDE.run(LOCKED_QUEUES.loads, bytes(reply.body)))
        agreed = [queue for queue in granted if votes[queue] >= self._quorum]
        return await self._turns.in_slices(self._granted(command, agreed))

    async def _unlock_all(self, command: Command, request: LockRequest) -> Reply:
        wish = LockRequest(request.client_id, request.consumer_group, request.queues, only_this_broker=True)
        await self._ask_others(RequestCode.UNLOCK_BATCH_MQ, wish)
        return command.reply(ResponseCode.SUCCESS)

    async def _ask_others(self, code: RequestCode, wish: LockRequest) -> list[Command]:
        """Return the replies of the members that agree."""
        body = await self._turns.in_slices(LOCK_REQUEST.slices(wish))

        async def ask(address: str) -> Command | None:
            try:
                reply = await self._client.invoke(address, Command(code, body=body), MEMBER_TIMEOUT_MS)
            except TianzhouError as error:
                _log.warning("locks of group %s: member %s does not answer: %s", wish.consumer_group, address, error)
                return None
            return reply if reply.code == ResponseCode.SUCCESS else None

        replies = await asyncio.gather(*map(ask, await self._members.others()))
        return [reply for reply in replies if reply is not None]


def _lock_request(command: Command) -> LockRequest:
    """Return a decoded request to lock or unlock; check its names."""
    request = decoded(command, LOCK_REQUEST.loads)
    GROUP.check(request.consumer_group)
    CLIENT_ID.check(request.client_id)
    for topic in {queue.topic for queue in request.queues}:
        TOPIC.check(topic)
    for broker in {queue.broker_name for queue in request.queues}:
        BROKER.check(broker)
    return request
