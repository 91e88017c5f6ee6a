"""The message store: puts, reads, and what runs behind them (store.md §4, §10, §14)."""

from __future__ import annotations

import asyncio
import errno
import logging
import struct
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Final, Self

from msgspec import structs

from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import DiskFull, PageCacheBusy, StoreError, StoreUnreadable
from tianzhou.model import names
from tianzhou.store.admission import (
    INNER_BATCH,
    illegal,
    inner_count,
    refuse_batch,
    refuse_inner_batch,
    refuse_message,
    refuse_multi_dispatch,
    refuse_place,
)
from tianzhou.store.batchqueue import BatchQueue
from tianzhou.store.batchreading import read_batch_queue
from tianzhou.store.checkpoint import Checkpoint
from tianzhou.store.cleaning import Cleaner, disk_use
from tianzhou.store.coldreads import ROUNDS, ColdReads, Missing
from tianzhou.store.commitlog import CommitLog
from tianzhou.store.consumequeue import ConsumeQueue
from tianzhou.store.dispatch import BACKLOG_LIMIT, SLICE_RECORDS, Dispatcher
from tianzhou.store.flags import RunningFlag, RunningFlags
from tianzhou.store.flush import LogFlusher, log_ranges, sync_ranges
from tianzhou.store.folder import StoreFolder
from tianzhou.store.index import Index
from tianzhou.store.light import dispatched_queues, is_light, with_offsets
from tianzhou.store.logscan import PREPARED, ROLLBACK, TRANSACTION_BITS, deliver_time, store_time
from tianzhou.store.opening import OpeningReport, StoreOpener, write_marker
from tianzhou.store.queues import QueueMaker, QueueTable
from tianzhou.store.reading import MAX_BYTES, ReadLimits, offset_at_time, read_queue, time_of
from tianzhou.store.results import (
    GetResult,
    GetStatus,
    NewRecord,
    PutResult,
    PutStatus,
    QueryResult,
)
from tianzhou.store.settings import StoreSettings, parse_delay_levels
from tianzhou.store.upkeep import Upkeep
from tianzhou.watermark import Watermark
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import MAX_BYTES as MAX_PROPERTIES
from tianzhou.wire.properties import decode_properties, encode_properties, get_property
from tianzhou.wire.record import reserve_property_crc

logger = logging.getLogger(__name__)

_OK: Final = PutStatus.PUT_OK


class MessageStore:
    """A store folder, opened by one process and used from one event loop.

    Args:
        settings: sizes, folders, limits.
        clock: where time comes from.
        store_host: the broker's address, 4 or 16 bytes, stored in every record.
        store_port: its port.

    Attributes:
        flushed: commit-log offset up to which the disk has everything.
        report: what opening found and did.
        flags: what puts are refused for, besides that the store is not open; see `put_up` and `take_down`.
        queue_kinds: which topics have queues of type BatchCQ; opening adds those the folder knows of.
    """

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock | None = None,
        *,
        store_host: bytes = b"\x7f\x00\x00\x01",
        store_port: int = 10911,
    ) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.report = OpeningReport()
        self.flags = RunningFlags()
        self._now = self.clock.now_ms
        self._folder = StoreFolder(settings.root)
        self._log = CommitLog(settings, store_host, store_port)
        self._queues: QueueTable = {}
        self.queue_kinds = QueueMaker(settings, self._log)
        self._light: set[str] = set()
        self._index = Index(settings) if settings.message_index_enable else None
        self._checkpoint = Checkpoint(settings.root / "checkpoint")
        self._dispatcher = Dispatcher(self._index, self._dispatch_failed, self._dispatch_recovered)
        self._flusher = LogFlusher(self._log, settings, self.clock, self._log_flushed, self._flush_failed)
        self._upkeep = Upkeep(self._log, self._dispatcher, self._index, self._checkpoint, settings, self.clock)
        self._cleaner = Cleaner(
            settings, self.clock, self._log, self._queues, self._index, self._needed_from, self._space_changed
        )
        self._limits = ReadLimits(settings)
        self._cold = ColdReads(self._log)
        self._delays = parse_delay_levels(settings.message_delay_level)
        self._appends_crc = settings.enabled_append_prop_crc
        # Whether what is stored may differ from what is put: a CRC, the offsets in further queues.
        self._amends = settings.enabled_append_prop_crc or settings.enable_multi_dispatch
        self._sync = settings.sync_flush
        self._tasks: list[asyncio.Task[None]] = []
        self._refusal: tuple[PutStatus, str] | None = (
            PutStatus.SERVICE_NOT_AVAILABLE,
            "the store is not open",
        )
        self._opened = False
        self.flushed: Watermark = self._flusher.flushed

    # life

    def open(self) -> OpeningReport:
        """Take the folder, load it, recover it.

        Raises:
            StoreLocked: someone else has the folder.
            StoreUnreadable: it holds something this version cannot use; nothing was changed for that reason.
            DiskFull: there is no space to open it.
        """
        folder = self._folder
        folder.lock()
        try:
            opener = StoreOpener(
                self.settings, self._log, self._queues, self._index, self._checkpoint, self.queue_kinds
            )
            self.report = opener.open(clean=folder.stopped_cleanly, pages_survived=folder.pages_survived)
            self._light = {topic for topic in self._queues if is_light(topic)}
            if not self.report.clean:
                # What a crashed process left in the page cache has been read, but need not be on the disk yet.
                sync_ranges(log_ranges(self._log, self.report.read_from, self._log.end))
            folder.mark_running()
        except BaseException as error:
            self._release()
            if isinstance(error, OSError):
                raise self._cannot_open(error) from error
            raise
        end = self._log.end
        self.flushed.advance(end)
        self._dispatcher.position = self._cold.opened_at = end
        self._dispatcher.limit = end if self._sync else None
        self._dispatcher.logics_timestamp = self._checkpoint.logics_msg_timestamp
        self._dispatcher.dirty = [q for of_topic in self._queues.values() for q in of_topic.values() if q.dirty]
        self._flusher.last_timestamp = self._checkpoint.physic_msg_timestamp
        self._opened = True
        self._judge()
        return self.report

    def _cannot_open(self, error: OSError) -> StoreError:
        where = error.filename or self.settings.root
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return DiskFull(f"store {self.settings.root} cannot be opened: {where}: the disk is full; free space")
        return StoreUnreadable(
            f"store {self.settings.root} cannot be opened: {where}: {error.strerror}; "
            "see to it that this user may read and write everything in the folder"
        )

    async def start(self) -> None:
        """Begin to flush and dispatch on the running loop; opens the store when it is not open."""
        if not self._opened:
            self.open()
        loop = asyncio.get_running_loop()
        self._dispatcher.start(loop)
        self._tasks = [
            loop.create_task(self._flusher.run(), name="store-flush"),
            loop.create_task(self._upkeep.run(), name="store-upkeep"),
            loop.create_task(self._upkeep.run_ahead(), name="store-ahead"),
            loop.create_task(self._cleaner.run(), name="store-clean"),
        ]
        if self._sync:
            self._flusher.request()

    async def close(self) -> None:
        """Stop cleanly: everything to the disk, the folder in the form a next start expects (store.md §10.8)."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, asyncio.CancelledError):
                logger.error("a task of the store ended early", exc_info=outcome)
        self.close_now()

    def close_now(self) -> None:
        """As `close`, for a store whose tasks were never started."""
        if not self._opened:
            return
        self._opened = False
        writable = self._refusal is None
        self._refusal = (PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        self._flusher.flush_now()
        self._dispatcher.stop()
        clean = writable and not self._dispatcher.pending and not self._flusher.failed and not self._upkeep.failed
        try:
            self._upkeep.flush_all(write_checkpoint=not self._flusher.failed)
            if clean:
                write_marker(self.settings, self._log.end, self._queues, self._index)
                self._folder.mark_stopped()
            else:
                logger.error("%s: not stopped cleanly; the next start reads the log again", self.settings.root)
        except OSError as error:
            logger.error(
                "%s: not stopped cleanly, the disk refused (%s); the next start reads the log again",
                self.settings.root,
                error,
            )
        finally:
            self._release()

    def _release(self) -> None:
        self._flusher.close()
        self._upkeep.close()
        self._cleaner.close()
        self._cold.close()
        for of_topic in self._queues.values():
            for queue in of_topic.values():
                queue.close()
        if self._index is not None:
            self._index.close()
        self._log.close()
        self._folder.unlock()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # puts

    def append(self, record: NewRecord) -> PutResult:
        """Store one message; it is in the page cache on return (store.md §4.2).

        Whether the disk has it is for `settle` to find out. Dispatch follows in the next turn of the loop.
        """
        if self._refusal is not None:
            return PutResult(self._refusal[0], remark=self._refusal[1])
        try:
            queue = self._queues[record.topic][record.queue_id]
        except KeyError:
            new = self._queue_for(record)
            if isinstance(new, PutResult):
                return new
            queue = new
        if self._amends or record.sys_flag & INNER_BATCH or 0 in record.properties:
            return self._append_amended(queue, record)
        if len(record.body) > self.settings.max_message_size:
            return refuse_message(record, self.settings.max_message_size)
        if len(record.properties) > MAX_PROPERTIES:
            return refuse_message(record, self.settings.max_message_size)
        stored = self._now()
        kind = record.sys_flag & TRANSACTION_BITS
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
        dispatcher = self._dispatcher
        dispatcher.pending.append(
            (queue, queue_offset, end - size, size, tags, stored, kind, record.uniq_key, record.keys)
        )
        self._flusher.last_timestamp = stored
        if self._sync:
            self._flusher.request()
        elif not dispatcher.scheduled:
            dispatcher.kick()
        elif len(dispatcher.pending) > BACKLOG_LIMIT:
            dispatcher.run(SLICE_RECORDS, 1.0)
        return PutResult(_OK, end - size, queue_offset, stored, end)

    def append_batch(self, record: NewRecord, entries: Iterable[tuple[int, bytes, bytes]]) -> PutResult:
        """Store several messages of one queue, all in one segment (store.md §16.1).

        Args:
            record: what they have in common; its body, flag and tags are not used, its properties are added behind
                those of each entry.
            entries: flag, body and property string of each.

        What `settings` make of single messages (a CRC, further queues) is made of each.
        """
        if self._refusal is not None:
            return PutResult(self._refusal[0], remark=self._refusal[1])
        members = []
        total = 0
        limit = self.settings.max_message_size
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
        try:
            queue = self._queues[record.topic][record.queue_id]
        except KeyError:
            new = self._queue_for(record)
            if isinstance(new, PutResult):
                return new
            queue = new
        return self._put_records(queue, members)

    def _append_amended(self, queue: ConsumeQueue, record: NewRecord) -> PutResult:
        """As `append`, for what the short way there does not do."""
        limit = self.settings.max_message_size
        count = 1
        if len(record.body) > limit:
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
                return refuse_message(record, self.settings.max_message_size)
            offset = next_offsets[queue] if counted else 0
            if counted:
                next_offsets[queue] = offset + count
            plan.append((record, kind, offset, further))
        stored = self._now()
        places = []
        pending = self._dispatcher.pending
        try:
            log.room_for(sum(log.size_of(record, queue.topic_field) for record, *_ in plan))
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
        self._flusher.last_timestamp = stored
        if self._sync:
            self._flusher.request()
        else:
            self._dispatcher.kick()
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
        if self.settings.enable_multi_dispatch and next_offsets is not None:
            given = {}
            for place in dispatched_queues(topic, queue_id, properties):
                queue = self._further_queue(record, place)
                if isinstance(queue, PutResult):
                    return queue
                offset = given[place] = next_offsets.get(queue, queue.next_offset)
                next_offsets[queue] = offset + 1
                further.append((queue, offset))
            if given:
                given.setdefault((topic, queue_id), next_offsets.get(self._queues[topic][queue_id], 0))
                properties = with_offsets(topic, queue_id, properties, lambda *place: given[place])
        if self._appends_crc or 0 in properties:
            # Zeros could be taken for what did not reach the disk: such a record says by its CRC that it is whole.
            properties = reserve_property_crc(properties)
        return structs.replace(record, properties=properties)

    def _further_queue(self, record: NewRecord, place: tuple[str, int]) -> ConsumeQueue | PutResult:
        queue = self._known(*place)
        if queue is None:
            refused = refuse_multi_dispatch(record, place, batched=place[0] in self.queue_kinds.batch_topics)
            if refused is not None:
                return refused
            limit = self.settings.max_lmq_consume_queue_num
            if is_light(place[0]) and len(self._light) >= limit:
                text = f"there are {len(self._light)} light queues, maxLmqConsumeQueueNum={limit}; raise it"
                return illegal(record, text, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)
            return self._queue(*place)
        refused = refuse_multi_dispatch(record, place, batched=True) if queue.batched else None
        return queue if refused is None else refused

    async def settle(self, result: PutResult, timeout_ms: int | None = None) -> PutStatus:
        """Wait until a stored message is as safe as the flush type promises.

        Args:
            result: of the put.
            timeout_ms: at most so long; None for `syncFlushTimeout`.

        Returns:
            The put's status, or FLUSH_DISK_TIMEOUT when the disk did not take it in time or at all. The message is
            stored in either case.
        """
        if not self._sync or result.status is not _OK:
            return result.status
        if self.flushed.value >= result.end_offset:
            return _OK
        limit = self.settings.sync_flush_timeout if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit / 1000):
                await self.flushed.reach(result.end_offset)
        except (TimeoutError, StoreError):
            return PutStatus.FLUSH_DISK_TIMEOUT
        return _OK

    def _queue_for(self, record: NewRecord) -> ConsumeQueue | PutResult:
        refused = refuse_place(record)
        return self._queue(record.topic, record.queue_id) if refused is None else refused

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        of_topic = self._queues.setdefault(topic, {})
        queue = of_topic.get(queue_id)
        if queue is None:
            queue = of_topic[queue_id] = self.queue_kinds.make(topic, queue_id)
            if is_light(topic):
                self._light.add(topic)
        return queue

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
                f"messages for less than fileReservedTime={self.settings.file_reserved_time} h; "
                "it is tried again every 5 s, reading goes on"
            )
            if self._cleaner.refused() and self.put_up(RunningFlag.DISK_FULL, text):
                logger.error("%s", text)
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=text)
        logger.error("the commit log in %s cannot be extended: %s", self.settings.root, error)
        return PutResult(
            PutStatus.CREATE_MAPPED_FILE_FAILED, remark=f"create mapped file failed, server is busy or broken: {error}"
        )

    # reads

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None = None,
        max_bytes: int | None = None,
        accept: Callable[[memoryview], bool] | None = None,
    ) -> GetResult:
        """Messages of a queue from `offset` on, within the limits of one read (store.md §14.1).

        Args:
            topic: topic.
            queue_id: queue.
            offset: first queue offset wanted.
            max_messages: at most so many.
            tag_codes: codes of the wanted tags; None for all messages.
            max_bytes: at most so many bytes, unless the first message alone is longer.
            accept: looks at a record that the tags let through; false leaves it out.
        """
        try:
            queue = self._queues[topic][queue_id]
        except KeyError:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        limit = MAX_BYTES if max_bytes is None else min(max_bytes, MAX_BYTES)
        if isinstance(queue, BatchQueue):
            return read_batch_queue(self._log, queue, self._limits, offset, max_messages, tag_codes, limit, accept)
        return read_queue(self._log, queue, self._limits, offset, max_messages, tag_codes, limit, accept)

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None = None,
        max_bytes: int | None = None,
        accept: Callable[[memoryview], bool] | None = None,
    ) -> GetResult | Coroutine[Any, Any, GetResult]:
        """As `get`, without stopping the loop for messages that have left the memory.

        Returns:
            The messages when they are in memory, otherwise a coroutine that returns them when they are.
        """
        missing = self._missing(topic, queue_id, offset, max_messages, tag_codes, max_bytes)
        if missing:
            return self._read_cold(missing, topic, queue_id, offset, max_messages, tag_codes, max_bytes, accept)
        return self.get(topic, queue_id, offset, max_messages, tag_codes, max_bytes, accept)

    def _missing(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None,
        max_bytes: int | None,
    ) -> Missing:
        queue = self._known(topic, queue_id)
        if queue is None:
            return []
        limits = self._limits.of(max_messages, MAX_BYTES if max_bytes is None else max_bytes)
        units = max(self._limits.units, max_messages)
        return self._cold.missing(queue, offset, units, limits.count_in_memory, limits.bytes_in_memory, tag_codes)

    async def _read_cold(
        self,
        missing: Missing,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None,
        max_bytes: int | None,
        accept: Callable[[memoryview], bool] | None,
    ) -> GetResult:
        for _ in range(ROUNDS):
            await self._cold.fetch(missing)
            missing = self._missing(topic, queue_id, offset, max_messages, tag_codes, max_bytes)
            if not missing:
                break
        return self.get(topic, queue_id, offset, max_messages, tag_codes, max_bytes, accept)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Smallest offset of a queue; -1 when it is unknown."""
        queue = self._known(topic, queue_id)
        return -1 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """Next offset of a queue, 0 when it is unknown.

        Args:
            topic: topic.
            queue_id: queue.
            committed: what can be read; otherwise what has been stored, which may be a little more.
        """
        queue = self._known(topic, queue_id)
        if queue is None:
            return 0
        return queue.max_offset if committed else queue.next_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """Queue offset at a store time in ms (store.md §14.2); 0 for an unknown queue.

        Args:
            topic: topic.
            queue_id: queue.
            timestamp: ms.
            upper: the last message at or before the time instead of the first at or after it.
        """
        queue = self._known(topic, queue_id)
        if isinstance(queue, BatchQueue):
            return queue.offset_at_time(timestamp, upper=upper)
        return 0 if queue is None else offset_at_time(self._log, queue, timestamp, upper=upper)

    async def find_offset(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """As `offset_by_time`, without stopping the loop for messages that have left the memory."""
        low, high = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        queue = self._known(topic, queue_id)
        while queue is not None and not isinstance(queue, BatchQueue) and low < high:
            # The same places as the search itself will look at.
            middle = (low + high) // 2
            if missing := self._cold.missing(queue, middle, 1, 1, 1, None):
                await self._cold.fetch(missing)
            stored = time_of(self._log, queue, middle)
            if stored < timestamp or (upper and stored == timestamp):
                low = middle + 1
            else:
                high = middle
        return self.offset_by_time(topic, queue_id, timestamp, upper=upper)

    def store_time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of a message, ms; -1 when there is none at the offset."""
        queue = self._known(topic, queue_id)
        return -1 if queue is None else time_of(self._log, queue, offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store time of the queue's oldest message, ms; -1 when it has none."""
        queue = self._known(topic, queue_id)
        return -1 if queue is None else time_of(self._log, queue, queue.min_offset)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at a commit-log offset; None when none does."""
        return self._log.record_at(physical_offset)

    def query(self, topic: str, key: str, max_num: int, begin: int = 0, end: int = (1 << 63) - 1) -> QueryResult:
        """Records whose topic and key have the given ones' hash, in log order (store.md §8.6).

        Args:
            topic: topic.
            key: a unique key or one of the message's keys.
            max_num: at most so many, and at most `maxMsgsNumBatch`; the newest are taken.
            begin: not stored before, ms.
            end: not stored after, ms.
        """
        index = self._index
        if index is None:
            return QueryResult([], [])
        offsets = sorted(index.query(topic, key, max_num, begin, end))
        if not offsets:
            return QueryResult([], [])
        parts, found = [], []
        for offset in offsets:
            record = self._log.record_at(offset)
            if record is not None:
                parts.append(record)
                found.append(offset)
        return QueryResult(parts, found, index.end_timestamp, max(index.end_offset, 0))

    def topics(self) -> list[str]:
        """Topics that have or had messages."""
        return [topic for topic, queues in self._queues.items() if any(q.next_offset for q in queues.values())]

    def queues(self, topic: str) -> list[int]:
        """Queues of a topic that have or had messages, in order."""
        return sorted(n for n, queue in self._queues.get(topic, {}).items() if queue.next_offset)

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's queues; its records stay in the log until they expire (store.md §5.10)."""
        dispatcher = self._dispatcher
        dispatcher.drain()
        retired = [file for queue in self._queues.pop(topic, {}).values() for file in queue.retire()]
        dispatcher.pending = type(dispatcher.pending)(p for p in dispatcher.pending if p[0].topic != topic)
        dispatcher.dirty = [queue for queue in dispatcher.dirty if queue.topic != topic]
        self._light.discard(topic)
        self._cleaner.remove(self.queue_kinds.folder(topic), retired)

    # retention

    def settings_changed(self) -> None:
        """Let changed settings count now rather than in a few seconds."""
        self._log.stall_limit_ms = self.settings.os_page_cache_busy_time_out_mills
        self._cleaner.wake()

    def delete_expired(self) -> None:
        """Delete expired log segments now, whatever the hour (store.md §12)."""
        self._cleaner.delete_expired()

    def clean_queues(self) -> None:
        """Delete files of queues and index that know only records which are gone, now."""
        self._cleaner.clean_queues()

    def delete_other_topics(self, kept: Callable[[str], bool]) -> list[str]:
        """Delete the queues of all topics for which `kept` does not hold; returns their names."""
        doomed = [topic for topic in self._queues if not kept(topic)]
        for topic in doomed:
            self.delete_topic(topic)
        return doomed

    def _needed_from(self) -> int:
        pending = self._dispatcher.pending
        return min(self.flushed.value, pending[0][2] if pending else self._log.end)

    def _space_changed(self, text: str | None) -> None:
        if text is None:
            self.take_down(RunningFlag.DISK_FULL)
            logger.warning("%s: the disk has space again, messages are accepted", self.settings.root)
        elif self.put_up(RunningFlag.DISK_FULL, text):
            logger.error("%s", text)

    def _known(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        of_topic = self._queues.get(topic)
        return None if of_topic is None else of_topic.get(queue_id)

    # positions

    @property
    def end_offset(self) -> int:
        """The commit log's next offset."""
        return self._log.end

    @property
    def begin_offset(self) -> int:
        """Start of the oldest commit-log segment; -1 without one."""
        return self._log.min_offset

    @property
    def dispatched(self) -> int:
        """End of the last dispatched record in the commit log."""
        return self._dispatcher.position

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that queues do not show yet."""
        return self._log.end - self._dispatcher.pending[0][2] if self._dispatcher.pending else 0

    @property
    def writable(self) -> bool:
        """Whether puts are accepted."""
        return self._refusal is None

    def arrived(self, topic: str, queue_id: int) -> Watermark:
        """A watermark that follows the queue's next offset; the queue may have no message yet."""
        queue = self._queue(topic, queue_id)
        if queue.arrived is None:
            queue.arrived = Watermark(queue.max_offset)
        return queue.arrived

    def last_store_time(self) -> int:
        """Store time of the newest record, ms; 0 for an empty store."""
        return self._flusher.last_timestamp

    def store_time_at(self, physical_offset: int) -> int:
        """Store time of the record at a commit-log offset, ms; -1 without one."""
        record = self._log.record_at(physical_offset)
        return -1 if record is None else store_time(record)

    def put_up(self, flag: RunningFlag, text: str) -> bool:
        """Refuse puts from now on.

        Args:
            flag: why.
            text: the same in words, with the remedy; producers get it.

        Returns:
            Whether the flag was down before.
        """
        was_down = self.flags.put_up(flag, text)
        self._judge()
        return was_down

    def take_down(self, flag: RunningFlag) -> bool:
        """A reason to refuse puts has gone; whether it had been there."""
        was_up = self.flags.take_down(flag)
        self._judge()
        return was_up

    def _judge(self) -> None:
        # One value that puts look at, however many reasons there are.
        if self._opened:
            text = self.flags.refusal
            self._refusal = None if text is None else (PutStatus.SERVICE_NOT_AVAILABLE, text)

    # what the parts report

    def _log_flushed(self, end: int, timestamp: int) -> None:
        self._checkpoint.physic_msg_timestamp = max(self._checkpoint.physic_msg_timestamp, timestamp)
        if self._sync:
            self._dispatcher.limit = end
            self._dispatcher.kick()

    def _flush_failed(self, error: OSError) -> None:
        text = (
            f"the disk of {self.settings.root} refused the commit log ({error}); the store only reads: "
            "repair the disk, then restart the broker"
        )
        self.put_up(RunningFlag.NOT_WRITABLE, text)
        logger.critical("%s", text)

    def _dispatch_failed(self, error: OSError, flag: RunningFlag) -> None:
        what = "the index" if flag is RunningFlag.INDEX_ERROR else "the queues"
        text = f"{what} in {self.settings.root} cannot be written ({error}); free space, it is tried again every second"
        if self.put_up(flag, text):
            logger.error("%s", text)

    def _dispatch_recovered(self) -> None:
        self.take_down(RunningFlag.QUEUE_ERROR)
        self.take_down(RunningFlag.INDEX_ERROR)
        logger.warning("%s: queues and index can be written again", self.settings.root)
