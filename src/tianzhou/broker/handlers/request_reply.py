"""Replies to requests between clients: codes 324 and 325, pushed to the requester by 326 (broker.md §7.6).

A reply is an ordinary message to `<cluster>_REPLY_TOPIC` whose properties name the requester. The broker pushes it to
that client over the connection of its heartbeats, and also stores it in the topic.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tianzhou.broker.handlers.client_relay import free_connection
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.messages.admission import Admission, reply_marks
from tianzhou.broker.messages.put_codes import is_stored
from tianzhou.broker.services import Services
from tianzhou.broker.tables.clients import RegisteredClient
from tianzhou.errors import BrokerError, RemotingError, TooBusy
from tianzhou.model import TopicConfig, names
from tianzhou.records.layout import INNER_BATCH_BITS
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.store.results import NewRecord
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_header, write_reply
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.ids import host_text, offset_msg_id
from tianzhou.wire.properties import decode_properties, encode_properties

PUSH_TIMEOUT_MS = 10_000
HEARTBEAT_WAIT_S = 1.5
"""Seconds that a reply waits for the requester's heartbeat.

Go's client sends requests before its first heartbeat, a second after its start. A replying client waits 3 s for the
answer.
"""
LOOK_AGAIN_S = 0.1
PUSHED_ID = "0"
"""Message id in the answer for a reply that was pushed but not stored."""


class RequestReplyHandler(Handler):
    """Handler that delivers replies to the requesters."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._admission = Admission(self._tables)
        self._rng = services.rng

    @serves(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
    async def reply(self, connection: Connection, command: Command) -> Reply:
        """Push a reply to the requester, and store it; the answer states whether it was delivered."""
        settings = self._tables.settings
        marks = reply_marks(settings)
        try:
            header = read_header(command)
            now_ms = self._clock.now_ms()
            config = self._admission.topic_for(header, now_ms)
            self._admission.check_queue(config, header.queue_id, connection.remote_address)
        except BrokerError as error:
            return command.reply(error.code, error.remark, marks)
        body = bytes(command.body)
        queue_id = self._queue(config, header.queue_id)
        properties = decode_properties((header.properties or "").encode("utf-8", "surrogatepass"))
        problem = await self._push(connection, header, queue_id, properties, body)
        code, remark, msg_id, queue_offset = ResponseCode.SUCCESS, problem, PUSHED_ID, 0
        if problem is not None:
            code = ResponseCode.SYSTEM_ERROR
        fields: dict[str, str] = {}
        if settings.store_reply_message_enable:
            stored = await self._put(connection, header, config, queue_id, properties, body)
            if stored is not None:
                msg_id, queue_offset = stored
        if problem is None or msg_id != PUSHED_ID:
            fields = write_reply(command.code, msg_id=msg_id, queue_id=queue_id, queue_offset=queue_offset)
        return command.reply(code, remark, {**marks, **fields})

    def _queue(self, config: TopicConfig, queue_id: int) -> int:
        return queue_id if queue_id >= 0 else self._rng.randrange(max(config.write_queue_nums, 1))

    async def _push(
        self, connection: Connection, header: Any, queue_id: int, properties: dict[str, str], body: bytes
    ) -> str | None:
        """Push a reply; return the reason when it was not delivered, else None."""
        client_id = properties.get(names.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        client = await self._requester(client_id)
        if client is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._clock.now_ms()
        request = Command(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            fields=write_header(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                producer_group=header.producer_group,
                topic=header.topic,
                default_topic=header.default_topic,
                default_topic_queue_nums=header.default_topic_queue_nums,
                queue_id=queue_id,
                sys_flag=header.sys_flag,
                born_timestamp=header.born_timestamp,
                flag=header.flag,
                properties=encode_properties({**properties, names.PUSH_REPLY_TIME: str(now_ms)}).decode(),
                reconsume_times=header.reconsume_times,
                unit_mode=header.unit_mode,
                born_host=connection.remote_address,
                store_host=host_text(*self._host),
                store_timestamp=now_ms,
            ),
            body=body,
        )
        try:
            answer = await free_connection(self._tables.bounds, client).invoke(request, PUSH_TIMEOUT_MS)
        except (RemotingError, TooBusy) as error:
            return f"push reply message to {client_id} fail: {error}"
        return None if answer.code == ResponseCode.SUCCESS else f"push reply message to {client_id} fail."

    async def _requester(self, client_id: str) -> RegisteredClient | None:
        """Return the requester once it has a heartbeat; None when no heartbeat arrived in time."""
        client, left_s = self._tables.clients.find_producer(client_id), HEARTBEAT_WAIT_S
        while client is None and left_s > 0:
            await asyncio.sleep(LOOK_AGAIN_S)
            left_s -= LOOK_AGAIN_S
            client = self._tables.clients.find_producer(client_id)
        return client

    async def _put(
        self,
        connection: Connection,
        header: Any,
        config: TopicConfig,
        queue_id: int,
        properties: dict[str, str],
        body: bytes,
    ) -> tuple[str, int] | None:
        """Store a reply; return its offset id and queue offset, None when it could not be stored."""
        result = self._store.append(
            NewRecord(
                config.topic_name,
                queue_id,
                body,
                (header.properties or "").encode("utf-8", "surrogatepass"),
                header.flag,
                header.sys_flag & ~INNER_BATCH_BITS,
                header.born_timestamp,
                connection.remote_host_bytes,
                connection.remote_port,
                header.reconsume_times,
                0,
                tags_code(properties.get(names.TAGS)),
                properties.get(names.KEYS, ""),
                properties.get(names.UNIQ_KEY, ""),
            )
        )
        if not is_stored(result.status):
            self._stats.failed += 1
            return None
        size = result.end_offset - result.physical_offset
        self._stats.put(config.topic_name).add(queue_id, 1, size)
        if self._store.durability.waits and properties.get(names.WAIT) != "false":
            await self._store.settle(result)
        return offset_msg_id(*self._host, result.physical_offset), result.queue_offset
