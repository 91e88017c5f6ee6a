"""Wrong last units of queues, which point to no record of theirs but define a queue's end (store.md §5.8)."""

from __future__ import annotations

from typing import Final

from tianzhou.records.layout import PLACE
from tianzhou.records.walk import read_item
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.holes import is_hole
from tianzhou.store.queues.batchqueue import BatchQueue, unit_of
from tianzhou.store.queues.consumequeue import ConsumeQueue

MOST_BATCHES: Final = 1000
"""Maximum number of batches dropped one by one; above it, the queue is rebuilt from the log."""


class WrongEnds:
    """Drops units at the end of a queue whose records the log does not have; the log rebuilds them.

    Args:
        log: the commit log.
        notes: receives descriptions of the repairs.
    """

    def __init__(self, log: CommitLog, notes: list[str]) -> None:
        self._log = log
        self._notes = notes

    def drop(self, queue: ConsumeQueue, trusted: int) -> bool:
        """Drop a queue's last unit when the log has no such record, and all wrong units right before it.

        Args:
            queue: the queue.
            trusted: log offset; a last unit whose record ends at or before it needs no comparison with the log.

        Returns:
            Whether any unit was dropped.
        """
        if isinstance(queue, BatchQueue):
            return self._drop_batches(queue)
        last = queue.unit(queue.max_offset - 1)
        if last is None:
            return False
        can_be = last[0] >= 0 and last[1] > 0
        if can_be and (queue.max_physical <= trusted or queue.max_physical != last[0] + last[1]):
            return False
        if not self._leads_elsewhere(last[0], last[1]):
            return False
        number = queue.max_offset - 1
        while (unit := queue.unit(number - 1)) is not None and not is_hole(*unit):
            if not self._leads_elsewhere(unit[0], unit[1]):
                break
            number -= 1
        count = queue.max_offset - number
        queue.drop_from(number)
        self._notes.append(
            f"the last {f'{count} units' if count > 1 else 'unit'} of queue {queue.topic}/{queue.queue_id} "
            f"{'point elsewhere, the last one' if count > 1 else 'points'} to {last[1]} bytes at {last[0]}, where no "
            "such record is; dropped"
        )
        return True

    def _leads_elsewhere(self, offset: int, size: int) -> bool:
        """Whether a unit's record is not at its log offset, in a log that reaches back so far."""
        segments = self._log.files.segments
        if not segments or (0 <= offset < segments[0].start and size > 0):
            return False
        segment = self._log.files.find(offset)
        if segment is None or offset - segment.start + PLACE.size > segment.size:
            return True
        stated, _, place = PLACE.unpack_from(segment.view, offset - segment.start)
        return (stated, place) != (size, offset)

    def _drop_batches(self, queue: BatchQueue) -> bool:
        """Drop the last wrong units of a BatchCQ queue; all units when too many are wrong."""
        for count in range(MOST_BATCHES):
            if not self._drop_batch(queue):
                return count > 0
        queue.reset()
        return True

    def _drop_batch(self, queue: BatchQueue) -> bool:
        """Drop the last unit of a BatchCQ queue, which defines the next offset, if it is wrong."""
        first, end = queue.numbers()
        if first == end:
            return False
        unit = queue.entry(end - 1)
        if not self._log.files.segments or 0 <= unit.physical_offset < self._log.min_offset:
            return False
        segment = self._log.files.find(unit.physical_offset)
        entry = None
        if segment is not None:
            entry = read_item(segment.view, unit.physical_offset - segment.start, segment.start).entry
        if entry is not None and (entry.topic, entry.queue_id) == (queue.topic, queue.queue_id):
            if unit_of(entry) == unit:
                return False
        elif segment is not None and unit.valid and unit.physical_offset + PLACE.size <= segment.end:
            stated, _, place = PLACE.unpack_from(segment.view, unit.physical_offset - segment.start)
            if place == unit.physical_offset or stated == unit.size:
                return False  # its record is broken
        queue.recover(max(unit.physical_offset, 0))
        self._notes.append(
            f"the last unit of queue {queue.topic}/{queue.queue_id} does not say what its record says; dropped"
        )
        return True
