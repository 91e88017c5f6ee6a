"""Dispatch from the log to queues and index: each stored record gets its unit and its index entries (store.md §13).

Appends pass the fields of a record, so the dispatcher parses no records. Because other tasks share the event loop, it
works in slices.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Final

from tianzhou._hot import BY_HAND, QueueCursor, fill
from tianzhou._hot.cursors import Pending
from tianzhou._hot.records import UNIT
from tianzhou.errors import StoreError
from tianzhou.records.layout import PREPARED, ROLLBACK
from tianzhou.store.flags import RunningFlag
from tianzhou.store.index.index import Index
from tianzhou.store.index.indexfile import IndexFile
from tianzhou.store.queues.consumequeue import ConsumeQueue

logger = logging.getLogger(__name__)

SLICE_RECORDS: Final = 256
SLICE_SECONDS: Final = 0.002
_STEP: Final = 32
BACKLOG_LIMIT: Final = 65_536
_RETRY_SECONDS: Final = 1.0
MAX_TRIES: Final = 3
"""Number of tries of a record that fails because of itself, before it is skipped."""
_OF_THE_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.EILSEQ})
"""Errors of the system that a folder's name causes."""
_Pending = tuple[ConsumeQueue, int, int, int, int, int, int, str, str]


def _nobody() -> None: ...


def _passes(error: Exception) -> bool:
    """Whether an error is one of the disk or of memory, and not one of the record."""
    if isinstance(error, OSError):
        return error.errno not in _OF_THE_NAME
    return isinstance(error, MemoryError | StoreError)


class Dispatcher:
    """Follows the log and fills queues and index.

    Args:
        index: receives the keys; None when `messageIndexEnable` is off.
        on_failure: called with the error when queues or index cannot be written, and which of them; dispatch is retried
            every second.
        on_recovered: called when it works again.

    Attributes:
        pending: records not yet dispatched, oldest first; records of a batch may be grouped.
        position: end of the last dispatched record in the commit log.
        logics_timestamp: store time of the last dispatched record, ms.
        limit: records that end after this offset wait; None when no record has to wait (store.md §13).
        dirty: queues with units that may not be on disk yet.
        index: receives the keys now; None also during the work of `IndexCatchUp`.
        turning: whether a slice is being dispatched, so that `dispatched` will be called.
        dispatched: called after each slice, in the same turn of the loop, for readers of new records.
        left_out: number of records without a unit or index entry, because they cannot have one.
    """

    def __init__(
        self,
        index: Index | None,
        on_failure: Callable[[Exception, RunningFlag], None],
        on_recovered: Callable[[], None],
    ) -> None:
        self.pending: deque[Pending] = deque()
        self.position = 0
        self.logics_timestamp = 0
        self.limit: int | None = None
        self.dirty: list[ConsumeQueue] = []
        self.scheduled = False
        self.turning = False
        self.dispatched: Callable[[], None] = _nobody
        self.index = index
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failed = False
        self._failing_at, self._failures = -1, 0
        self.left_out = 0
        self._on_failure = on_failure
        self._on_recovered = on_recovered

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work on `loop` from now on."""
        self._loop = loop
        self.kick()

    def kick(self) -> None:
        """Schedule the dispatch of pending records; without an event loop, dispatch at once."""
        if self._loop is None:
            self.drain()
        elif not self.scheduled and not self._failed:
            self.scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.scheduled = False
        self.turning = True
        more = self.run(SLICE_RECORDS, SLICE_SECONDS)
        self.turning = False
        if more:
            self.kick()
        self.dispatched()

    def at_once(self) -> tuple[bool, IndexFile | None] | None:
        """Return the index for records that are dispatched as soon as they are stored.

        Returns:
            Whether there is an index, and its newest file; None when other records must be dispatched first.
        """
        if self.pending or self.limit is not None or self._failed:
            return None
        index = self.index
        return (False, None) if index is None else (True, index.newest)

    def dispatched_at_once(self, position: int, stored: int, waited: Iterable[QueueCursor]) -> None:
        """Note that the caller has stored and dispatched records, and has updated the index's header.

        Args:
            position: end of the last of them.
            stored: its store time, ms.
            waited: queues with new records that have waiters.
        """
        self.position, self.logics_timestamp = position, stored
        for queue in waited:
            if queue.arrived is not None:
                queue.arrived.advance(queue.max_offset)

    def units_changed(self, queue: ConsumeQueue) -> None:
        """Note that a queue has units that may not be on the disk."""
        if not queue.dirty:
            queue.dirty = True
            self.dirty.append(queue)

    def drain(self) -> None:
        """Dispatch all records up to the limit, however long it takes."""
        while self.run(1 << 30, 1e9):
            pass

    def run(self, records: int, seconds: float) -> bool:
        """Dispatch one slice.

        Args:
            records: maximum number of records.
            seconds: approximate maximum time.

        Returns:
            Whether more records may be dispatched now.
        """
        pending = self.pending
        index = self.index
        stop = 0.0
        done = 0
        try:
            while pending:
                newest = None if index is None else index.newest
                most = min(_STEP, records - done)
                count, position, stored = fill(pending, self.dirty, index is not None, newest, self.limit, most)
                if count:
                    self.position, self.logics_timestamp = position, stored
                if count < most:
                    by_hand = self._by_hand(min(BY_HAND, most - count))
                    if not by_hand:
                        done += count
                        break
                    count += by_hand
                done += count
                if done >= records:
                    break
                now = perf_counter()
                if not stop:
                    stop = now + seconds
                elif now > stop:
                    break
            if index is not None and done:
                index.write_header()
        except Exception as error:  # noqa: BLE001 - a silent stop would block all consumers
            at_index = not pending or pending[0][0].max_offset > pending[0][1]
            if self._leaves_out(error, at_index):
                self._recovered()
                return bool(pending)
            self._fail(error, RunningFlag.INDEX_ERROR if at_index else RunningFlag.QUEUE_ERROR)
            return False
        self._recovered()
        if not pending:
            return False
        first = pending[0]
        return self.limit is None or first[2] + first[3] <= self.limit

    def _recovered(self) -> None:
        if self._failed:
            self._failed = False
            self._on_recovered()

    def _leaves_out(self, error: Exception, at_index: bool) -> bool:
        """Skip the first record after too many failures because of itself; return whether it is skipped.

        The record stays in the log. A disk error is temporary, so it is no reason to skip a record.
        """
        pending: deque[_Pending] = self.pending  # type: ignore[assignment]
        if not pending or _passes(error):
            return False
        if type(self.pending[0][4]) is bytes:
            self._part()
        queue, queue_offset, physical, size, _, stored, *_ = pending[0]
        self._failures = self._failures + 1 if physical == self._failing_at else 1
        self._failing_at = physical
        if self._failures < MAX_TRIES:
            return False
        logger.error(
            "the record at %d of the commit log (%s/%d, offset %d) gets no %s because of itself: %s; it stays in the "
            "log, and the records behind it are dispatched",
            physical, queue.topic, queue.queue_id, queue_offset, "index entry" if at_index else "unit in its queue",
            error, exc_info=error,
        )  # fmt: skip
        self.left_out += 1
        pending.popleft()
        self.position, self.logics_timestamp = physical + size, stored
        return True

    def _by_hand(self, most: int) -> int:
        """Dispatch a few records of any kind, at least one; return their number.

        A new queue needs a file, which may have to wait for the disk. Then other tasks run before the next record.

        Raises:
            OSError: queue or index cannot be written; the record is still pending.
        """
        pending: deque[_Pending] = self.pending  # type: ignore[assignment]
        limit, index = self.limit, self.index
        stop = perf_counter() + SLICE_SECONDS
        count = min(most, len(pending))
        for done in range(count):
            if type(self.pending[0][4]) is bytes and (limit is None or self.pending[0][2] < limit):
                self._part()
            queue, queue_offset, physical, size, tags, stored, kind, uniq_key, keys = pending[0]
            if limit is not None and physical + size > limit:
                return done
            new = False
            if kind != PREPARED and kind != ROLLBACK:
                new = queue_offset == 0
                queue.put(queue_offset, physical, size, tags, stored)
                if not queue.dirty:
                    queue.dirty = True
                    self.dirty.append(queue)
            if index is not None and kind != ROLLBACK and (uniq_key or keys):
                index.put(queue.topic, uniq_key, keys, physical, stored)
            pending.popleft()
            if queue.arrived is not None:
                queue.arrived.advance(queue.max_offset)
            self.position, self.logics_timestamp = physical + size, stored
            if new and perf_counter() > stop:
                return done + 1
        return count

    def take_apart(self) -> None:
        """Split all pending batches into single records."""
        if any(type(one[4]) is bytes for one in self.pending):
            whole = [self.pending.popleft() for _ in range(len(self.pending))]
            for one in reversed(whole):
                self.pending.appendleft(one)
                if type(one[4]) is bytes:
                    self._part()

    def _part(self) -> None:
        """Split the next batch into single records."""
        queue, offset, _, _, units, stored, kind, texts, _ = self.pending.popleft()
        assert isinstance(units, bytes)
        assert isinstance(texts, bytes)
        keys = iter(texts.decode().split("\x02"))
        parts: list[Pending] = [
            (queue, offset + number, place, size, tags, stored, kind, next(keys), next(keys))
            for number, (place, size, tags) in enumerate(UNIT.iter_unpack(units))
        ]
        self.pending.extendleft(reversed(parts))

    def _fail(self, error: Exception, flag: RunningFlag) -> None:
        self._on_failure(error, flag)
        self._failed = True
        if self._loop is not None:
            self._timer = self._loop.call_later(_RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._timer = None
        if self.run(SLICE_RECORDS, SLICE_SECONDS):
            self.kick()

    def stop(self) -> None:
        """Dispatch all records up to the limit, and leave the event loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop = None
        self.drain()
