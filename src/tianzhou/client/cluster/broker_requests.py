"""Requests that brokers send to clients (client.md §17, wire.md §7.8)."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Awaitable
from typing import Protocol

from tianzhou.client.cluster.member import GroupMember, StateCheck, StateQuestion
from tianzhou.client.cluster.requests import PendingReplies, pushed_reply
from tianzhou.client.cluster.routes import RouteTable
from tianzhou.client.namespaces.namespaces import unwrap
from tianzhou.client.namespaces.request_names import (
    message_inside,
    offsets_inside,
    offsets_outside,
    running_info_outside,
)
from tianzhou.clock import Clock
from tianzhou.errors import ProtocolError, TianzhouError
from tianzhou.escaping import shown
from tianzhou.model import names
from tianzhou.records.codec import decode_record
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.error_codes import unsupported
from tianzhou.wire.bodies.clients import DIRECT_CONSUMPTION, RUNNING_INFO
from tianzhou.wire.bodies.offsets import CLIENT_OFFSETS, OFFSET_TABLE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header
from tianzhou.wire.ids import parse_offset_msg_id
from tianzhou.wire.pulled import to_message

LAST_OFFSET = 2**62
"""Maximum offset that a reset may set. No queue grows this large, and larger offsets would overflow header fields."""

_log = logging.getLogger(__name__)


class AnsweringClient(Protocol):
    """The part of a client instance that the handlers of these requests need."""

    client_id: str
    clock: Clock
    routes: RouteTable
    replies: PendingReplies
    namespace: str | None
    max_unpacked_body_bytes: int

    def consumer(self, group: str) -> GroupMember | None:
        """Return the consumer of a group; None without one."""
        ...

    def wake_consumers(self, group: str) -> None:
        """Rebalance a group's consumers, because the group's members have changed."""
        ...

    def state_check(self, group: str) -> StateCheck | None:
        """Return the handler of transaction checks for a producer group; None without one."""
        ...


def answer(
    client: AnsweringClient, connection: Connection, command: Command
) -> Command | Awaitable[Command | None] | None:
    """Serve a broker's request; return None when RocketMQ's protocol has no reply."""
    match command.code:
        case RequestCode.CHECK_TRANSACTION_STATE:
            _check_transaction(client, connection, command)
            return None
        case RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return _reply_arrived(client, command)
        case RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            client.wake_consumers(read_header(command).consumer_group)
            return None
        case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            return _reset_offsets(client, connection, command)
        case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return _consumer_status(client, command)
        case RequestCode.GET_CONSUMER_RUNNING_INFO:
            return _running_info(client, command)
        case RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return _consume_directly(client, command)
        case _:
            return unsupported(command)


def _check_transaction(client: AnsweringClient, connection: Connection, command: Command) -> None:
    header = read_header(command)
    broker_name = header.bname or client.routes.broker_name_of(connection.remote_address) or ""
    message = to_message(decode_record(command.body), broker_name, client.max_unpacked_body_bytes)[0]
    group = message.properties.get(names.PGROUP, "")
    check = client.state_check(group)
    if check is None:
        _log.warning("broker %s asks for a transaction of producer group %r, of which none is here", connection, group)
        return
    message.topic = unwrap(client.namespace, message.topic)
    check(
        StateQuestion(
            message,
            header.transaction_id,
            header.tran_state_table_offset,
            header.commit_log_offset,
            broker_name,
            connection.remote_address,
            connection,
        )
    )


def _reply_arrived(client: AnsweringClient, command: Command) -> Command:
    try:
        reply = pushed_reply(command, client.clock.now_ms(), client.replies, client.max_unpacked_body_bytes)
        client.replies.arrived(reply)
    except TianzhouError as error:
        _log.warning("a reply cannot be read: %s", error)
        return command.reply(ResponseCode.SYSTEM_ERROR, str(error))
    return command.reply(ResponseCode.SUCCESS)


def _no_consumer(command: Command, client: AnsweringClient, group: str) -> Command:
    return command.reply(
        ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer {client.client_id}"
    )


async def _reset_offsets(client: AnsweringClient, connection: Connection, command: Command) -> None:
    header = read_header(command)
    member = client.consumer(header.group)
    if member is None:
        _log.info("offsets of group %s are reset, but it has no consumer here", header.group)
        return
    offsets = offsets_inside(client.namespace, OFFSET_TABLE.loads(command.body))
    if any(not 0 <= offset <= LAST_OFFSET for offset in offsets.values()):
        raise ProtocolError(f"{connection} resets group {header.group} to offsets that no queue has")
    _log.warning("group %s is reset to other offsets in topic %s: %s", header.group, header.topic, offsets)
    await member.reset_offsets(offsets)


def _consumer_status(client: AnsweringClient, command: Command) -> Command:
    header = read_header(command)
    member = client.consumer(header.group)
    offsets = member.consume_offsets(unwrap(client.namespace, header.topic)) if member is not None else {}
    offsets = offsets_outside(client.namespace, offsets)
    return command.reply(ResponseCode.SUCCESS, body=CLIENT_OFFSETS.dumps(offsets))


def _running_info(client: AnsweringClient, command: Command) -> Command:
    header = read_header(command)
    member = client.consumer(header.consumer_group)
    if member is None:
        return _no_consumer(command, client, header.consumer_group)
    info = running_info_outside(client.namespace, member.running_info())
    if header.jstack_enable:
        info.jstack = stack_dump()
    return command.reply(ResponseCode.SUCCESS, body=RUNNING_INFO.dumps(info))


def stack_dump() -> str:
    """Return the stacks of this process's threads."""
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"TID: {ident}\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)


async def _consume_directly(client: AnsweringClient, command: Command) -> Command:
    header = read_header(command)
    member = client.consumer(header.consumer_group)
    if member is None:
        return _no_consumer(command, client, header.consumer_group)
    record, limit_bytes = decode_record(command.body), client.max_unpacked_body_bytes
    if _offset_of(header.msg_id) != record.physical_offset:
        # A broker that looked the record up by an id sends the record at the offset in that id.
        return command.reply(
            ResponseCode.SYSTEM_ERROR,
            f"the message is not the one of msgId={shown(header.msg_id or 'null')}; ask with one",
        )
    message = message_inside(client.namespace, to_message(record, header.broker_name or "", limit_bytes)[0])
    result = await member.consume_directly(message)
    return command.reply(ResponseCode.SUCCESS, body=DIRECT_CONSUMPTION.dumps(result))


def _offset_of(msg_id: str | None) -> int | None:
    try:
        return parse_offset_msg_id(msg_id or "")[2]
    except (ValueError, ProtocolError):
        return None
