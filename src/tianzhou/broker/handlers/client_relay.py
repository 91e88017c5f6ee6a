"""Requests relayed to clients: running info (307), consume directly (309), status (223) (wire.md §7.8)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from tianzhou.access.signatures import CREDENTIALS
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.tables.clients import RegisteredClient
from tianzhou.errors import BrokerError, ConnectionLost, ProtocolError, RemotingError, RequestTimeout, TooBusy
from tianzhou.limits import CLIENT_REQUESTS, Bounds
from tianzhou.model import MessageQueue
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.bodies.offsets import CONSUMER_STATUS, OFFSET_TABLE
from tianzhou.wire.codes import RESET_CLIENT_OFFSET_SINCE, RUNNING_INFO_SINCE, RequestCode, ResponseCode, version_name
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_header
from tianzhou.wire.ids import parse_offset_msg_id

CLIENT_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000
_log = logging.getLogger(__name__)


class ClientRelayHandler(Handler):
    """Handler that relays requests to a consumer over its own connection and returns its replies unchanged."""

    @serves(RequestCode.GET_CONSUMER_RUNNING_INFO)
    async def running_info(self, connection: Connection, command: Command) -> Reply:
        """Return the running info of a consumer."""
        header = read_header(command)
        return await self._ask(command, header.consumer_group, header.client_id, _relayed(command))

    @serves(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    async def consume_directly(self, connection: Connection, command: Command) -> Reply:
        """Have a consumer consume one message now, independent of its offsets."""
        header = read_header(command)
        if not header.msg_id:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                "msgId is missing; give the offset message id of the message to be consumed, its bytes are not taken",
            )
        fields = _relayed(command) | {"brokerName": self._tables.settings.broker_name}
        body = await self._record(header.msg_id)
        topic = self._tables.topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._tables.groups.get(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return await self._ask(command, header.consumer_group, header.client_id, fields, body)

    async def _record(self, msg_id: str) -> bytes:
        try:
            offset = parse_offset_msg_id(msg_id)[2]
        except (ValueError, ProtocolError) as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"msgId={msg_id} is no offset message id: {error}") from None
        record = await self._store.find(self._store.lookups.record_steps(offset))
        if record is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return bytes(record)

    async def _ask(
        self, command: Command, group: str, client_id: str | None, fields: dict[str, str], body: bytes = b""
    ) -> Reply:
        client = self._tables.clients.find_consumer(group, client_id or "")
        if client is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if client.version < RUNNING_INFO_SINCE:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(client.version)}> too low to finish, please upgrade"
                f" it to {version_name(RUNNING_INFO_SINCE)}",
            )
        connection = free_connection(self._tables.bounds, client)
        try:
            answer = await connection.invoke(Command(command.code, fields=fields, body=body), CLIENT_TIMEOUT_MS)
        except RequestTimeout:
            raise BrokerError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> did not answer within {CLIENT_TIMEOUT_MS} ms",
            ) from None
        except ConnectionLost:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"consumer <{group}> <{client_id}> went offline before it answered"
            ) from None
        return command.reply(answer.code, answer.remark, answer.fields, answer.body)

    @serves(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    async def status(self, connection: Connection, command: Command) -> Reply:
        """Return a topic's offsets as one member or all members of a group report them."""
        header = read_header(command)
        group, wanted = header.group, (header.client_addr or "").strip()
        online = self._tables.clients.consumers.get(group)
        if online is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
        members = [client for client in online.clients.values() if wanted in ("", client.client_id)]
        refuse_old(members)
        offsets_of_members = await asyncio.gather(*(self._status_of(client, header.topic, group) for client in members))
        table = {
            client.client_id: offsets
            for client, offsets in zip(members, offsets_of_members, strict=True)
            if offsets is not None
        }
        return command.reply(ResponseCode.SUCCESS, body=CONSUMER_STATUS.dumps(table))

    async def _status_of(self, client: RegisteredClient, topic: str, group: str) -> dict[MessageQueue, int] | None:
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        question = Command(code, fields=write_header(code, topic=topic, group=group))
        try:
            answer = await free_connection(self._tables.bounds, client).invoke(question, STATUS_TIMEOUT_MS)
            return OFFSET_TABLE.loads(answer.body) if answer.code == ResponseCode.SUCCESS else None
        except (RemotingError, ProtocolError, TooBusy) as error:
            _log.warning("consumer %s of group %s did not say how far it is: %s", client.client_id, group, error)
            return None


def _relayed(command: Command) -> dict[str, str]:
    """Return the fields of a request without its signature, because a receiver could repeat the request with it."""
    return {name: value for name, value in command.fields.items() if name not in CREDENTIALS}


def refuse_old(members: Iterable[RegisteredClient]) -> None:
    """Refuse members whose version is too old to report or reset offsets.

    Raises:
        BrokerError: SYSTEM_ERROR.
    """
    for client in members:
        if client.version < RESET_CLIENT_OFFSET_SINCE:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"the client {client.client_id} does not support this feature. version={version_name(client.version)}",
            )


def free_connection(bounds: Bounds, client: RegisteredClient) -> Connection:
    """Return the connection of a client if it may get one more request.

    Raises:
        TooBusy: the client has the maximum number of unanswered requests.
    """
    assert isinstance(client.connection, Connection)
    bounds.check(CLIENT_REQUESTS, client.connection.awaiting + 1, f"client {client.client_id}")
    return client.connection
