"""Requests that brokers send to clients (client.md §17, wire.md §7.8)."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Awaitable
from typing import Protocol

from tianzhou.client.member import GroupMember
from tianzhou.remoting.answers import unsupported
from tianzhou.wire import bodies
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header
from tianzhou.wire.record import decode_record, to_message

_log = logging.getLogger(__name__)


class Consumers(Protocol):
    """The part of a client instance that answers need."""

    client_id: str

    def consumer(self, group: str) -> GroupMember | None:
        """The consumer of a group."""
        ...

    def wake_consumers(self, group: str) -> None:
        """The group's members have changed."""
        ...


def answer(client: Consumers, command: Command) -> Command | Awaitable[Command | None] | None:
    """Serve a broker's request; None where RocketMQ's protocol has no reply."""
    match command.code:
        case RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            client.wake_consumers(read_header(command).consumer_group)
            return None
        case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            return _reset_offsets(client, command)
        case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return _consumer_status(client, command)
        case RequestCode.GET_CONSUMER_RUNNING_INFO:
            return _running_info(client, command)
        case RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return _consume_directly(client, command)
        case _:
            return unsupported(command)


def _no_consumer(command: Command, client: Consumers, group: str) -> Command:
    return command.reply(
        ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer {client.client_id}"
    )


async def _reset_offsets(client: Consumers, command: Command) -> None:
    header = read_header(command)
    member = client.consumer(header.group)
    if member is None:
        _log.info("offsets of group %s are reset, but it has no consumer here", header.group)
        return
    offsets = bodies.decode_offset_table(command.body)
    _log.warning("group %s is told to continue elsewhere in topic %s: %s", header.group, header.topic, offsets)
    await member.reset_offsets(offsets)


def _consumer_status(client: Consumers, command: Command) -> Command:
    header = read_header(command)
    member = client.consumer(header.group)
    offsets = member.consume_offsets(header.topic) if member is not None else {}
    return command.reply(ResponseCode.SUCCESS, body=bodies.encode_offset_table(offsets, "messageQueueTable"))


def _running_info(client: Consumers, command: Command) -> Command:
    header = read_header(command)
    member = client.consumer(header.consumer_group)
    if member is None:
        return _no_consumer(command, client, header.consumer_group)
    info = member.running_info()
    if header.jstack_enable:
        info.jstack = stack_dump()
    return command.reply(ResponseCode.SUCCESS, body=bodies.encode_running_info(info))


def stack_dump() -> str:
    """What every thread of this process is doing."""
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"TID: {ident}\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)


async def _consume_directly(client: Consumers, command: Command) -> Command:
    header = read_header(command)
    member = client.consumer(header.consumer_group)
    if member is None:
        return _no_consumer(command, client, header.consumer_group)
    message = to_message(decode_record(command.body), header.broker_name or "")[0]
    result = await member.consume_directly(message)
    return command.reply(ResponseCode.SUCCESS, body=bodies.encode_direct_consumption(result))
