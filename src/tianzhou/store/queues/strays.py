"""The repair of queue units that do not point to their record, from the log (store.md §5.8).

A bit that flips on the disk leaves a unit with a wrong log offset, and a message that no consumer would get. A reader
of the queue detects the unit. The record is at the unit's log offset with one bit changed, or in the log between the
records of the neighbouring units, where this module searches for it. Or the unit is right, and the record is damaged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Final

from tianzhou._hot.records import UNIT
from tianzhou.records.layout import MAGIC_BLANK, MAGIC_START, MAGICS
from tianzhou.records.walk import Finding, LogEntry, read_item
from tianzhou.store.coldreads import ColdReads
from tianzhou.store.files.lookup_steps import Steps, at_once
from tianzhou.store.log import holes
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.batchqueue import BATCH_UNIT, NOT_COMPACTED, BatchQueue, unit_of
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.judging import HEAD, is_known, is_like, offset_of, whole_record
from tianzhou.store.queues.multi_dispatch import is_light
from tianzhou.store.queues.tags_code import queue_tags_code
from tianzhou.supervision import start_owned

logger = logging.getLogger(__name__)

_WINDOW: Final = 4096
_FEW_BYTES: Final = 4 << 20
_NEIGHBOURS: Final = 1000
_BITS: Final = 63
_MOST_PASSED: Final = 10_000

Found = dict[int, LogEntry]
"""Records by the numbers of their units."""


class StrayUnit(Exception):
    """The error of a unit that does not point to its record.

    Attributes:
        number: number of the unit; in queues other than BatchCQ ones, its queue offset.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


class StrayUnits:
    """Rebuilds units that do not point to their record.

    Args:
        log: the commit log.
        cold: fetches pages of the log that have left the memory.
        delays: delays of the delay levels, ms.
        find: returns a queue by topic and number; None without one.
        changed: called with a queue whose units must be flushed.
        broken: called with start and end of a broken record, and the reason.
    """

    def __init__(
        self,
        log: CommitLog,
        cold: ColdReads,
        delays: tuple[int, ...],
        find: Callable[[str, int], ConsumeQueue | None],
        changed: Callable[[ConsumeQueue], None],
        broken: Callable[[int, int, str], None],
    ) -> None:
        self._log = log
        self._cold = cold
        self._delays = delays
        self._find_queue = find
        self._changed = changed
        self._broken = broken
        self._reported: set[tuple[str, int]] = set()
        self._passed: dict[tuple[str, int, int], tuple[int, int, int]] = {}
        self._at_work: dict[ConsumeQueue, asyncio.Task[None]] = {}

    async def mend(self, queue: ConsumeQueue, number: int) -> bool:
        """Rebuild a stray unit with its stray neighbours; the event loop runs meanwhile.

        Returns:
            Whether the queue could be written.

        Raises:
            StoreError: the store was closed meanwhile, or its disk cannot be read.
        """
        task = self._at_work.get(queue)
        if task is None:
            work = self._cold.follow(self._mend_steps(queue, number))
            task = self._at_work[queue] = start_owned(work, "store", name="store-strays")
            task.add_done_callback(lambda _: self._at_work.pop(queue, None))
        # A reader that disconnects must not cancel the repair for the others.
        try:
            await asyncio.shield(task)
        except OSError as error:
            _report(queue, error)
            return False
        return True

    def mend_now(self, queue: ConsumeQueue, number: int) -> bool:
        """Rebuild as `mend`, if that is fast; return whether it was done."""
        try:
            begin, end = self._span(queue, *self._stretch(queue, number))
            if end - begin > _FEW_BYTES:
                return False
            at_once(self._mend_steps(queue, number))
        except OSError as error:
            _report(queue, error)
            return False
        return True

    def is_passed(self, queue: ConsumeQueue, number: int) -> bool:
        """Whether a unit is known to be beyond repair."""
        return bool(self._passed) and self._passed.get((queue.topic, queue.queue_id, number)) == _unit(queue, number)

    def place(self, queue: ConsumeQueue, number: int) -> int | None:
        """Return the log offset in a unit; None when there is no such unit."""
        unit = _unit(queue, number)
        return None if unit is None else unit[0]

    def put_back(self, entries: list[LogEntry]) -> None:
        """Write units for repaired records, where their queues have placeholders."""
        for entry in entries:
            queue = self._find_queue(entry.topic, entry.queue_id)
            number = None if queue is None or queue.batched else offset_of(entry, queue)
            if queue is None or number is None:
                continue
            unit = queue.unit(number)
            if unit is not None and holes.is_hole(*unit):
                queue.rewrite(number, [self._made(queue, entry)])
                self._changed(queue)

    def close(self) -> None:
        """Cancel the repairs; the next reader detects the units again."""
        for task in self._at_work.values():
            task.cancel()

    # records of units

    def _belongs(self, queue: ConsumeQueue, number: int) -> bool:
        """Whether a unit points to its record, and the record is whole."""
        unit = _unit(queue, number)
        entry = None if unit is None else whole_record(self._log, unit[0], unit[1])
        return entry is not None and self._fits(queue, number, entry, exactly=True)

    def _fits(self, queue: ConsumeQueue, number: int, entry: LogEntry, *, exactly: bool = False) -> bool:
        """Whether a record can be that of a unit; `exactly`, whether the unit equals the record's."""
        offset = offset_of(entry, queue)
        if not isinstance(queue, BatchQueue) or offset is None:
            return offset == number
        unit = unit_of(entry)
        if exactly:
            return queue.entry(number) == unit
        first, end = queue.numbers()
        before = queue.entry(number - 1) if number > first else None
        behind = queue.entry(number + 1) if number + 1 < end else None
        return (before is None or before.end <= unit.base) and (behind is None or unit.end <= behind.base)

    def _is_hole(self, queue: ConsumeQueue, number: int) -> bool:
        unit = _unit(queue, number)
        return unit is None or (not queue.batched and holes.is_hole(*unit))

    def _bounds(self, queue: ConsumeQueue) -> tuple[int, int]:
        """Return the numbers of the first unit, and of the one after the last."""
        return queue.numbers() if isinstance(queue, BatchQueue) else (queue.min_offset, queue.max_offset)

    def _stretch(self, queue: ConsumeQueue, number: int) -> tuple[int, int]:
        """Return the range of stray units around one, of limited length: the first, and the one after the last."""
        low, high = self._bounds(queue)
        low, high = max(low, number - _NEIGHBOURS), min(high, number + _NEIGHBOURS)
        first, last = number, number + 1
        while first > low and not (self._belongs(queue, first - 1) or self._is_hole(queue, first - 1)):
            first -= 1
        while last < high and not (self._belongs(queue, last) or self._is_hole(queue, last)):
            last += 1
        return first, last

    def _span(self, queue: ConsumeQueue, first: int, last: int) -> tuple[int, int]:
        """Return the log range of their records, between the records of the neighbouring sound units."""
        low, high = self._bounds(queue)
        begin, end = max(self._log.min_offset, 0), self._log.end
        for number in _ever_farther(first - 1, -1, low, high):
            if self._belongs(queue, number) and (unit := _unit(queue, number)) is not None:
                begin = unit[0] + unit[1]
                break
        for number in _ever_farther(last, 1, low, high):
            if self._belongs(queue, number) and (unit := _unit(queue, number)) is not None:
                end = unit[0]
                break
        return begin, end

    # repair

    def _mend_steps(self, queue: ConsumeQueue, number: int) -> Steps[None]:
        first, last = self._stretch(queue, number)
        begin, end = self._span(queue, first, last)
        before = _unit(queue, number)
        if before is None:
            return
        found: Found = {}
        broken: list[int] = []
        for one in range(first, last):
            yield from self._try_steps(queue, one, begin, end, found, broken)
        name = (queue.topic, queue.queue_id)
        level = logging.DEBUG if name in self._reported else logging.ERROR
        if len(broken) < last - first:
            self._reported.add(name)
            logger.log(
                level,
                "queue %s/%d: unit %d leads to %d bytes at %d of the commit log, where no such record is; units %d to "
                "%d are rebuilt from the log",
                queue.topic, queue.queue_id, number, before[1], before[0], first, last - 1,
            )  # fmt: skip
        if len(found) + len(broken) < last - first:
            missing = [one for one in range(first, last) if one not in found and one not in broken]
            yield from self._search_steps(queue, missing, begin, end, found)
        if _unit(queue, number) != before:
            return  # The queue was deleted and restarted, or the unit was repaired meanwhile.
        for one in range(first, last):
            if one not in found and one not in broken and self._is_in_place(queue, one, begin, end):
                broken.append(one)
        self._name_broken(queue, broken)
        self._write(queue, first, last, found, broken)
        lost = last - first - len(found)
        if lost or level != logging.DEBUG:
            logger.log(
                logging.ERROR if lost else level,
                "queue %s/%d: %d units rebuilt, %d of offsets %d to %d have no record in the log any more",
                queue.topic, queue.queue_id, len(found), lost, first, last - 1,
            )  # fmt: skip

    def _try_steps(
        self, queue: ConsumeQueue, number: int, begin: int, end: int, found: Found, broken: list[int]
    ) -> Steps[None]:
        """Check a unit by the bytes at its log offset, and at the log offsets that differ in one bit."""
        unit = _unit(queue, number)
        if unit is None:
            return
        physical, size, _ = unit
        if is_known(self._log.damaged, physical):
            broken.append(number)
            return
        for bit in range(-1, _BITS):
            place = physical if bit < 0 else physical ^ 1 << bit
            if not begin <= place < end:
                continue
            segment = self._log.files.find(place)
            if segment is None:
                continue
            at = place - segment.start
            yield segment, at, min(at + HEAD.size, segment.size)
            if segment.size - at < HEAD.size:
                continue
            stated, magic, _, _, stated_place = HEAD.unpack_from(segment.view, at)
            if magic in MAGICS and stated_place == place and HEAD.size <= stated <= segment.size - at:
                yield segment, at, at + stated
                entry = whole_record(self._log, place)
                if entry is not None and self._fits(queue, number, entry):
                    found[number] = entry
                    return
                if entry is not None:
                    continue  # the record of another unit
            if bit < 0 and is_like(self._log, queue, number, physical, size):
                broken.append(number)
                return

    def _is_in_place(self, queue: ConsumeQueue, number: int, begin: int, end: int) -> bool:
        """Whether a unit without a found record points to a plausible place of its record."""
        unit = _unit(queue, number)
        if unit is None or unit[1] < HEAD.size or not begin <= unit[0] <= unit[0] + unit[1] <= end:
            return False
        for beside in (number - 1, number + 1):
            other = _unit(queue, beside)
            if other is not None and not self._is_hole(queue, beside) and (other[0] < unit[0]) != (beside < number):
                return False
        segment = self._log.files.find(unit[0])
        if segment is None or unit[0] + unit[1] > segment.end:
            return False
        there = whole_record(self._log, unit[0])
        if there is None:
            return True
        # A whole record is there. It belongs to another unit when that unit points to it too.
        other_queue = self._find_queue(there.topic, there.queue_id)
        own = None if other_queue is None else other_queue.unit(there.queue_offset)
        return there.size == unit[1] and (own is None or own[0] != unit[0] or (other_queue, own) == (queue, unit))

    def _name_broken(self, queue: ConsumeQueue, broken: list[int]) -> None:
        for number in broken:
            unit = _unit(queue, number)
            if unit is None or is_known(self._log.damaged, unit[0]):
                continue
            segment = self._log.files.find(unit[0])
            assert segment is not None
            item = read_item(segment.view, unit[0] - segment.start, segment.start)
            reason = item.reason or "it says that it is another one"
            offset = queue.entry(number).base if isinstance(queue, BatchQueue) else number
            self._broken(unit[0], unit[0] + unit[1], f"offset {offset} of {queue.topic}/{queue.queue_id}, {reason}")

    def _write(self, queue: ConsumeQueue, first: int, last: int, found: Found, broken: list[int]) -> None:
        """Overwrite stray units; a unit with a broken record does not change."""
        behind = None if queue.batched or last >= queue.max_offset else queue.unit(last)
        for number in range(last - 1, first - 1, -1):
            entry = found.get(number)
            if entry is not None:
                made = self._made(queue, entry)
                queue.rewrite(number, [made])
                behind = (entry.offset, entry.size, 0)
            elif number in broken or queue.batched or self._has_expired(queue, number):
                self._pass(queue, number)
            elif behind is not None and not holes.is_hole(*behind):
                queue.rewrite(number, [holes.before(behind[0], behind[1], queue.log_file_size)])
            else:
                queue.rewrite(number, [holes.BLANK])
        self._changed(queue)

    def _has_expired(self, queue: ConsumeQueue, number: int) -> bool:
        unit = _unit(queue, number)
        return unit is not None and 0 <= unit[0] < self._log.min_offset

    def _pass(self, queue: ConsumeQueue, number: int) -> None:
        """Remember that a unit cannot be repaired in its present form."""
        unit = _unit(queue, number)
        if unit is not None and not is_known(self._log.damaged, unit[0]):
            if len(self._passed) >= _MOST_PASSED:
                self._passed.clear()
            self._passed[queue.topic, queue.queue_id, number] = unit

    def _made(self, queue: ConsumeQueue, entry: LogEntry) -> bytes:
        """Return the unit of a record."""
        if isinstance(queue, BatchQueue):
            return BATCH_UNIT.pack(*unit_of(entry), NOT_COMPACTED)
        tags = queue_tags_code(entry.topic, entry.properties, entry.store_timestamp, self._delays)
        return UNIT.pack(entry.offset, entry.size, tags)

    def _search_steps(self, queue: ConsumeQueue, missing: list[int], begin: int, end: int, found: Found) -> Steps[None]:
        """Search records of a queue between two log offsets."""
        wanted = set(missing)
        in_order: list[LogEntry] = []
        low, high = missing[0], missing[-1] + 1
        any_record = queue.batched or is_light(queue.topic)
        position = begin
        while position < end and wanted:
            segment = self._log.files.find(position)
            if segment is None:
                break
            at = position - segment.start
            stop = min(at + _WINDOW, segment.size, end - segment.start)
            yield segment, at, min(stop + HEAD.size, segment.size)
            view = segment.view
            while at < stop and wanted:
                if segment.size - at < HEAD.size:
                    at = segment.size
                    break
                size, magic, queue_id, queue_offset, place = HEAD.unpack_from(view, at)
                if magic == MAGIC_BLANK:
                    at = segment.size
                    break
                if magic not in MAGICS or place != segment.start + at or not HEAD.size <= size <= segment.size - at:
                    next_magic = segment.find(MAGIC_START, at + 5)
                    at = next_magic - 4 if next_magic >= 0 else segment.size
                    break
                if (any_record and (queue_id == queue.queue_id or not queue.batched)) or (
                    queue_id == queue.queue_id and low <= queue_offset < high
                ):
                    item = read_item(view, at, segment.start)
                    number = None if item.entry is None else offset_of(item.entry, queue)
                    if item.finding is Finding.RECORD and item.entry is not None and number is not None:
                        if queue.batched:
                            in_order.append(item.entry)
                        elif number in wanted:
                            found[number] = item.entry
                            wanted.discard(number)
                at += size
            position = segment.start + at
        if isinstance(queue, BatchQueue):
            places = _in_their_places(missing, in_order, found)
            found.update(_in_order(places, *self._bases(queue, missing[0], missing[-1] + 1)))

    def _bases(self, queue: BatchQueue, first: int, last: int) -> tuple[int, int]:
        """Return the range of queue offsets of some units' messages, by the neighbouring sound units."""
        low, high = queue.numbers()
        before = (one for one in _ever_farther(first - 1, -1, low, high) if self._belongs(queue, one))
        behind = (one for one in _ever_farther(last, 1, low, high) if self._belongs(queue, one))
        least, most = next(before, None), next(behind, None)
        return (
            0 if least is None else queue.entry(least).end,
            1 << 63 if most is None else queue.entry(most).base,
        )


def _in_their_places(missing: list[int], entries: list[LogEntry], found: Found) -> Found:
    """Return the records of a BatchCQ queue that have no unit yet, by unit numbers, in the order of the log."""
    taken = {entry.offset for entry in found.values()}
    free = [entry for entry in entries if entry.offset not in taken]
    return dict(zip(missing, free, strict=True)) if len(free) == len(missing) else {}


def _in_order(found: Found, begin: int, end: int) -> Found:
    """Return the records whose messages are between two queue offsets and in order.

    A record with another queue offset is damaged itself. Its unit would hide other units from look-ups.
    """
    inside = {number: entry for number, entry in found.items() if begin <= unit_of(entry).base < end}
    units = [unit_of(entry) for _, entry in sorted(inside.items())]
    rising = all(one.end <= other.base for one, other in pairwise(units))
    return inside if rising and (not units or units[-1].end <= end) else {}


def _unit(queue: ConsumeQueue, number: int) -> tuple[int, int, int] | None:
    """Return log offset and size of a unit's record, and its tags code; None when there is no such unit."""
    if not isinstance(queue, BatchQueue):
        return queue.unit(number)
    first, end = queue.numbers()
    return queue.entry(number)[:3] if first <= number < end else None


def _ever_farther(number: int, step: int, low: int, high: int) -> list[int]:
    """Return numbers from one on in one direction, within bounds: the next ones, then at growing distances."""
    near = list(range(number, number + step * _NEIGHBOURS, step))
    far = [number + step * (_NEIGHBOURS << power) for power in range(40)]
    return [one for one in near + far if low <= one < high]


def _report(queue: ConsumeQueue, error: OSError) -> None:
    logger.error("queue %s/%d cannot be rebuilt: %s", queue.topic, queue.queue_id, error)
