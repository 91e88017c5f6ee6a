"""Puts of messages into the store (store.md §4)."""

from __future__ import annotations

import errno
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from msgspec import structs

from tianzhou._hot import SendRun, SendTarget, put_batch, put_plain
from tianzhou._hot.sends import Accounts
from tianzhou.clock import Clock
from tianzhou.errors import PageCacheBusy, StoreError
from tianzhou.model import names
from tianzhou.records.checksum import Octets
from tianzhou.records.codec import reserve_property_crc
from tianzhou.records.layout import INNER_BATCH, PREPARED, ROLLBACK, TRANSACTION_BITS
from tianzhou.shortages import words
from tianzhou.store.dispatch.dispatch import BACKLOG_LIMIT, SLICE_RECORDS, Dispatcher
from tianzhou.store.durability import Durability
from tianzhou.store.entries.framed_log import FramedLog, put_entry, put_entry_batch
from tianzhou.store.failures import StoreFailures
from tianzhou.store.flags import RunningFlags
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.flush import LogFlusher
from tianzhou.store.queues.admission import (
    illegal,
    inner_count,
    refuse_batch,
    refuse_inner_batch,
    refuse_message,
    refuse_multi_dispatch,
    refuse_place,
    refuse_reserved,
)
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.multi_dispatch import dispatched_queues, is_light, with_offsets
from tianzhou.store.queues.open_queues import OpenQueues
from tianzhou.store.queues.tags_code import deliver_time
from tianzhou.store.results import OF_CLIENTS, AppendPlan, NewRecord, PutResult, PutStatus, RecordBatch
from tianzhou.store.settings import StoreSettings, parse_delay_levels
from tianzhou.store.upkeep.cleaner import Cleaner, disk_use
from tianzhou.wire.batch import decode_batch
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import MAX_BYTES as MAX_PROPERTIES
from tianzhou.wire.properties import decode_properties, encode_properties, get_property

logger = logging.getLogger(__name__)

_OK: Final = PutStatus.PUT_OK
_DONE: Final = PutResult(_OK)
_TOGETHER: Final = 32
"""Maximum records of a batch that share one item of the dispatch queue."""


class Appender:
    """Stores messages, and waits until they are safe.

    Args:
        settings: limits, CRCs and further queues.
        clock: source of store times.
        log: stores the records.
        queues: assign queue offsets.
        dispatcher: receives each record.
        flusher: flushes the records to the disk.
        durability: decides when records are safe.
        cleaner: receives reports of a full disk.
        flags: reasons to refuse puts.
        failures: refuses appends while disk space or memory is exhausted.

    Attributes:
        on_append: called after each append; None calls nothing.
    """

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        log: CommitLog,
        queues: OpenQueues,
        dispatcher: Dispatcher,
        flusher: LogFlusher,
        durability: Durability,
        cleaner: Cleaner,
        flags: RunningFlags,
        failures: StoreFailures,
    ) -> None:
        self._settings = settings
        self._now = clock.now_ms
        self._log = log
        self._queues = queues
        self._table = queues.table
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._flushed = flusher.flushed
        self._durability = durability
        self._cleaner = cleaner
        self._flags = flags
        self._failures = failures
        self._delays = parse_delay_levels(settings.message_delay_level)
        self._sync = settings.sync_flush
        self._put_plain: Callable[..., Any] = put_entry if isinstance(log, FramedLog) else put_plain
        self._framed = isinstance(log, FramedLog)
        self.on_append: Callable[[], None] | None = None
        self._appends_crc = settings.enabled_append_prop_crc
        # Whether the store adds to records: a CRC, the offsets in further queues.
        self._amends = settings.enabled_append_prop_crc or settings.enable_multi_dispatch

    def append(self, records: NewRecord | RecordBatch, plan: AppendPlan = OF_CLIENTS) -> PutResult:
        """Store a message, or several of one queue. They are in the page cache on return (store.md §4.2).

        `settle` waits until they are on the disk. Dispatch follows in the next loop turn.

        Args:
            records: the message, or the batch.
            plan: the caller's decisions about them.

        Raises:
            ProtocolError: the encoded members of a batch are malformed.
        """
        if isinstance(records, RecordBatch):
            return self._append_encoded(records) or self._append_members(records)
        refusal = self._flags.refusal
        if refusal is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=refusal)
        record = records
        if self._durability.refuses:
            refused = self._durability.refusal(record.properties, self._log.end)
            if refused is not None:
                return refused
        try:
            queue = self._table[record.topic][record.queue_id]
        except KeyError:
            new = self._queue_for(record)
            if isinstance(new, PutResult):
                return new
            queue = new
        limit = self._settings.max_message_size
        if len(record.body) > limit and plan.bounded:
            return refuse_message(record, limit)
        if record.sys_flag & INNER_BATCH:
            return self._append_inner_batch(queue, record)
        if not (self._amends or 0 in record.properties):
            if len(record.properties) > MAX_PROPERTIES:
                return refuse_message(record, limit)
            stored, dispatcher = self._now(), self._dispatcher
            result: PutResult | None = self._put_plain(self._log, queue, record, stored, dispatcher.pending, _DONE)
            if result is not None:
                quick = dispatcher.scheduled and not self._sync and self.on_append is None
                if quick and len(dispatcher.pending) <= BACKLOG_LIMIT:
                    self._flusher.last_timestamp = stored
                else:
                    self._appended(stored)
                return result
        result = self._put_each(queue, [record])
        result.physical_offsets = ()
        return result

    def _appended(self, stored: int, together: int = 1) -> None:
        self._flusher.last_timestamp = stored
        if self.on_append is not None:
            self.on_append()
        dispatcher = self._dispatcher
        if self._sync:
            self._flusher.request()
        elif not dispatcher.scheduled:
            dispatcher.kick()
        elif len(dispatcher.pending) * together > BACKLOG_LIMIT:
            dispatcher.run(SLICE_RECORDS, 1.0)

    def _append_encoded(self, batch: RecordBatch) -> PutResult | None:
        """Store a batch without splitting it. Return None, without any effect, if a message is not plain."""
        common, members = batch.common, batch.members
        queue = self._queues.find(common.topic, common.queue_id)
        if queue is None or self._flags.refusal is not None or self._amends or self._durability.refuses:
            return None
        if common.sys_flag & TRANSACTION_BITS or not isinstance(members, bytes | memoryview):
            return None
        most, stored, pending = self._settings.max_message_size, self._now(), self._dispatcher.pending
        # A batch larger than the prepared part of the log would be split.
        self._log.look_ahead(2 * len(members))
        put: Callable[..., Any] = put_entry_batch if self._framed else put_batch
        result: PutResult | None = put(self._log, queue, common, members, most, stored, pending, _DONE)
        if result is not None:
            self._appended(stored, _TOGETHER)
        return result

    def execute(
        self,
        run: SendRun,
        buffer: bytearray,
        start: int,
        end: int,
        most_frame: int,
        targets: Mapping[str, SendTarget],
        host: bytes,
        port: int,
        *,
        settles: bool,
        accounts: Accounts | None,
    ) -> tuple[int, bytes, int, int, list[tuple[SendTarget, int]]]:
        """Run an executor of sends over the front of a read. It stops at the first send that is not ordinary.

        All sends have one store time. On return, consumers can read the sends that were dispatched at once.

        Args:
            run: the executor; the further arguments are those of `SendRun.store`.
            buffer: bytes of a read.
            start: start of the first frame.
            end: end of the bytes.
            most_frame: maximum bytes of a frame.
            targets: topics that accept sends without a further check.
            host: address of the sender.
            port: port of the sender.
            settles: whether replies wait until the messages are safe.
            accounts: returns the HMAC state of an account that may send; None accepts sends of every peer.

        Returns:
            The start of the first frame left, the replies to the frames before it, the number of these, the end of the
            log, and topic and queue of each reply if replies wait.
        """
        dispatcher, log = self._dispatcher, self._log
        if self._flags.refusal is not None or self._amends or self._durability.refuses:
            return start, b"", 0, log.end, []
        entries = None
        if self._framed:
            entries = cast("FramedLog", log).entry_room()
            if entries is None:
                return start, b"", 0, log.end, []
        stored = self._now()
        # With SYNC_FLUSH, consumers get only records that are on the disk.
        at_once = None if self._sync else dispatcher.at_once()
        pending = dispatcher.pending
        before = len(pending)
        start, replies, count, shown, waited, awaited = run.store(
            buffer, start, end, most_frame, self._settings.max_message_size, log, self._table, targets, host, port,
            stored, pending, dispatcher.dirty, at_once, settles, accounts, entries,
        )  # fmt: skip
        if entries is not None and count:
            cast("FramedLog", log).units.end = log.next_index
        later, end_offset = len(pending) > before, log.end
        if shown:
            dispatcher.dispatched_at_once(pending[before][2] if later else end_offset, stored, waited)
        if later:
            self._appended(stored, _TOGETHER if type(pending[-1][4]) is bytes else 1)
        elif count:
            self._flusher.last_timestamp = stored
            if self.on_append is not None:
                self.on_append()
        return start, replies, count, end_offset, awaited

    def _append_members(self, batch: RecordBatch) -> PutResult:
        """Store the members of a batch one by one, all in one segment."""
        record, members = batch.common, batch.members
        entries: Sequence[tuple[int, Octets, Octets]] = (
            decode_batch(members) if isinstance(members, bytes | memoryview) else members
        )
        refusal = self._flags.refusal
        if refusal is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=refusal)
        lacking = self._durability.refusal(record.properties, self._log.end)
        if lacking is not None:
            return lacking
        records = []
        total = 0
        limit = self._settings.max_message_size
        shared = record.properties
        for flag, body, own in entries:
            properties = bytes(own)
            if shared:
                if properties and not properties.endswith(b"\x02"):
                    properties += b"\x02"
                properties += shared
            member = structs.replace(
                record,
                body=bytes(body),
                properties=properties,
                flag=flag,
                tags_code=tags_code(get_property(properties, names.TAGS)),
                keys=get_property(properties, names.KEYS) or "",
                uniq_key=get_property(properties, names.UNIQ_KEY) or "",
            )
            if len(member.body) > limit or len(properties) > MAX_PROPERTIES:
                return refuse_message(member, limit)
            records.append(member)
            total += len(member.body)
        refused = refuse_batch(record, len(records), total, limit)
        if refused is not None:
            return refused
        queue = self._queue_for(record)
        return queue if isinstance(queue, PutResult) else self._put_each(queue, records)

    def _append_inner_batch(self, queue: ConsumeQueue, record: NewRecord) -> PutResult:
        """Store a batch that is one record (store.md §16.2)."""
        refused = refuse_inner_batch(record, batched=queue.batched)
        if refused is not None:
            return refused
        pairs = decode_properties(record.properties)
        pairs[names.INNER_BASE] = str(queue.next_offset)
        count = inner_count(record.properties) or 1
        result = self._put_each(queue, [structs.replace(record, properties=encode_properties(pairs))], count)
        result.physical_offsets = ()
        return result

    def _put_each(self, queue: ConsumeQueue, records: list[NewRecord], count: int = 1) -> PutResult:
        """Store records of one queue one by one, all in one segment; each counts for `count` messages."""
        log = self._log
        if (refused := refuse_reserved(records[0])) is not None:
            return refused
        # The offsets in this queue, and in the further ones that the records name, before any record is stored.
        next_offsets = {queue: queue.next_offset}
        amends = self._amends
        plan: list[tuple[NewRecord, int, int, list[tuple[ConsumeQueue, int]]]] = []
        for record in records:
            kind = record.sys_flag & TRANSACTION_BITS
            counted = kind != PREPARED and kind != ROLLBACK
            further: list[tuple[ConsumeQueue, int]] = []
            if amends or 0 in record.properties:
                amended = self._amend(record, next_offsets if counted else None, further)
                if isinstance(amended, PutResult):
                    return amended
                record = amended
            if len(record.properties) > MAX_PROPERTIES:
                return refuse_message(record, self._settings.max_message_size)
            offset = next_offsets[queue] if counted else 0
            if counted:
                next_offsets[queue] = offset + count
            plan.append((record, kind, offset, further))
        stored = self._now()
        places = []
        pending = self._dispatcher.pending
        try:
            if amends or len(plan) > 1:
                log.room_for_all([log.size_of(record, queue.topic_field) for record, *_ in plan])
            for record, kind, offset, further in plan:
                size = log.append(record, queue.magic, queue.topic_field, offset, stored)
                place = log.end - size
                places.append(place)
                tags = record.tags_code
                if queue.delayed:
                    due = deliver_time(record.properties, stored, self._delays)
                    tags = tags if due is None else due
                if count > 1 and isinstance(queue, BatchQueue):
                    queue.expect(offset, count)
                pending.append((queue, offset, place, size, tags, stored, kind, record.uniq_key, record.keys))
                for another, its_offset in further:
                    pending.append((another, its_offset, place, size, tags, stored, kind, "", ""))
                    another.next_offset = its_offset + 1
                if kind != PREPARED and kind != ROLLBACK:
                    queue.next_offset = offset + count
        except (OSError, StoreError, struct.error) as error:
            return self._append_failed(records[0], error)
        self._appended(stored)
        return PutResult(_OK, places[0], plan[0][2], stored, log.end, tuple(places))

    def _amend(
        self,
        record: NewRecord,
        next_offsets: dict[ConsumeQueue, int] | None,
        further: list[tuple[ConsumeQueue, int]],
    ) -> NewRecord | PutResult:
        """Return the record in the form in which it is stored.

        Args:
            record: the record of the put.
            next_offsets: next offsets of the queues of earlier records; extended here. None when it goes to no queue.
            further: receives the further queues of the record, each with its queue offset.
        """
        properties = record.properties
        topic, queue_id = record.topic, record.queue_id
        if self._settings.enable_multi_dispatch and next_offsets is not None:
            offsets = {}
            for place in dispatched_queues(topic, queue_id, properties):
                queue = self._further_queue(record, place)
                if isinstance(queue, PutResult):
                    return queue
                offset = offsets[place] = next_offsets.get(queue, queue.next_offset)
                next_offsets[queue] = offset + 1
                further.append((queue, offset))
            if offsets:
                offsets.setdefault((topic, queue_id), next_offsets.get(self._table[topic][queue_id], 0))
                properties = with_offsets(topic, queue_id, properties, lambda *place: offsets[place])
        if self._appends_crc or 0 in properties:
            # Zeros look like a page that did not reach the disk. The CRC proves that such a record is complete.
            properties = reserve_property_crc(properties)
        return structs.replace(record, properties=properties)

    def _further_queue(self, record: NewRecord, place: tuple[str, int]) -> ConsumeQueue | PutResult:
        queue = self._queues.find(*place)
        if queue is None:
            refused = refuse_multi_dispatch(record, place, batched=place[0] in self._queues.kinds.batch_topics)
            if refused is not None:
                return refused
            limit = self._settings.max_lmq_consume_queue_num
            if is_light(place[0]) and len(self._queues.light) >= limit:
                text = f"there are {len(self._queues.light)} light queues, maxLmqConsumeQueueNum={limit}; raise it"
                return illegal(record, text, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)
            return self._queues.find_or_make(*place)
        refused = refuse_multi_dispatch(record, place, batched=True) if queue.batched else None
        return queue if refused is None else refused

    async def settle(self, result: PutResult, timeout_ms: int | None = None) -> PutStatus:
        """Wait until a stored message is as safe as the settings require; see `Durability.settle`."""
        return await self._durability.settle(result, self._log.end, timeout_ms)

    async def secure(self, end_offset: int) -> None:
        """Wait until the log is on the disk up to an offset, with any flush type.

        Args:
            end_offset: end of the record that must be safe.

        Raises:
            StoreError: the disk refuses.
        """
        while self._flushed.value < end_offset and not self._flusher.failed:
            await self._flusher.flush()
        await self._flushed.reach(end_offset)

    def _queue_for(self, record: NewRecord) -> ConsumeQueue | PutResult:
        queue = self._queues.find(record.topic, record.queue_id)
        if queue is not None:
            return queue
        refused = refuse_place(record)
        return self._queues.find_or_make(record.topic, record.queue_id) if refused is None else refused

    def _append_failed(self, record: NewRecord, error: OSError | StoreError | struct.error) -> PutResult:
        if isinstance(error, PageCacheBusy):
            return PutResult(PutStatus.OS_PAGE_CACHE_BUSY, remark=str(error))
        if isinstance(error, StoreError):
            return illegal(record, str(error))
        if isinstance(error, struct.error):
            return illegal(record, f"a number does not fit its field ({error}); send 32 and 64 bit values as specified")
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            text = (
                f"disk full: {disk_use(self._log.files.path_of(self._log.end).parent)} ({error}); free space, or keep "
                f"messages for less than fileReservedTime={self._settings.file_reserved_time} h; "
                "it is tried again every 5 s, reading goes on"
            )
            if self._cleaner.refused():
                self._failures.space_changed(text)
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=text)
        self._failures.memory_short(error)
        logger.error("the commit log in %s cannot be extended: %s", self._settings.root, words(error))
        text = f"create mapped file failed, server is busy or broken: {words(error)}"
        self._failures.append_refused(text)
        return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, remark=text)
