"""Messages that consumers send back (36): to the retry topic after a delay, or to the dead letters (broker.md §8)."""

from __future__ import annotations

from typing import Any

from tianzhou.access.requests import AccessDenied
from tianzhou.broker.delays.delay import put_off
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.messages.admission import UNIT_SUBSCRIPTION, retry_group
from tianzhou.broker.messages.copies import copy_of
from tianzhou.broker.messages.put_codes import remark_of
from tianzhou.broker.messages.retry import DeadLetter, after_send_back, limit_of
from tianzhou.broker.services import Services
from tianzhou.broker.undeliverable.keeper import UndeliverableKeeper
from tianzhou.broker.undeliverable.set_aside import REPEATS, message_of
from tianzhou.errors import BrokerError, CorruptRecord
from tianzhou.model import names
from tianzhou.model.name_rules import TOPIC
from tianzhou.records.codec import Record, decode_record
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.store.queues.admission import refuse_place
from tianzhou.store.results import NewRecord, PutResult, PutStatus
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header
from tianzhou.wire.ids import offset_msg_id
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.undeliverable import UndeliverableWalk


class SendBackHandler(Handler):
    """Handler of messages that consumers send back."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._rng = services.rng
        self._access = services.access
        self._keeper = UndeliverableKeeper(services)

    @serves(RequestCode.CONSUMER_SEND_MSG_BACK)
    async def send_back(self, connection: Connection, command: Command) -> Reply:
        """Store a copy in the retry topic or in the dead-letter topic."""
        header = read_header(command)
        now = self._clock.now_ms()
        group = retry_group(self._tables.groups, header.group, now)
        if not self._tables.settings.writable:
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._tables.settings.broker_ip1}] sending message is forbidden (brokerPermission)",
            )
        if group.retry_queue_nums <= 0:
            return command.reply(ResponseCode.SUCCESS)
        topic = self._tables.topics.ensure(
            names.retry_topic(header.group),
            group.retry_queue_nums,
            now,
            sys_flag=UNIT_SUBSCRIPTION if header.unit_mode else 0,
        )
        if not topic.writable:
            raise BrokerError(ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden")
        record = await self._load(header.offset)
        if record.topic != topic.topic_name and not self._may_read(connection, command, record.topic):
            # Check the right to read: a consumer could obtain a message of any topic by sending it back to its own
            # group.
            raise self._access_denied(connection, command, record.topic, header.offset)
        limit = limit_of(group.retry_max_times, header.max_reconsume_times, command.version)
        decision = after_send_back(record.reconsume_times, header.delay_level, limit)
        if isinstance(decision, DeadLetter):
            target, queue_id, level = names.dead_letter_topic(header.group), 0, 0
            self._tables.topics.ensure(target, 1, now)
        else:
            # Members read only the topic's read queues, even if the group is configured for more.
            queues = min(group.retry_queue_nums, topic.read_queue_nums) or group.retry_queue_nums
            target, queue_id = topic.topic_name, self._rng.randrange(queues)
            level = self._tables.delays.capped(decision.level)
        copy = self._copy(record, header, target, queue_id, level)
        # Check the target first, because a message that it cannot store would wait for its delay in vain.
        result = refuse_place(NewRecord(target, queue_id, b"", b"")) or self._store.append(copy)
        if result.status in REPEATS:
            return self._set_aside(command, record, self._copy(record, header, target, queue_id, 0), result)
        if result.status is not PutStatus.PUT_OK:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark_of(result))
        # The property comes from a producer, so it may be no topic name.
        origin = decode_properties(copy.properties).get(names.RETRY_TOPIC, record.topic)
        self._stats.sent_back(
            record.topic if TOPIC.problem(origin) is not None else origin,
            header.group,
            copy.topic,
            copy.queue_id,
            result.end_offset - result.physical_offset,
            dead=isinstance(decision, DeadLetter),
            owner=command.fields.get("Owner", "null"),
        )
        return command.reply(ResponseCode.SUCCESS)

    def _set_aside(self, command: Command, record: Record, copy: NewRecord, refused: PutResult) -> Reply:
        """Set aside a message that can be neither retried nor stored as a dead letter, so that its group continues."""
        reason = remark_of(refused)
        if not self._keeper.set_aside(UndeliverableWalk.RETRY, message_of(copy), record.physical_offset, reason):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, reason)
        return command.reply(ResponseCode.SUCCESS, f"set aside: {reason}")

    def _may_read(self, connection: Connection, command: Command, topic: str) -> bool:
        return self._access is None or self._access.may_read(connection, command, topic)

    def _access_denied(self, connection: Connection, command: Command, topic: str, offset: int) -> AccessDenied:
        refusal = AccessDenied(
            ResponseCode.NO_PERMISSION, f"the message at offset {offset} is of a topic you may not read"
        )
        if self._access is not None:
            self._access.refused(connection, command, refusal, topic)
        return refusal

    async def _load(self, offset: int) -> Record:
        view = await self._store.find(self._store.lookups.record_steps(offset))
        try:
            if view is not None:
                return decode_record(view)
        except CorruptRecord:
            pass
        raise BrokerError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")

    def _copy(self, record: Record, header: Any, topic: str, queue_id: int, level: int) -> NewRecord:
        properties = decode_properties(record.properties)
        properties.setdefault(names.RETRY_TOPIC, record.topic)
        properties.setdefault(
            names.ORIGIN_MESSAGE_ID, offset_msg_id(record.store_host, record.store_port, record.physical_offset)
        )
        properties[names.WAIT] = "false"
        properties[names.DELAY] = str(level)
        if level > 0:
            topic, queue_id = put_off(properties, level, topic, queue_id)
        return copy_of(record, topic, queue_id, properties, reconsume_times=record.reconsume_times + 1)
