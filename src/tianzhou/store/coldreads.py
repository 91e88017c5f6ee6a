"""Reading what has left the memory, without making everyone wait for the disk (store.md §14.1).

A record that is not in the page cache is read by the page fault of whoever touches it, and the whole loop stands
still meanwhile. So the pages of a read are looked at first. Those that are missing are fetched by a few threads, and
the read is done when they are there.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from tianzhou._hot.records import EXTENSION_ADDRESS, UNIT
from tianzhou.store.batchqueue import BatchQueue
from tianzhou.store.commitlog import CommitLog
from tianzhou.store.consumequeue import BLANK_SIZE, UNIT_SIZE, ConsumeQueue
from tianzhou.store.segments import Segment

logger = logging.getLogger(__name__)

HOT_BYTES: Final = 64 << 20
"""What was appended last is in memory; nobody has to look."""
_THREADS: Final = 4
ROUNDS: Final = 3
_AHEAD: Final = 512 << 10
_GAP: Final = 64 << 10

Missing = list[tuple[Segment, int, int]]
"""Byte ranges of segments that have to come from the disk."""


class ColdReads:
    """Finds out what a read would have to wait for, and waits for it elsewhere.

    Args:
        log: the commit log.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._threads = ThreadPoolExecutor(_THREADS, "tianzhou-cold")
        self.opened_at = 0

    def missing(
        self, queue: ConsumeQueue, offset: int, units: int, messages: int, size: int, codes: frozenset[int] | None
    ) -> Missing:
        """What reading a queue from `offset` on would have to fetch; empty when all of it is in memory.

        Args:
            queue: the queue.
            offset: first queue offset wanted.
            units: at most so many units are looked at.
            messages: at most so many records are taken.
            size: and about so many bytes of them.
            codes: only units with one of these tags codes; None for all.
        """
        if not queue.min_offset <= offset < queue.max_offset:
            return []
        if isinstance(queue, BatchQueue):
            wanted = [unit for _, unit in islice(queue.units(queue.find(offset)), min(units, messages))]
            if not wanted or self._is_hot(wanted[0].physical_offset):
                return []
            # Inner batches are read whatever the tags: only their messages know theirs.
            packed = b"".join(UNIT.pack(*unit[:3]) for unit in wanted)
            return self._missing_records(memoryview(packed), messages, size, None)
        position = offset * UNIT_SIZE
        segment = queue.files.find(position)
        if segment is None:
            return []
        start = position - segment.start
        end = min(segment.size, start + units * UNIT_SIZE, queue.max_offset * UNIT_SIZE - segment.start)
        if not segment.resident(start, end):
            return [(segment, start, end)]
        view = segment.view[start:end]
        if self._is_hot(UNIT.unpack_from(view, 0)[0]):
            return []
        return self._missing_records(view, messages, size, codes)

    def _is_hot(self, physical: int) -> bool:
        return physical >= self.opened_at and physical >= self._log.end - HOT_BYTES

    def _missing_records(self, view: memoryview, messages: int, size: int, codes: frozenset[int] | None) -> Missing:
        spans: list[tuple[int, int]] = []
        for physical, length, tags in UNIT.iter_unpack(view):
            if codes is not None and tags not in codes and tags > EXTENSION_ADDRESS:
                continue
            if length == BLANK_SIZE and physical == 0:
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
                # Who reads old messages reads on: what follows comes with them.
                found.append((segment, begin - segment.start, min(end + _AHEAD, self._log.end) - segment.start))
        return found

    async def fetch(self, missing: Missing) -> None:
        """Return when the ranges are in memory, or cannot be had."""
        await asyncio.get_running_loop().run_in_executor(self._threads, _fetch, missing)

    def close(self) -> None:
        """End the threads, after what they are at."""
        self._threads.shutdown(cancel_futures=True)


def _fetch(missing: Missing) -> None:
    for segment, start, end in missing:
        try:
            segment.fetch(start, end)
        except FileNotFoundError:
            return  # expired meanwhile
        except OSError as error:
            logger.error("%s, bytes %d to %d cannot be read: %s", segment.path, start, end, error)
            return
