"""A commit log that is a copy of another one: it appends received bytes, and dispatches records once they are whole.

A copy grows by stretches that begin and end anywhere. The records contain their queue offsets, and the dispatcher of an
ordinary log adds them to queues and index.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from tianzhou._hot import take_rows
from tianzhou.errors import StoreError
from tianzhou.model import names
from tianzhou.model.name_rules import folder_name_problem
from tianzhou.records.change import is_change
from tianzhou.records.layout import (
    BLANK_SIZE,
    END_OFFSET,
    INNER_BATCH,
    MAGIC_START,
    PREPARED,
    ROLLBACK,
    TRANSACTION_BITS,
)
from tianzhou.records.walk import Finding, LogEntry, LogItem, Run, read_item, walk
from tianzhou.store.dispatch.dispatch import BACKLOG_LIMIT, Dispatcher
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.flush import LogFlusher
from tianzhou.store.log.log_items import LogItems
from tianzhou.store.queues.admission import inner_count
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.multi_dispatch import stored_places
from tianzhou.store.queues.open_queues import OpenQueues
from tianzhou.store.queues.tags_code import queue_tags_code
from tianzhou.store.settings import StoreSettings, parse_delay_levels
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import get_property

logger = logging.getLogger(__name__)

_SLICE_S: Final = 0.002


@dataclass(frozen=True, slots=True)
class _PartialSegment:
    """The copied part of a segment, for a walk over it."""

    start: int
    view: memoryview

    def find(self, needle: bytes, position: int) -> int:
        return bytes(self.view).find(needle, position)


def equal_bytes(one: memoryview, other: memoryview) -> int:
    """Return the number of equal leading bytes of two views of equal length."""
    if bytes(one) == bytes(other):
        return len(one)
    low, high = 0, len(one)
    while high - low > 1:
        half = (low + high) // 2
        if bytes(one[low:half]) == bytes(other[low:half]):
            low = half
        else:
            high = half
    return low


class LogCopy:
    """Appends stretches of another log, and dispatches the records in them.

    Args:
        settings: settings of the store.
        log: the log to append to.
        queues: the queues of the records.
        dispatcher: adds records to queues and index.
        flusher: syncs the bytes.

    Attributes:
        whole: log offset after the last whole record.
        limit: log offset; records that end after it wait. None when no record has to wait.
        doubted_from: log offset from which this log must be compared with the other one, because a crash may have left
            holes in it; None without doubt.
        items: reads this log record by record.
        on_new_queue: called with topic and queue of the first record of a queue; None without a callback.
        on_change: called with offset and size of the record of a change entry; None outside of a DLedger group.
    """

    def __init__(
        self, settings: StoreSettings, log: CommitLog, queues: OpenQueues, dispatcher: Dispatcher, flusher: LogFlusher
    ) -> None:
        self._settings = settings
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._delays = parse_delay_levels(settings.message_delay_level)
        self._scheduled = False
        self._failure: StoreError | None = None
        self.whole = 0
        self.limit: int | None = None
        self.doubted_from: int | None = None
        self.items = LogItems(log)
        self.on_new_queue: Callable[[str, int], None] | None = None
        self.on_change: Callable[[int, int], None] | None = None

    def opened(self, doubted_from: int | None = None) -> None:
        """Start at the end of the log.

        Args:
            doubted_from: see the attribute.
        """
        self.whole, self.doubted_from = self._log.end, doubted_from

    def close(self) -> None:
        """Dispatch whole records, and cut off an incomplete one: a clean stop leaves whole records only.

        Raises:
            OSError: the disk refused.
        """
        with suppress(StoreError):  # the error was reported, and the wrong bytes are cut off
            self.dispatch(1e9)
        if self.whole < self._log.end:
            self._log.resume(self.whole)

    def equal(self, offset: int, data: memoryview) -> int:
        """Return the number of leading bytes that equal the log's at `offset`."""
        same = 0
        while same < len(data):
            segment = self._log.files.find(offset + same)
            if segment is None:
                break
            at = offset + same - segment.start
            part = data[same : same + segment.size - at]
            alike = equal_bytes(segment.view[at : at + len(part)], part)
            same += alike
            if alike < len(part):
                break
        return same

    def holds_record(self, start: int, stop: int) -> bool:
        """Whether a whole record lies between two offsets of the log."""
        for segment in self._log.files.segments:
            begin, end = max(start, segment.start) - segment.start, min(stop, segment.end) - segment.start
            found = segment.find(MAGIC_START, begin + 4) if begin < end else -1
            while 0 <= found < end:
                item = read_item(segment.view, found - 4, segment.start)
                if item.entry is not None and found - 4 + item.size <= end:
                    return True
                found = segment.find(MAGIC_START, found + 1)
        return False

    def append(self, offset: int, data: memoryview) -> None:
        """Append bytes of the other log; the next turns of the event loop dispatch the records that are whole.

        Args:
            offset: log offset of the first byte; the end of this log, or the begin of a segment when it is empty.
            data: the bytes.

        Raises:
            StoreError: the offset is wrong, the log has bytes that are no record, or the disk has refused the log.
            OSError: no segment can be created, or the disk is full; earlier appends stay.
        """
        if self._failure is not None:
            raise self._failure
        if self._flusher.failed:
            # A reported offset counts as copied, and with SYNC_FLUSH no consumer could read these messages here either.
            raise StoreError(
                "the disk has refused the copied commit log, nothing more is copied: repair the disk, then restart"
            )
        if not self._log.files.segments and offset != self._log.end:
            self.whole = offset
        self._log.copy_in(offset, data)
        if self._settings.sync_flush:
            self._flusher.request()
        self.kick()

    def kick(self) -> None:
        """Schedule the dispatch of records that are whole, or visible, now; without an event loop, dispatch at once."""
        if self._scheduled:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            with suppress(StoreError):
                self.dispatch(1e9)
            return
        self._scheduled = True
        loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        with suppress(StoreError):  # the next append raises it
            if self.dispatch(_SLICE_S):
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._turn)

    def dispatch(self, seconds: float) -> bool:
        """Dispatch whole records for about that many seconds; return whether there may be more.

        Raises:
            StoreError: the log has bytes that are no record.
        """
        stop = perf_counter() + seconds
        while perf_counter() < stop:
            if len(self._dispatcher.pending) > BACKLOG_LIMIT:
                self._dispatcher.kick()
                return True
            if not self._step():
                return False
        return True

    def _step(self) -> bool:
        log = self._log
        end = log.end if self.limit is None else min(log.end, self.limit)
        segment = log.files.find(self.whole)
        if segment is None or self.whole >= end:
            return False
        # The bytes after the last received one are zeros, as the walk expects them after every record.
        upto = min(end - segment.start + BLANK_SIZE, segment.size)
        part = _PartialSegment(segment.start, segment.view[:upto])
        position = self.whole - segment.start
        # With a known end, the walk does not search for records after an incomplete one.
        step = next(walk([part], 0, position, trusted_end=self.whole, framed_from=log.framed_from), None)
        if step is None:
            # A blank ends the segment; its last bytes may not have arrived yet.
            if end < segment.end:
                return False
            self.whole = segment.end
            return True
        if isinstance(step, LogItem):
            if step.entry is not None:
                self._take(step.entry)
            elif step.finding is not Finding.OTHER:
                self._check(step, segment.end)
                return False
            self.whole = step.offset + step.size
        else:
            self._take_run(step)
            self.whole = step[-1][0] + step[-1][1]
        self._dispatcher.kick()
        return True

    def _check(self, item: LogItem, segment_end: int) -> None:
        """Handle bytes without a whole record: they are incomplete, or the copy has failed."""
        if self.limit is not None:
            self._failure = StoreError(
                f"{self._settings.root}: entries at {item.offset} of the commit log are committed but hold no record "
                f"({item.reason or 'zeros'}); stop this member, empty its store folder, and start it"
            )
            logger.error("%s", self._failure)
            raise self._failure
        stated = self._log.read(item.offset, 4)
        size = BLANK_SIZE if stated is None else int.from_bytes(stated, "big", signed=True)
        if item.finding is Finding.NOTHING and item.offset + max(size, BLANK_SIZE) <= self._log.end and stated:
            self._failure = StoreError(
                f"the copied commit log holds no record at {item.offset} ({item.reason or 'zeros'}), its segment ends "
                f"at {segment_end}; set mappedFileSizeCommitLog={self._settings.mapped_file_size_commit_log} as at the "
                "master, and empty the slave's store folder"
            )
            raise self._failure

    def _take_run(self, run: Run) -> None:
        """Dispatch a run of records as `_take`, faster for existing queues."""
        table, pending = self._queues.table, self._dispatcher.pending
        at = 0
        while at < len(run):
            if not self._settings.enable_multi_dispatch:
                at = take_rows(run, at, table, pending, tags_code)
            if at < len(run):
                self._take(LogEntry._make(run[at]))
                at += 1
        self._flusher.last_timestamp = run[-1][6]

    def _take(self, entry: LogEntry) -> None:
        kind = entry.sys_flag & TRANSACTION_BITS
        stored, properties = entry.store_timestamp, entry.properties
        if self.on_change is not None and is_change(entry.topic, entry.queue_id, entry.sys_flag):
            self.on_change(entry.offset, entry.size)
            # Only such an entry could create a queue of that number, so each of them is handled here.
            entry = entry._replace(queue_id=0)
        if not 0 <= entry.queue_offset < END_OFFSET:
            logger.error(
                "the record at %d of the copied log is left out: no queue has an offset %d",
                entry.offset,
                entry.queue_offset,
            )
            return
        queue = self._queues.find(entry.topic, entry.queue_id)
        if queue is None:
            problem = folder_name_problem(entry.topic) or ("" if entry.queue_id >= 0 else "no queue has such a number")
            if problem:
                logger.error("the record at %d of the copied log is left out: %s", entry.offset, problem)
                return
            queue = self._queues.find_or_make(entry.topic, entry.queue_id)
            if self.on_new_queue is not None and kind not in {PREPARED, ROLLBACK}:
                self.on_new_queue(entry.topic, entry.queue_id)
        tags = queue_tags_code(entry.topic, properties, stored, self._delays)
        if kind not in {PREPARED, ROLLBACK}:
            count = 1
            if entry.sys_flag & INNER_BATCH and isinstance(queue, BatchQueue):
                count = inner_count(properties) or 1
                queue.expect(entry.queue_offset, count)
            queue.next_offset = entry.queue_offset + count
        keys, uniq_key = get_property(properties, names.KEYS) or "", get_property(properties, names.UNIQ_KEY) or ""
        pending = self._dispatcher.pending
        pending.append((queue, entry.queue_offset, entry.offset, entry.size, tags, stored, kind, uniq_key, keys))
        self._flusher.last_timestamp = stored
        if self._settings.enable_multi_dispatch and kind not in {PREPARED, ROLLBACK}:
            for topic, queue_id, offset in stored_places(entry.topic, entry.queue_id, properties):
                another = self._queues.find_or_make(topic, queue_id)
                another.next_offset = offset + 1
                pending.append((another, offset, entry.offset, entry.size, tags, stored, kind, "", ""))
