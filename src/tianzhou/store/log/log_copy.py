"""A commit log that is a copy of another one: its bytes as they come, its records dispatched once they are whole.

A copy grows by stretches that begin and end anywhere. Records get their places in queues and index from what they say
themselves, by the same dispatcher that serves a log of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from tianzhou.errors import StoreError
from tianzhou.model import names
from tianzhou.model.name_rules import folder_name_problem
from tianzhou.records.layout import BLANK_SIZE, INNER_BATCH, INNER_BATCH_BITS, PREPARED, ROLLBACK, TRANSACTION_BITS
from tianzhou.records.walk import Finding, LogEntry, LogItem, Run, walk
from tianzhou.store.dispatch.dispatch import BACKLOG_LIMIT, Dispatcher
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.flush import LogFlusher
from tianzhou.store.queues.admission import inner_count
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.multi_dispatch import stored_places
from tianzhou.store.queues.open_queues import OpenQueues
from tianzhou.store.queues.tags_code import queue_tags_code
from tianzhou.store.settings import StoreSettings, parse_delay_levels
from tianzhou.wire.properties import get_property

logger = logging.getLogger(__name__)

_SLICE_S: Final = 0.002
_NOT_PLAIN: Final = TRANSACTION_BITS | INNER_BATCH_BITS


@dataclass(frozen=True, slots=True)
class _PartialSegment:
    """A segment as far as it has been copied, for a walk over it."""

    start: int
    view: memoryview

    def find(self, needle: bytes, position: int) -> int:
        return bytes(self.view).find(needle, position)


class LogCopy:
    """Appends stretches of another log, and has the records in them dispatched.

    Args:
        settings: of the store.
        log: takes the bytes.
        queues: where records belong to.
        dispatcher: gives queues and index what records say.
        flusher: brings the bytes to the disk.

    Attributes:
        whole: log offset behind the last record that is whole.
        on_new_queue: called with topic and queue of the first record of a queue; None for nobody.
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
        self.on_new_queue: Callable[[str, int], None] | None = None

    def opened(self) -> None:
        """Begin where the log ends."""
        self.whole = self._log.end

    def close(self) -> None:
        """Dispatch what is whole, and cut off what is not: a clean stop leaves whole records only.

        Raises:
            OSError: the disk refused.
        """
        with suppress(StoreError):  # it has been said, and what is wrong is cut off
            self.dispatch(1e9)
        if self.whole < self._log.end:
            self._log.resume(self.whole)

    def equal(self, offset: int, data: memoryview) -> int:
        """How many bytes, from the first one on, are the same in the log at `offset`."""
        same = 0
        while same < len(data):
            segment = self._log.files.find(offset + same)
            if segment is None:
                break
            at = offset + same - segment.start
            part = data[same : same + segment.size - at]
            found = segment.view[at : at + len(part)]
            if found != part:
                return same + next(i for i, (one, other) in enumerate(zip(found, part, strict=True)) if one != other)
            same += len(part)
        return same

    def append(self, offset: int, data: memoryview) -> None:
        """Append bytes of the other log; what is whole of them is dispatched in the next turns of the loop.

        Args:
            offset: where they begin; the end of this log, or where a segment begins when it is empty.
            data: the bytes.

        Raises:
            StoreError: they do not belong there, or the log holds something that is no record.
            OSError: no segment can be made, or the disk is full; what was appended before is there.
        """
        if self._failure is not None:
            raise self._failure
        if not self._log.files.segments and offset != self._log.end:
            self.whole = offset
        self._log.copy_in(offset, data)
        if self._settings.sync_flush:
            self._flusher.request()
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        with suppress(StoreError):  # who appends next is told
            if self.dispatch(_SLICE_S):
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._turn)

    def dispatch(self, seconds: float) -> bool:
        """Hand the dispatcher the records that have become whole, for about so long; whether there may be more.

        Raises:
            StoreError: the log holds something that is no record.
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
        segment = log.files.find(self.whole)
        if segment is None or self.whole >= log.end:
            return False
        # Behind the last byte that came stands nothing, as the walk expects it behind every record.
        upto = min(log.end - segment.start + BLANK_SIZE, segment.size)
        part = _PartialSegment(segment.start, segment.view[:upto])
        position = self.whole - segment.start
        # The end is known, so that nobody looks for records behind what is not whole yet.
        step = next(walk([part], 0, position, trusted_end=self.whole), None)
        if step is None:
            # A blank ends the segment; its last bytes may still be on their way.
            if log.end < segment.end:
                return False
            self.whole = segment.end
            return True
        if isinstance(step, LogItem):
            if step.entry is None:
                self._check(step, segment.end)
                return False
            self._take(step.entry)
            self.whole = step.offset + step.size
        else:
            self._take_run(step)
            self.whole = step[-1][0] + step[-1][1]
        self._dispatcher.kick()
        return True

    def _check(self, item: LogItem, segment_end: int) -> None:
        """What is not whole is still to come, or never will be."""
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
        """As `_take`, quicker for records of queues that are there already."""
        table, pending = self._queues.table, self._dispatcher.pending
        for row in run:
            offset, size, topic, queue_id, queue_offset, sys_flag, stored, properties = row
            queue = table.get(topic, {}).get(queue_id)
            if queue is None or not queue.plain or sys_flag & _NOT_PLAIN or self._settings.enable_multi_dispatch:
                self._take(LogEntry._make(row))
                continue
            tags = 0
            if queue.delayed or b"TAGS\x01" in properties:
                tags = queue_tags_code(topic, properties, stored, self._delays)
            queue.next_offset = queue_offset + 1
            uniq_key = get_property(properties, names.UNIQ_KEY) or ""
            keys = get_property(properties, names.KEYS) or ""
            pending.append((queue, queue_offset, offset, size, tags, stored, 0, uniq_key, keys))
        self._flusher.last_timestamp = run[-1][6]

    def _take(self, entry: LogEntry) -> None:
        kind = entry.sys_flag & TRANSACTION_BITS
        stored, properties = entry.store_timestamp, entry.properties
        queue = self._queues.find(entry.topic, entry.queue_id)
        if queue is None:
            problem = folder_name_problem(entry.topic) or ("" if entry.queue_id >= 0 else "no queue has such a number")
            if problem:
                logger.error("the record at %d of the copied log is left out: %s", entry.offset, problem)
                return
            queue = self._queues.find_or_make(entry.topic, entry.queue_id)
            if self.on_new_queue is not None:
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
