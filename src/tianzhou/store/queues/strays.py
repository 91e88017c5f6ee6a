"""Units of a queue that lead elsewhere than to their record, rebuilt from the log (store.md §5.8).

A bit that flips on the disk after a clean stop leaves a unit that points into the middle of nowhere, and a message that
nobody would be given. Whoever reads a queue notices; the records that belong to the units lie in the log between those
of their neighbours, where they are looked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from tianzhou._hot.records import UNIT
from tianzhou.records.layout import MAGIC_BLANK, MAGIC_START, MAGICS, PREPARED, ROLLBACK, TRANSACTION_BITS, fields_at
from tianzhou.records.walk import Finding, read_item
from tianzhou.store.coldreads import ColdReads
from tianzhou.store.files.lookup_steps import Steps, at_once
from tianzhou.store.log import holes
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.multi_dispatch import is_light
from tianzhou.store.queues.tags_code import queue_tags_code

logger = logging.getLogger(__name__)

_HEAD: Final = fields_at("size", "magic", "queue_id", "queue_offset", "physical_offset")
_WINDOW: Final = 4096
_FEW_BYTES: Final = 4 << 20
_NEIGHBOURS: Final = 1000


class StrayUnit(Exception):
    """A unit leads elsewhere.

    Attributes:
        queue_offset: which one.
    """

    def __init__(self, queue_offset: int) -> None:
        self.queue_offset = queue_offset
        super().__init__(queue_offset)


def refuse_strays(log: CommitLog, queue: ConsumeQueue, units: memoryview, count: int, queue_offset: int) -> None:
    """Look at the first units up to one that leads to a record.

    Args:
        log: the commit log.
        queue: the queue.
        units: of the queue.
        count: how many of them.
        queue_offset: of the first.

    Raises:
        StrayUnit: one does not, and nobody knows of it yet.
    """
    if is_light(queue.topic):
        return  # its records are those of other queues
    for number, (physical, size, tags) in enumerate(UNIT.iter_unpack(units[: 20 * count])):
        if holes.is_hole(physical, size, tags) or 0 <= physical < log.min_offset:
            continue
        if _place(log, physical, size) is None and not _known(log, physical):
            raise StrayUnit(queue_offset + number)
        return


def _known(log: CommitLog, physical: int) -> bool:
    return any(start <= physical < end for start, end in log.damaged)


def _place(log: CommitLog, physical: int, size: int) -> tuple[int, int] | None:
    """Queue and queue offset of the record of a size at a log offset; None when there is none."""
    segment = log.files.find(physical)
    if segment is None or size < _HEAD.size or physical + size > min(log.end, segment.end):
        return None
    stated, magic, queue_id, queue_offset, place = _HEAD.unpack_from(segment.view, physical - segment.start)
    return (queue_id, queue_offset) if (stated, place) == (size, physical) and magic in MAGICS else None


class StrayUnits:
    """Rebuilds units that lead elsewhere.

    Args:
        log: the commit log.
        cold: fetches what of it has left the memory.
        delays: of the delay levels, ms.
        changed: called with a queue with units that the disk does not have yet.
    """

    def __init__(
        self,
        log: CommitLog,
        cold: ColdReads,
        delays: tuple[int, ...],
        changed: Callable[[ConsumeQueue], None],
    ) -> None:
        self._log = log
        self._cold = cold
        self._delays = delays
        self._changed = changed
        self._reported: set[tuple[str, int]] = set()
        self._at_work: dict[ConsumeQueue, asyncio.Task[None]] = {}

    async def mend(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Rebuild a stray unit and those beside it; the loop goes on meanwhile.

        Returns:
            Whether the queue could be written.

        Raises:
            StoreError: the store was closed meanwhile, or its disk cannot be read.
        """
        task = self._at_work.get(queue)
        if task is None:
            work = self._cold.follow(self._mend_steps(queue, queue_offset))
            task = self._at_work[queue] = asyncio.get_running_loop().create_task(work, name="store-strays")
            task.add_done_callback(lambda _: self._at_work.pop(queue, None))
        # One reader who goes must not end it for the others.
        try:
            await asyncio.shield(task)
        except OSError as error:
            _report(queue, error)
            return False
        return True

    def mend_now(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """As `mend`, if it does not take long; whether it was done."""
        try:
            begin, end = self._span(queue, *self._stretch(queue, queue_offset))
            if end - begin > _FEW_BYTES:
                return False
            at_once(self._mend_steps(queue, queue_offset))
        except OSError as error:
            _report(queue, error)
            return False
        return True

    def close(self) -> None:
        """Give up what is being rebuilt; the next reader notices again."""
        for task in self._at_work.values():
            task.cancel()

    def _belongs(self, queue: ConsumeQueue, number: int) -> bool:
        unit = queue.unit(number)
        return unit is not None and _place(self._log, unit[0], unit[1]) == (queue.queue_id, number)

    def _is_hole(self, queue: ConsumeQueue, number: int) -> bool:
        unit = queue.unit(number)
        return unit is None or holes.is_hole(*unit)

    def _stretch(self, queue: ConsumeQueue, queue_offset: int) -> tuple[int, int]:
        """The stray units around one: the first, and the one behind the last."""
        first, last = queue_offset, queue_offset + 1
        while first > queue.min_offset and not (self._belongs(queue, first - 1) or self._is_hole(queue, first - 1)):
            first -= 1
        while last < queue.max_offset and not (self._belongs(queue, last) or self._is_hole(queue, last)):
            last += 1
        return first, last

    def _span(self, queue: ConsumeQueue, first: int, last: int) -> tuple[int, int]:
        """Where in the log their records are: behind that of the unit before, before that of the unit behind."""
        begin, end = max(self._log.min_offset, 0), self._log.end
        for number in range(first - 1, max(queue.min_offset, first - _NEIGHBOURS) - 1, -1):
            if self._belongs(queue, number) and (unit := queue.unit(number)) is not None:
                begin = unit[0] + unit[1]
                break
        for number in range(last, min(queue.max_offset, last + _NEIGHBOURS)):
            if self._belongs(queue, number) and (unit := queue.unit(number)) is not None:
                end = unit[0]
                break
        return begin, end

    def _mend_steps(self, queue: ConsumeQueue, queue_offset: int) -> Steps[None]:
        first, last = self._stretch(queue, queue_offset)
        begin, end = self._span(queue, first, last)
        before = queue.unit(queue_offset)
        if before is None:
            return
        name = (queue.topic, queue.queue_id)
        level = logging.DEBUG if name in self._reported else logging.ERROR
        self._reported.add(name)
        logger.log(
            level,
            "queue %s/%d: unit %d leads to %d bytes at %d of the commit log, where no such record is; units %d to %d "
            "are made anew from the log",
            queue.topic, queue.queue_id, queue_offset, before[1], before[0], first, last - 1,
        )  # fmt: skip
        found = yield from self._find_steps(queue, first, last, begin, end)
        if queue.unit(queue_offset) != before:
            return  # deleted and restarted, or mended meanwhile
        queue.rewrite(first, self._units(queue, first, last, found))
        self._changed(queue)
        lost = last - first - len(found)
        logger.log(
            logging.ERROR if lost else level,
            "queue %s/%d: %d units made anew, %d of offsets %d to %d have no record in the log any more",
            queue.topic, queue.queue_id, len(found), lost, first, last - 1,
        )  # fmt: skip

    def _units(self, queue: ConsumeQueue, first: int, last: int, found: dict[int, tuple[int, int, int]]) -> list[bytes]:
        behind = queue.unit(last) if last < queue.max_offset else None
        units = []
        for number in range(last - 1, first - 1, -1):
            unit = found.get(number)
            if unit is not None:
                behind = unit
                units.append(UNIT.pack(*unit))
            elif behind is not None and not holes.is_hole(*behind):
                units.append(holes.before(behind[0], behind[1], queue.log_file_size))
            else:
                units.append(holes.BLANK)
        units.reverse()
        return units

    def _find_steps(
        self, queue: ConsumeQueue, first: int, last: int, begin: int, end: int
    ) -> Steps[dict[int, tuple[int, int, int]]]:
        """Units for the records of a queue between two places of the log."""
        found: dict[int, tuple[int, int, int]] = {}
        position = begin
        while position < end and len(found) < last - first:
            segment = self._log.files.find(position)
            if segment is None:
                break
            at = position - segment.start
            stop = min(at + _WINDOW, segment.size, end - segment.start)
            yield segment, at, min(stop + _HEAD.size, segment.size)
            view = segment.view
            while at < stop:
                if segment.size - at < _HEAD.size:
                    at = segment.size
                    break
                size, magic, queue_id, queue_offset, place = _HEAD.unpack_from(view, at)
                if magic == MAGIC_BLANK:
                    at = segment.size
                    break
                if magic not in MAGICS or place != segment.start + at or not _HEAD.size <= size <= segment.size - at:
                    next_magic = segment.find(MAGIC_START, at + 5)
                    at = next_magic - 4 if next_magic >= 0 else segment.size
                    break
                if queue_id == queue.queue_id and first <= queue_offset < last:
                    item = read_item(view, at, segment.start)
                    entry = item.entry
                    if item.finding is Finding.RECORD and entry is not None and entry.topic == queue.topic:
                        kind = entry.sys_flag & TRANSACTION_BITS
                        if kind not in {PREPARED, ROLLBACK}:
                            tags = queue_tags_code(entry.topic, entry.properties, entry.store_timestamp, self._delays)
                            found[queue_offset] = (place, size, tags)
                at += size
            position = segment.start + at
        return found


def _report(queue: ConsumeQueue, error: OSError) -> None:
    logger.error("queue %s/%d cannot be made anew: %s", queue.topic, queue.queue_id, error)
