"""Reads of records that are not in memory, without blocking the event loop for the disk (store.md §14.1).

A record that is not in the page cache is read by a page fault of the thread that touches it, and the whole loop stands
still meanwhile. So a read first queries which of its pages are in memory. A few threads fetch the missing pages, and
the read continues once they are in memory. The threads only fetch: a thread that touches a missing page itself would
block the interpreter like the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeVar

from tianzhou._hot.records import EXTENSION_ADDRESS, UNIT
from tianzhou.errors import StoreError, StoreUnreadable
from tianzhou.store.files.lookup_steps import TURN, Range, Steps, follow
from tianzhou.store.files.pages import HeldMap
from tianzhou.store.files.segments import Segment
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.holes import is_hole
from tianzhou.store.queues.batchqueue import BATCH_UNIT_SIZE, BatchQueue, unit_at
from tianzhou.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from tianzhou.store.queues.extension import ExtendedQueue
from tianzhou.store.queues.read_limits import ReadLimits
from tianzhou.store.results import ReadRequest

T = TypeVar("T")

HOT_BYTES: Final = 64 << 20
"""Bytes at the end of the log that count as in memory without a query."""
_PASSED_BYTES: Final = 4 << 20
"""Bytes of records to fetch before a filter reads them."""
_THREADS: Final = 4
ROUNDS: Final = 3
_AHEAD: Final = 512 << 10
_GAP: Final = 64 << 10
_BLOCK: Final = 2 << 20
_NEAR: Final = 8 << 20
_FURTHER: Final = 8
"""Number of consecutive reads to check at once, because a queue's reader mostly continues."""
RESIDENT_S: Final = 0.05
"""Seconds for which pages found in memory count as in memory. A query costs more than copying the records."""

Missing = list[Range]
"""Byte ranges of segments that must be fetched from the disk."""


class ColdReads:
    """Finds the parts of a read that are not in memory, and fetches them on threads.

    Args:
        log: the commit log.
        find: returns a queue by topic and number; None when there is none.
    """

    def __init__(self, log: CommitLog, find: Callable[[str, int], ConsumeQueue | None]) -> None:
        self._log = log
        self._find = find
        self._threads = ThreadPoolExecutor(_THREADS, "tianzhou-cold")
        self._closed = False
        self._resting = asyncio.Lock()
        self._resident: dict[tuple[Segment, int], bool] = {}
        self._stretches: dict[ConsumeQueue, tuple[int, int]] = {}
        self._resident_until = 0.0
        self.opened_at = 0

    def missing(self, queue: ConsumeQueue, request: ReadRequest, limits: ReadLimits) -> Missing:
        """Return the ranges that a read must fetch; empty when all of them are in memory.

        Args:
            queue: the queue of the request.
            request: the read request.
            limits: limits of one read.
        """
        offset, codes = request.offset, request.tag_codes
        if not queue.min_offset <= offset < queue.max_offset:
            return []
        units = max(limits.units, request.max_messages)
        wanted = request.max_messages if codes is None and request.accept is None else units
        begin, end = self._stretches.get(queue, (0, 0))
        if begin <= offset and min(offset + wanted, queue.max_offset) <= end and monotonic() < self._resident_until:
            return []
        if request.accept is not None:
            # The filter reads the records that it rejects, too.
            messages, size = units, _PASSED_BYTES
        else:
            most = limits.of(request.max_messages, request.max_bytes)
            messages, size = most.count_in_memory, most.bytes_in_memory
        if isinstance(queue, BatchQueue):
            return self._missing_batched(queue, offset, min(units, messages), messages, size)
        position = offset * UNIT_SIZE
        segment = queue.files.find(position)
        if segment is None:
            return []
        start = position - segment.start
        end = min(segment.size, start + units * UNIT_SIZE, queue.max_offset * UNIT_SIZE - segment.start)
        if not self._is_there(segment, start, end, queue.max_offset * UNIT_SIZE - segment.start):
            return [(segment, start, end)]
        view = segment.view
        upto = min(end, start + messages * UNIT_SIZE) if codes is None else end
        for stop in (min(end, start + _FURTHER * (upto - start)), upto):
            if self._is_run_there(segment, start, stop):
                self._stretches[queue] = (offset, offset + (stop - start) // UNIT_SIZE)
                return []
        view = view[start:end]
        if codes is not None and isinstance(queue, ExtendedQueue):
            missing = [one for one in queue.extensions(view) if not one[0].resident(one[1], one[2])]
            if missing:
                return missing
            view = queue.resolved(view)
        return self._missing_records(view, messages, size, codes)

    def stretch(self, queue: ConsumeQueue) -> tuple[int, int, float]:
        """Return the part of a queue that `missing` has found in memory.

        Returns:
            Its first queue offset, the queue offset after its last, and the monotonic time (seconds) until which it
            counts as in memory.
        """
        begin, end = self._stretches.get(queue, (0, 0))
        return begin, end, self._resident_until

    def _missing_batched(self, queue: BatchQueue, offset: int, units: int, messages: int, size: int) -> Missing:
        steps = queue.find_steps(offset)
        while True:
            try:
                segment, start, end = next(steps)
            except StopIteration as found:
                number = found.value
                break
            if not segment.resident(start, end):
                return [(segment, start, end)]
        for segment, start, stop in queue.spans(number):
            end = min(stop, start + units * BATCH_UNIT_SIZE)
            if not segment.resident(start, end):
                return [(segment, start, end)]
            if self._is_hot(unit_at(segment.view, start).physical_offset):
                return []
            # Inner batches are read whatever their tags code: only their messages have tags.
            wanted = [unit_at(segment.view, at)[:3] for at in range(start, end, BATCH_UNIT_SIZE)]
            packed = b"".join(UNIT.pack(*unit) for unit in wanted)
            return self._missing_records(memoryview(packed), messages, size, None)
        return []

    def _is_hot(self, physical: int) -> bool:
        return physical >= self.opened_at and physical >= self._log.end - HOT_BYTES

    def _is_run_there(self, segment: Segment, start: int, end: int) -> bool:
        """Whether the records of a segment's units in [start, end) are in memory; false where that is uncertain."""
        view = segment.view
        first = UNIT.unpack_from(view, start)[0]
        if self._is_hot(first):
            return True
        last, length, _ = UNIT.unpack_from(view, end - UNIT_SIZE)
        return self._is_stretch_there(first, last + length)

    def _is_stretch_there(self, begin: int, end: int) -> bool:
        """Whether a short stretch of the log is in memory. A queue's units point to log offsets in ascending order."""
        if not 0 < end - begin <= _NEAR:
            return False
        segment = self._log.files.find(begin)
        if segment is None or end > segment.end:
            return False
        base = segment.start
        return self._is_there(segment, begin - base, end - base, self._log.end - base)

    def _is_there(self, segment: Segment, start: int, end: int, written: int) -> bool:
        """Whether [start, end) of a segment, which is written up to `written`, is in memory.

        The query covers whole blocks, and its results are cached for `RESIDENT_S`.
        """
        now = monotonic()
        known = self._resident
        if now >= self._resident_until:
            known.clear()
            self._stretches.clear()
            self._resident_until = now + RESIDENT_S
        for number in range(start // _BLOCK, (end - 1) // _BLOCK + 1):
            there = known.get((segment, number))
            if there is None:
                there = segment.resident(number * _BLOCK, min((number + 1) * _BLOCK, max(written, end)))
                known[segment, number] = there
            if not there:
                return segment.resident(start, end)
        return True

    def _missing_records(self, view: memoryview, messages: int, size: int, codes: frozenset[int] | None) -> Missing:
        spans: list[tuple[int, int]] = []
        for physical, length, tags in UNIT.iter_unpack(view):
            if codes is not None and tags not in codes and tags > EXTENSION_ADDRESS:
                continue
            if is_hole(physical, length, tags):
                continue
            if spans and 0 <= physical - spans[-1][1] <= _GAP:
                spans[-1] = (spans[-1][0], physical + length)
            else:
                spans.append((physical, physical + length))
            messages -= 1
            size -= length
            if messages <= 0 or size <= 0:
                break
        found: Missing = []
        for begin, end in spans:
            segment = self._log.files.find(begin)
            if segment is not None and not segment.resident(begin - segment.start, end - segment.start):
                found.append((segment, begin - segment.start, end - segment.start))
        return found

    async def fetch(self, missing: Missing, *, ahead: bool = False) -> None:
        """Wait until the ranges are in memory. Their segments stay mapped until then.

        Args:
            missing: the ranges to fetch.
            ahead: whether the reader continues, so that the following bytes of the log may be fetched, too.

        Raises:
            StoreUnreadable: the disk cannot read them.
            StoreError: the store was closed meanwhile.
        """
        self._check_open()
        work = []
        for segment, start, end in missing:
            goes_on = ahead and self._log.files.find(segment.start) is segment
            upto = min(end + _AHEAD, self._log.end - segment.start) if goes_on else end
            self._came_back(segment, start, upto)
            with suppress(FileNotFoundError):  # the segment expired after the query
                work.append((segment.hold(), start, end, upto))
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, _fetch, work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                self._check_open()
            raise
        self._check_open()

    def _came_back(self, segment: Segment, start: int, end: int) -> None:
        """Distrust the records of a range, because bytes fetched from the disk may differ from those written."""
        if self._log.files.find(segment.start) is segment:
            self._log.checked.fetched(segment.start + start, segment.start + end, self._log.end, HOT_BYTES)
        elif segment.path.parent.name.isdigit():
            queue = self._find(segment.path.parent.parent.name, int(segment.path.parent.name))
            if queue is not None:
                queue.trusted_from = queue.max_offset

    async def aside(self, work: Callable[[], None]) -> None:
        """Run blocking disk work on one of the threads.

        Raises:
            StoreError: the store was closed meanwhile.
        """
        self._check_open()
        await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def follow(self, steps: Steps[T], rest: Callable[[], Awaitable[None]] | None = None) -> T:
        """Run a look-up and return its result. Fetch missing pages on the threads.

        Args:
            steps: the look-up.
            rest: called now and then during a long look-up; by default, all long look-ups together run a few steps per
                loop turn.

        Raises:
            StoreUnreadable: as `fetch`.
            StoreError: as `fetch`.
        """
        self._check_open()
        result = await follow(steps, self._fetch_one, rest or self._rest)
        self._check_open()
        return result

    def take(self, steps: Steps[T]) -> T | Coroutine[Any, Any, T]:
        """Return the result of a look-up that is short and in memory; otherwise return a coroutine for it.

        The look-up runs up to `TURN` steps without yielding to the loop. Longer look-ups yield, because the chain of
        one key may have millions of entries.

        Raises:
            StoreError: the store is closed.
        """
        self._check_open()
        for _ in range(TURN):
            try:
                one = next(steps)
            except StopIteration as found:
                result: T = found.value
                return result
            if not one[0].resident(one[1], one[2]):
                return self._go_on(one, steps)
        return self._go_on(one, steps)

    async def _go_on(self, one: Range, steps: Steps[T]) -> T:
        if one[0].resident(one[1], one[2]):
            await self._rest()
        else:
            await self.fetch([one])
        return await self.follow(steps)

    async def _rest(self) -> None:
        """Yield to the loop. Of all waiting look-ups one continues per turn."""
        async with self._resting:
            await asyncio.sleep(0)

    async def _fetch_one(self, one: Range) -> None:
        await self.fetch([one])

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store was closed while it was being read; read again when it is open")

    def close(self) -> None:
        """Stop the threads after their present work. Queued work is cancelled, and its waiters get an error."""
        self._closed = True
        self._resident.clear()
        self._stretches.clear()
        self._threads.shutdown(cancel_futures=True)


def _fetch(work: list[tuple[HeldMap, int, int, int]]) -> None:
    for held, start, end, upto in work:
        with held:
            try:
                held.fetch(start, end)
            except OSError as error:
                raise StoreUnreadable(
                    f"{held.path}, bytes {start} to {end}, cannot be read: {error.strerror}; look at the disk"
                ) from error
            with suppress(OSError):  # a read of these further bytes will raise the error itself
                held.fetch(end, upto)
