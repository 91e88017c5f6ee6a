"""Putting messages into the store (store.md §4)."""

from __future__ import annotations

import errno
import logging
import struct
from collections.abc import Callable, Iterable, Mapping
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
from tianzhou.store.results import NewRecord, PutResult, PutStatus
from tianzhou.store.settings import StoreSettings, parse_delay_levels
from tianzhou.store.upkeep.cleaner import Cleaner, disk_use
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import MAX_BYTES as MAX_PROPERTIES
from tianzhou.wire.properties import decode_properties, encode_properties, get_property

logger = logging.getLogger(__name__)

_OK: Final = PutStatus.PUT_OK
_DONE: Final = PutResult(_OK)
_TOGETHER: Final = 32
"""Maximum records of a batch that are one entry of what waits for dispatch."""


class Appender:
    """Stores messages, and waits until they are safe.

    Args:
        settings: limits, and what is made of messages.
        clock: gives the store times.
        log: takes the records.
        queues: where they get their offsets.
        dispatcher: gets each record.
        flusher: brings them to the disk.
        durability: says when they are safe.
        cleaner: learns that the disk has no room.
        flags: say whether anything is taken.
        failures: what follows when there is no room or no memory.

    Attributes:
        on_append: called after each append; None for nobody.
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
        # Whether what is stored may differ from what is put: a CRC, the offsets in further queues.
        self._amends = settings.enabled_append_prop_crc or settings.enable_multi_dispatch

    def append(self, record: NewRecord, *, own: bool = False) -> PutResult:
        """Store one message; it is in the page cache on return (store.md §4.2).

        Whether the disk has it is for `settle` to find out. Dispatch follows in the next turn of the loop.

        Args:
            record: the message.
            own: whether the broker makes it from what is stored here: `maxMessageSize` does not bound it, because the
                limit may have been lowered since.
        """
        refusal = self._flags.refusal
        if refusal is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=refusal)
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
        if self._amends or record.sys_flag & INNER_BATCH or 0 in record.properties:
            return self._append_amended(queue, record, own)
        if len(record.body) > self._settings.max_message_size and not own:
            return refuse_message(record, self._settings.max_message_size)
        if len(record.properties) > MAX_PROPERTIES:
            return refuse_message(record, self._settings.max_message_size)
        stored = self._now()
        result: PutResult | None = self._put_plain(self._log, queue, record, stored, self._dispatcher.pending, _DONE)
        if result is None:
            return self._append_alone(queue, record, stored)
        dispatcher = self._dispatcher
        quick = dispatcher.scheduled and not self._sync and self.on_append is None
        if quick and len(dispatcher.pending) <= BACKLOG_LIMIT:
            self._flusher.last_timestamp = stored
        else:
            self._appended(stored)
        return result

    def _append_alone(self, queue: ConsumeQueue, record: NewRecord, stored: int) -> PutResult:
        """As `append`, for what `put_plain` does not do."""
        kind = record.sys_flag & TRANSACTION_BITS
        if kind == PREPARED and (refused := refuse_reserved(record)) is not None:
            return refused
        counted = kind != PREPARED and kind != ROLLBACK
        queue_offset = queue.next_offset if counted else 0
        log = self._log
        try:
            size = log.append(record, queue.magic, queue.topic_field, queue_offset, stored)
        except (OSError, StoreError, struct.error) as error:
            return self._append_failed(record, error)
        end = log.base + log.position
        if counted:
            queue.next_offset = queue_offset + 1
        tags = record.tags_code
        if queue.delayed:
            due = deliver_time(record.properties, stored, self._delays)
            tags = tags if due is None else due
        self._dispatcher.pending.append(
            (queue, queue_offset, end - size, size, tags, stored, kind, record.uniq_key, record.keys)
        )
        self._appended(stored)
        return PutResult(_OK, end - size, queue_offset, stored, end)

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

    def append_plain_batch(self, record: NewRecord, batch: bytes | memoryview) -> PutResult | None:
        """Store a batch as it came; None when something about it is out of the ordinary, and it takes `append_batch`.

        Args:
            record: as there.
            batch: the messages, as they travel (wire.md §4.5).
        """
        queue = self._queues.find(record.topic, record.queue_id)
        if queue is None or self._flags.refusal is not None or self._amends or self._durability.refuses:
            return None
        if record.sys_flag & TRANSACTION_BITS:
            return None
        most, stored, pending = self._settings.max_message_size, self._now(), self._dispatcher.pending
        # Else a batch that is larger than what is prepared would be taken apart.
        self._log.look_ahead(2 * len(batch))
        put: Callable[..., Any] = put_entry_batch if self._framed else put_batch
        result: PutResult | None = put(self._log, queue, record, batch, most, stored, pending, _DONE)
        if result is not None:
            self._appended(stored, _TOGETHER)
        return result

    def append_run(
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
        """Store the sends at the front of what was read from a connection, as far as they are ordinary.

        They have one store time. What is dispatched at once is there for consumers on return.

        Args:
            run: knows what is ordinary, and stores it; the further arguments are those of `SendRun.store`.
            buffer: what was read.
            start: where its first frame begins.
            end: where it ends.
            most_frame: maximum bytes of a frame.
            targets: topics that sends were admitted to.
            host: address of the sender.
            port: its port.
            settles: whether replies wait until the messages are safe.
            accounts: which accounts may send; None takes sends of everybody.

        Returns:
            Where the first frame begins that was left, the replies to those before it, how many these are, where the
            log ends, and topic and queue of each reply if they wait.
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
        # With SYNC_FLUSH consumers get what the disk has.
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

    def append_batch(self, record: NewRecord, entries: Iterable[tuple[int, Octets, Octets]]) -> PutResult:
        """Store several messages of one queue, all in one segment (store.md §16.1).

        Args:
            record: what they have in common; its body, flag and tags are not used, its properties are added behind
                those of each entry.
            entries: flag, body and property string of each.

        What `settings` make of single messages (a CRC, further queues) is made of each.
        """
        refusal = self._flags.refusal
        if refusal is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=refusal)
        lacking = self._durability.refusal(record.properties, self._log.end)
        if lacking is not None:
            return lacking
        members = []
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
            members.append(member)
            total += len(member.body)
        refused = refuse_batch(record, len(members), total, limit)
        if refused is not None:
            return refused
        queue = self._queue_for(record)
        return queue if isinstance(queue, PutResult) else self._put_records(queue, members)

    def _append_amended(self, queue: ConsumeQueue, record: NewRecord, own: bool) -> PutResult:
        """As `append`, for what the short way there does not do."""
        limit = self._settings.max_message_size
        count = 1
        if len(record.body) > limit and not own:
            return refuse_message(record, limit)
        if record.sys_flag & INNER_BATCH:
            refused = refuse_inner_batch(record, batched=queue.batched)
            if refused is not None:
                return refused
            count = inner_count(record.properties) or 1
            pairs = decode_properties(record.properties)
            pairs[names.INNER_BASE] = str(queue.next_offset)
            record = structs.replace(record, properties=encode_properties(pairs))
        result = self._put_records(queue, [record], count)
        result.physical_offsets = ()
        return result

    def _put_records(self, queue: ConsumeQueue, records: list[NewRecord], count: int = 1) -> PutResult:
        """Store records of one queue, all in one segment; each counts for `count` messages."""
        log = self._log
        if (refused := refuse_reserved(records[0])) is not None:
            return refused
        # What the records get in this queue and in the further ones that they name, before any of it is stored.
        next_offsets = {queue: queue.next_offset}
        plan: list[tuple[NewRecord, int, int, list[tuple[ConsumeQueue, int]]]] = []
        for record in records:
            kind = record.sys_flag & TRANSACTION_BITS
            counted = kind != PREPARED and kind != ROLLBACK
            further: list[tuple[ConsumeQueue, int]] = []
            if self._amends or 0 in record.properties:
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
        """The record as it is to be stored.

        Args:
            record: as it was put.
            next_offsets: of the queues that records before it go to; completed. None when it goes to no queue.
            further: gets the queues the record is to be found in besides its own, and at which offset.
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
            # Zeros could be taken for what did not reach the disk: such a record says by its CRC that it is whole.
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
        """Wait until a stored message is as safe as the settings promise; see `Durability.settle`."""
        return await self._durability.settle(result, self._log.end, timeout_ms)

    async def secure(self, end_offset: int) -> None:
        """Wait until the disk has the log up to a position, whatever the flush type: for what others rely on at once.

        Args:
            end_offset: where the record ends that has to be safe.

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
