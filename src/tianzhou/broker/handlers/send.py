"""Sends: codes 10, 310 and 320 (broker.md §7, wire.md §4).

`SendHandler.send` is the hot path: an ordinary message to a known topic goes from header to log in one function,
without a full parse of its properties. All other messages (a new topic, a retry topic, a delay, a transaction) take
`_unusual`, which parses them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Mapping
from typing import Any, cast

from tianzhou._hot import MODE, PropertyReader, SendRun, message_ids, send_reply, stored_reply
from tianzhou.broker.delays.delay import put_off
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.messages.acknowledgements import Acknowledgements
from tianzhou.broker.messages.admission import (
    TIMERS,
    Admission,
    added_properties,
    check_key,
    delay_level,
    multi_tag_flag,
    needs_key,
    reply_marks,
    retry_group,
)
from tianzhou.broker.messages.put_codes import code_of, is_stored, remark_of, unsettled_remark
from tianzhou.broker.messages.retry import group_of_retry_topic, is_dead_on_arrival, limit_of
from tianzhou.broker.messages.send_plans import SendPlan, SendPlans
from tianzhou.broker.overload import too_many_waiting
from tianzhou.broker.services import Services
from tianzhou.broker.stats.message_kinds import DELAY, TRANSACTION
from tianzhou.broker.transactions.transaction_records import make_half, prepare
from tianzhou.errors import BrokerError, ProtocolError
from tianzhou.limits import HALF_MESSAGES
from tianzhou.model import TopicConfig, names
from tianzhou.records.layout import INNER_BATCH_BITS, TRANSACTION_BITS
from tianzhou.remoting.connection import Connection, FastPath, Reply
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.store.results import NewRecord, PutResult, PutStatus, RecordBatch
from tianzhou.wire.batch import decode_batch
from tianzhou.wire.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.ids import UniqueIdGenerator, offset_msg_id
from tianzhou.wire.properties import decode_properties, encode_properties

_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
_OURS = (names.CLUSTER, names.MSG_REGION, names.TRACE_ON)
"""Properties that the broker sets; a message that was stored before has them already."""
_SPECIAL = frozenset({names.DELAY, names.TRAN_MSG, names.POP_CK, names.INNER_NUM, *TIMERS, *_OURS})
SAMPLE_EVERY_S = 0.01
"""Minimum seconds between two timed puts."""


class SendHandler(Handler):
    """Handler that stores messages of producers.

    Args:
        services: the broker's services.
        acks: answers to sends that wait for the disk or slaves.
    """

    def __init__(self, services: Services, acks: Acknowledgements) -> None:
        super().__init__(services)
        self._acks = acks
        # Generates unique keys for messages without one.
        self._unique_ids = UniqueIdGenerator(self._host[0], os.getpid(), services.rng.getrandbits(32))
        self._admission = Admission(self._tables)
        self._id_head = offset_msg_id(*self._host, 0)[:-16]
        self._access = services.access
        self._rng = services.rng
        self._plans = SendPlans(services)
        self._ordinary = self._plans.by_topic
        self._times_put = True  # whether the next put is timed
        self._unusual_due = 0.0
        self.settings_changed()

    def settings_changed(self) -> None:
        """Apply settings that were changed at run time."""
        settings = self._tables.settings
        self._region = settings.region_id
        self._trace_on = settings.trace_on
        self._added = added_properties(settings)
        self._tail = encode_properties(self._added)
        self._plain_record = PropertyReader(_SPECIAL, self._tail, tags_code).record
        self._run = SendRun(_SPECIAL, self._tail, tags_code, self._id_head, self._region, self._trace_on)
        self._marks = reply_marks(settings)
        self._settles = self._store.durability.waits
        self._shared_text: str | None = None
        self._plans.invalidate()

    @serves(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
    def send(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Store a message and reply with its offsets."""
        try:
            if self._settles and len(self._acks) >= self._tables.settings.send_thread_pool_queue_capacity:
                self._refuse_more()
            header = command.header
            if header is None:
                header = read_header(command)
            plan = self._ordinary.get(header.topic)
            if plan is None and (limits := self._plans.limits) is not None:
                if (refused := limits.refused(connection, command, header, self._marks)) is not None:
                    return refused
                plan = self._plans.find(header.topic)
            if plan is None:
                return self._unusual(connection, command, header)
            queue_id = header.queue_id
            if queue_id < 0 or queue_id >= plan.limit:
                return self._unusual(connection, command, header)
            plain = self._plain_record(
                header, command.body, connection.remote_host_bytes, connection.remote_port, plan.flags
            )
            if plain is None:
                return self._unusual(connection, command, header)
            record, waits = plain
            result = self._timed_append(record) if self._times_put else self._store.append(record)
            if result.status is not PutStatus.PUT_OK:
                return self._refused(command, result)
            plan.counts[queue_id] += 1
            plan.sizes[queue_id] += result.end_offset - result.physical_offset
            if command.flag & FLAG_ONEWAY:
                return None
            reply = stored_reply(
                command.opaque,
                self._id_head,
                result.physical_offset,
                queue_id,
                result.queue_offset,
                record.uniq_key,
                self._region,
                self._trace_on,
            )
            if not self._settles or not waits:
                return reply
            self._acks.add(result.end_offset, connection, reply, ((plan.waits, queue_id),))
            return None
        except BrokerError as error:
            return command.reply(error.code, error.remark, self._marks)

    @serves(RequestCode.SEND_BATCH_MESSAGE)
    def send_batch(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Store a batch and reply with the ids of its messages."""
        header = command.header
        if header is None or not header.batch:
            return self.send(connection, command)
        try:
            if self._settles and len(self._acks) >= self._tables.settings.send_thread_pool_queue_capacity:
                self._refuse_more()
            limits = None if header.topic in self._ordinary else self._plans.limits
            if limits is not None and (refused := limits.refused(connection, command, header, self._marks)) is not None:
                return refused
            return self._batch(connection, command, header)
        except BrokerError as error:
            return command.reply(error.code, error.remark, self._marks)

    def fast_paths(self) -> Mapping[int, FastPath]:
        """Return the function that serves the ordinary sends of a read by one call; in pure mode there is none."""
        return {} if MODE == "pure" else dict.fromkeys(_SENDS, self.serve_run)

    def serve_run(self, connection: Connection, buffer: bytearray, start: int, end: int) -> tuple[int, list[bytes]]:
        """Serve the ordinary sends at the front of a read by one call (docs/adr/0022, 0033).

        Args:
            connection: connection of the sender.
            buffer: the read.
            start: start of its first frame.
            end: end of the read.

        Returns:
            Start of the first frame that was not served, and the replies to the frames before it.
        """
        settles = self._settles
        if settles and len(self._acks) >= self._tables.settings.send_thread_pool_queue_capacity:
            return start, []
        timed = not settles and self._times_put
        began = self._clock.monotonic() if timed else 0.0
        host, port = connection.remote_host_bytes, connection.remote_port
        accounts = None if self._access is None else self._access.sends_from(connection)
        start, replies, count, end_offset, awaited = self._store.execute(
            self._run, buffer, start, end, MAX_FRAME, self._ordinary, host, port, settles=settles, accounts=accounts
        )
        if awaited:
            counted = [(cast("SendPlan", plan).waits, queue_id) for plan, queue_id in awaited]
            self._acks.add(end_offset, connection, replies, counted)
            return start, []
        if timed and count:
            self._times_put = False
            self._note_put((self._clock.monotonic() - began) / count)
        return start, [replies] if replies else []

    def _sample(self) -> None:
        """Have the next put timed."""
        self._times_put = True

    def _timed_append(self, record: NewRecord) -> PutResult:
        self._times_put = False
        began = self._clock.monotonic()
        result = self._store.append(record)
        if not self._settles:
            self._note_put(self._clock.monotonic() - began)
        return result

    def _note_put(self, seconds: float) -> None:
        self._stats.put_latency.note(seconds * 1000)
        asyncio.get_running_loop().call_later(SAMPLE_EVERY_S, self._sample)

    def _sample_unusual(self, began: float) -> None:
        listener = self._stats.put_latency.listener
        if listener is not None and not self._settles and began >= self._unusual_due:
            listener((self._clock.monotonic() - began) * 1000)
            self._unusual_due = began + SAMPLE_EVERY_S

    def _refuse_more(self) -> None:
        refusal = too_many_waiting(len(self._acks), self._tables.settings)
        if refusal is not None:
            self._stats.failed += 1
            raise BrokerError(ResponseCode.SYSTEM_BUSY, refusal)

    def _unusual(self, connection: Connection, command: Command, header: Any) -> Reply | Awaitable[Reply]:
        if header.batch:
            return self._batch(connection, command, header)
        now = self._clock.now_ms()
        config = self._admission.topic_for(header, now)
        self._admission.check_queue(config, header.queue_id, connection.remote_address)
        if not command.body:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "the message has no body; send at least one byte")
        topic, queue_id = header.topic, self._queue(config, header.queue_id)
        answered_queue = queue_id
        properties = decode_properties((header.properties or "").encode("utf-8", "surrogatepass"))
        properties.pop(names.POP_CK, None)
        properties.update(self._added)
        if topic.startswith(names.RETRY_PREFIX):
            topic, queue_id = self._retried(header, command.version, topic, queue_id, properties, now)
        elif needs_key(config):
            check_key(topic, properties)
        elif self._plans.find(topic) is None:
            self._plans.add(topic, self._plans.make(topic, config))
        unique = properties.get(names.UNIQ_KEY)
        if unique is None:
            unique = properties[names.UNIQ_KEY] = self._unique_ids.next(now)
        level = delay_level(properties)
        sys_flag = header.sys_flag
        retried_later = header.reconsume_times > 0 and level > 0
        prepared = properties.get(names.TRAN_MSG, "").lower() == "true" and not retried_later
        if prepared:
            self._tables.bounds.check(HALF_MESSAGES, len(self._tables.transactions) + 1)
            topic, queue_id = self._prepared(topic, queue_id, properties)
            sys_flag &= ~TRANSACTION_BITS
        else:
            topic, queue_id = self._delayed(level, topic, queue_id, properties)
        if sys_flag & INNER_BATCH_BITS or names.INNER_NUM in properties:
            raise BrokerError(
                ResponseCode.MESSAGE_ILLEGAL, "inner batches (INNER_NUM, sysFlag 0xC0) are the broker's own form"
            )
        sys_flag |= multi_tag_flag(config)
        began = self._clock.monotonic()
        result = self._store.append(
            NewRecord(
                topic,
                queue_id,
                bytes(command.body),
                encode_properties(properties),
                header.flag,
                sys_flag,
                header.born_timestamp,
                connection.remote_host_bytes,
                connection.remote_port,
                header.reconsume_times,
                0,
                tags_code(properties.get(names.TAGS)),
                properties.get(names.KEYS, ""),
                unique,
            )
        )
        if result.status is not PutStatus.PUT_OK:
            return self._refused(command, result)
        self._sample_unusual(began)
        if prepared:
            born = (header.born_timestamp, connection.remote_host_bytes, connection.remote_port)
            place = (result.queue_offset, result.physical_offset, result.store_timestamp)
            self._tables.transactions.opened(make_half(properties, *place, born))
        size = result.end_offset - result.physical_offset
        if topic != header.topic:
            self._note_waiting(header.topic, topic, size)
        self._stats.put(topic).add(queue_id, 1, size)
        waits = properties.get(names.WAIT) != "false"
        return self._stored(connection, command, header.topic, result, answered_queue, unique, waits=waits)

    def _retried(
        self, header: Any, version: int, topic: str, queue_id: int, properties: dict[str, str], now_ms: int
    ) -> tuple[str, int]:
        group = group_of_retry_topic(topic)
        config = retry_group(self._tables.groups, group, now_ms)
        limit = limit_of(config.retry_max_times, header.max_reconsume_times, version)
        locked = self._tables.locks.held(group, int(self._clock.monotonic() * 1000))
        if not is_dead_on_arrival(header.reconsume_times, limit, locked):
            return topic, queue_id
        properties[names.DELAY] = "-1"
        dead = names.dead_letter_topic(group)
        self._tables.topics.ensure(dead, 1, now_ms)
        return dead, 0

    def _note_waiting(self, topic: str, stored_in: str, size: int) -> None:
        kinds = self._stats.kinds
        if stored_in.startswith(names.DLQ_PREFIX):
            kinds.add_dead(topic, group_of_retry_topic(topic))
        else:
            kinds.add_waiting(topic, TRANSACTION if stored_in == names.HALF_TOPIC else DELAY, size)

    def _prepared(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        settings = self._tables.settings
        if settings.reject_transaction_message:
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{settings.broker_ip1}] sending transaction message is forbidden"
                " (rejectTransactionMessage)",
            )
        prepare(properties, topic, queue_id)
        return names.HALF_TOPIC, 0

    def _delayed(self, level: int, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        if level <= 0:
            return topic, queue_id
        for name in TIMERS:
            properties.pop(name, None)
        return put_off(properties, self._tables.delays.capped(level), topic, queue_id)

    def _batch(self, connection: Connection, command: Command, header: Any) -> Reply | Awaitable[Reply]:
        topic, queue_id = header.topic, header.queue_id
        plan = self._plans.find(topic)
        if plan is None or not 0 <= queue_id < plan.limit:
            plan, queue_id = self._batch_plan(connection, header)
        if self._shared_text != (header.properties or ""):
            self._read_shared(header.properties or "")
        shared = self._shared
        record = NewRecord(
            topic,
            queue_id,
            b"",
            self._shared_tail,
            0,
            header.sys_flag,
            header.born_timestamp,
            connection.remote_host_bytes,
            connection.remote_port,
            header.reconsume_times,
        )
        unique = shared.get(names.UNIQ_KEY)
        if not command.body:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "the batch holds no message")
        try:
            if unique is not None and plan.batched:
                return self._inner_batch(command, record, shared, len(decode_batch(command.body)))
            result = self._store.append(RecordBatch(record, command.body))
        except ProtocolError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if result.status is not PutStatus.PUT_OK:
            return self._refused(command, result)
        plan.traffic.add(queue_id, len(result.physical_offsets), result.end_offset - result.physical_offset)
        waits = shared.get(names.WAIT) != "false"
        return self._stored(connection, command, topic, result, queue_id, unique, waits=waits)

    def _batch_plan(self, connection: Connection, header: Any) -> tuple[SendPlan, int]:
        """Return the plan of a batch's topic, and the queue; check the topic first."""
        topic = header.topic
        if topic.startswith(names.RETRY_PREFIX):
            raise BrokerError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {group_of_retry_topic(topic)}",
            )
        config = self._admission.topic_for(header, self._clock.now_ms())
        self._admission.check_queue(config, header.queue_id, connection.remote_address)
        queue_id = self._queue(config, header.queue_id)
        plan = self._plans.make(topic, config)
        if not needs_key(config):
            self._plans.add(topic, plan)
        return plan, queue_id

    def _read_shared(self, text: str) -> None:
        """Cache the shared properties of a batch's messages, which mostly equal those of the previous batch."""
        shared = decode_properties(text.encode("utf-8", "surrogatepass"))
        shared.pop(names.POP_CK, None)
        if shared.get(names.TRAN_MSG, "").lower() == "true" or shared.get(names.DELAY, "0") not in ("0", "-1"):
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, "a batch can be neither transactional nor delayed")
        self._shared_tail = encode_properties(shared) + self._tail
        self._shared, self._shared_text = shared, text
        if names.UNIQ_KEY not in shared:
            self._run.take_batches(text, self._shared_tail)

    def _inner_batch(
        self, command: Command, record: NewRecord, shared: dict[str, str], count: int
    ) -> Reply | Awaitable[Reply]:
        """Store a batch as one record (store.md §16.2).

        Args:
            command: the request; its body is stored unchanged.
            record: the record without body and properties.
            shared: properties of the batch.
            count: number of messages in the batch.
        """
        unique, wait = shared[names.UNIQ_KEY], shared.get(names.WAIT)
        record.body = bytes(command.body)
        record.properties = encode_properties(shared | {names.INNER_NUM: str(count)}) + self._tail
        record.sys_flag |= INNER_BATCH_BITS
        record.tags_code = tags_code(shared.get(names.TAGS))
        record.keys, record.uniq_key = shared.get(names.KEYS, ""), unique
        result = self._store.append(record)
        if result.status is not PutStatus.PUT_OK:
            return self._refused(command, result)
        self._stats.put(record.topic).add(record.queue_id, count, result.end_offset - result.physical_offset)
        if command.flag & FLAG_ONEWAY:
            return None
        fields = self._marks | write_reply(
            RequestCode.SEND_BATCH_MESSAGE,
            msg_id=f"{self._id_head}{result.physical_offset:016X}",
            queue_id=record.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=unique,
            batch_uniq_id=unique,
        )
        if self._settles and wait != "false":
            return self._when_settled(command, result, fields)
        return command.reply(ResponseCode.SUCCESS, None, fields)

    async def _when_settled(self, command: Command, result: PutResult, fields: dict[str, str]) -> Reply:
        command.body = b""
        status = await self._store.settle(result)
        return command.reply(code_of(status), unsettled_remark(status), fields)

    def _queue(self, config: TopicConfig, queue_id: int) -> int:
        if queue_id >= 0:
            return queue_id
        if config.write_queue_nums <= 0:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"topic[{config.topic_name}] has no queue to write to")
        return self._rng.randrange(config.write_queue_nums)

    def _stored(
        self,
        connection: Connection,
        command: Command,
        topic: str,
        result: PutResult,
        queue_id: int,
        unique: str | None,
        *,
        waits: bool,
    ) -> Reply:
        if command.flag & FLAG_ONEWAY:
            return None
        msg_id = message_ids(self._id_head, result.physical_offsets or (result.physical_offset,))
        reply = send_reply(command.opaque, msg_id, queue_id, result.queue_offset, unique, self._region, self._trace_on)
        if not self._settles or not waits:
            return reply
        traffic = self._stats.puts.get(topic)
        counted = None if traffic is None or queue_id >= len(traffic.waits) else traffic.waits
        self._acks.add(result.end_offset, connection, reply, ((counted, queue_id),))
        return None

    def _refused(self, command: Command, result: PutResult) -> Reply:
        self._stats.failed += 1
        if is_stored(result.status):
            raise AssertionError(f"a put answered {result.status.name} before it was settled")
        if result.limit:
            self._tables.bounds.refusals.counts[result.limit] += 1
        return command.reply(code_of(result.status), remark_of(result), self._marks)
