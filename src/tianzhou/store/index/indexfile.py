"""One index file, which maps hashes of topic and key to log offsets (store.md §8.1, §8.3)."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tianzhou._hot import IndexCursor
from tianzhou.store.files.pages import RANDOM
from tianzhou.store.files.retired import RetiredSegment
from tianzhou.store.files.segments import Segment

if TYPE_CHECKING:  # it needs the event loop, which a reader of files does not need
    from tianzhou.store.files.lookup_steps import Steps

HEADER: Final = struct.Struct(">qqqqii")
HEADER_SIZE: Final = 40
SLOT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">iqii")
ENTRY_SIZE: Final = 20
logger = logging.getLogger(__name__)

_MAX_DIFF: Final = 0x7FFFFFFF
_PAGE_BITS: Final = 12
_ENTRY_STEP: Final = 64 << 10
_FEW_ENTRIES: Final = 4096
_FEW_SLOTS: Final = 16_384
"""Maximum numbers for a comparison of a whole file at once, which takes some milliseconds."""


class IndexFile(IndexCursor):
    """One index file: header, slots, entries.

    Inserts do not update the header in the file; `write_header` does.

    Args:
        segment: the mapped file.
        slots: number of hash slots.
        capacity: number of entries; number 0 is never used.

    Attributes:
        damaged: whether the file is damaged: a chain does not point back to older entries of its slot, or an entry
            disagrees with the log.
        own: whether this process has created it.
        proved: whether it was compared with itself and the log, or is this process's own.
    """

    __slots__ = ("_segment", "damaged", "own", "proved")

    def __init__(self, segment: Segment, slots: int, capacity: int) -> None:
        self._segment = segment
        self.damaged = self.own = self.proved = False
        segment.advise(RANDOM)  # keys are hashed, so neighbouring entries have other keys
        self._map = segment.map
        self.slots = slots
        self.capacity = capacity
        self._entries = HEADER_SIZE + 4 * slots
        # The pages of the slot table with disk space, and the end of the entries with disk space.
        self._touched = bytearray((self._entries >> _PAGE_BITS) + 1)
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.slot_count,
            self.count,
        ) = HEADER.unpack(segment.read(0, HEADER_SIZE))
        self.count = max(self.count, 1)
        self._reserved = self._entries + ENTRY_SIZE * self.count

    @property
    def path(self) -> Path:
        """The file."""
        return self._segment.path

    @property
    def full(self) -> bool:
        """Whether no further entry fits."""
        return self.count >= self.capacity

    @property
    def plausible(self) -> bool:
        """Whether the header's values are possible."""
        return (
            self.count <= self.capacity
            and 0 <= self.slot_count <= self.slots
            and 0 <= self.begin_offset <= self.end_offset
            and self.begin_timestamp >= 0
            and self.end_timestamp >= 0
        )

    @property
    def untouched(self) -> bool:
        """Whether the file was never written."""
        return (
            self.count <= 1
            and self.end_timestamp == 0
            and not any(self._segment.read(self._entries, self._entries + 40))
        )

    def preset(self, previous: IndexFile) -> None:
        """Start the header at the end of the previous file (store.md §8.3)."""
        self.begin_timestamp = self.end_timestamp = previous.end_timestamp
        self.begin_offset = self.end_offset = previous.end_offset
        self.write_header()

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> None:
        """Add an entry; the file must not be full (store.md §8.3).

        Raises:
            OSError: the disk is full.
        """
        memory = self._map
        count = self.count
        slot_at = HEADER_SIZE + 4 * (key_hash % self.slots)
        if not self._touched[slot_at >> _PAGE_BITS]:
            self._touch(slot_at)
        previous = SLOT.unpack_from(memory, slot_at)[0]
        if previous <= 0 or previous > count:
            previous = 0
            self.slot_count += 1
        begin = self.begin_timestamp
        if begin <= 0:
            difference = 0
        else:
            difference = (store_timestamp - begin) // 1000
            if not 0 <= difference <= _MAX_DIFF:
                difference = 0 if difference < 0 else _MAX_DIFF
        entry_at = self._entries + ENTRY_SIZE * count
        if entry_at + ENTRY_SIZE > self._reserved:
            self._reserve(entry_at)
        ENTRY.pack_into(memory, entry_at, key_hash, physical_offset, difference, previous)
        SLOT.pack_into(memory, slot_at, count)
        if count <= 1:
            self.begin_offset = physical_offset
            self.begin_timestamp = store_timestamp
        self.count = count + 1
        self.end_offset = physical_offset
        self.end_timestamp = store_timestamp

    def _touch(self, slot_at: int) -> None:
        self._segment.reserve_range(slot_at, slot_at + 4)
        self._touched[slot_at >> _PAGE_BITS] = 1

    def _reserve(self, entry_at: int) -> None:
        upto = min(self._segment.size, entry_at + (_ENTRY_STEP if self.count > 1000 else 4096))
        self._segment.reserve_range(entry_at, upto)
        self._reserved = upto

    def write_header(self) -> None:
        """Write the header with all inserted entries.

        Raises:
            OSError: the disk is full, and the file has no header yet.
        """
        if not self._touched[0]:
            self._touch(0)
        HEADER.pack_into(
            self._map,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.slot_count,
            self.count,
        )

    def repair(self, store_time: Callable[[int], int]) -> None:
        """Add entries that were inserted after the last write of the header.

        The process may have died anywhere: in an entry, between an entry and its slot, in the header.

        Args:
            store_time: returns the store time of the record at a log offset, ms; -1 when no record begins there.
        """
        number = self.count
        last = -1
        if number > 1:
            last = ENTRY.unpack_from(self._map, self._entries + ENTRY_SIZE * (number - 1))[1]
        written = self._segment.written(self._entries + ENTRY_SIZE * max(number - 1, 0))
        while number < self.capacity:
            entry_at = self._entries + ENTRY_SIZE * number
            if entry_at + ENTRY_SIZE > written:
                break
            key_hash, offset, _, previous = ENTRY.unpack_from(self._map, entry_at)
            slot_at = HEADER_SIZE + 4 * (key_hash % self.slots)
            newest = SLOT.unpack(self._segment.read(slot_at, slot_at + SLOT.size))[0]
            if key_hash < 0 or newest < number or offset < last or store_time(offset) < 0:
                # An entry without its slot is incomplete, and its record will be indexed again.
                ENTRY.pack_into(self._map, entry_at, 0, 0, 0, 0)
                break
            self.slot_count += previous == 0
            if number == 1:
                self.begin_offset, self.begin_timestamp = offset, store_time(offset)
            last = offset
            number += 1
        self.count = number
        if number > 1:
            self.end_offset, self.end_timestamp = last, max(store_time(last), self.begin_timestamp)
        self.write_header()

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether the file's time range overlaps [begin, end]."""
        return self.begin_timestamp <= end and self.end_timestamp >= begin

    def find_steps(self, key_hash: int, limit: int, begin: int, end: int, found: list[int]) -> Steps[None]:
        """Collect offsets of entries with the hash and a time in [begin, end], newest first, up to `limit`.

        Each entry points to an earlier one of the same slot; otherwise the file is `damaged`.
        """
        if self.count <= 1:
            return
        segment = self._segment
        slot = key_hash % self.slots
        with memoryview(self._map) as memory:  # prevents the close of the map meanwhile
            at = HEADER_SIZE + 4 * slot
            yield segment, at, at + SLOT.size
            number = SLOT.unpack(segment.read(at, at + SLOT.size))[0]
            if not 0 < number < self.count:
                self.damaged = self.damaged or number != 0
                return
            while len(found) < limit:
                at = self._entries + ENTRY_SIZE * number
                yield segment, at, at + ENTRY_SIZE
                entry_hash, offset, difference, previous = ENTRY.unpack_from(memory, at)
                if difference < 0 or entry_hash < 0 or entry_hash % self.slots != slot:
                    self.damaged = True
                    return
                when = self.begin_timestamp + difference * 1000
                if entry_hash == key_hash and begin <= when <= end and offset not in found:
                    found.append(offset)
                if not 0 <= previous < number:
                    self.damaged = True
                    return
                if previous == 0 or when < begin:
                    return
                number = previous

    def prove_steps(self, store_time_steps: Callable[[int], Steps[int]]) -> Steps[None]:
        """Compare header, slots and entries with each other, and the times with those of the log's records.

        In a file with many entries, queries check the chains that they follow. A flipped bit in a chain hardly ever
        yields a valid shorter chain: most entry numbers do not differ in one bit from another number of the same slot.

        Args:
            store_time_steps: looks up the store time of the record at a log offset, ms; -1 without one.
        """
        self.proved = True
        if self.count <= 1:
            return
        segment, count = self._segment, self.count
        for number, offset, stored in (
            (1, self.begin_offset, self.begin_timestamp),
            (count - 1, self.end_offset, self.end_timestamp),
        ):
            at = self._entries + ENTRY_SIZE * number
            yield segment, at, at + ENTRY_SIZE
            there = yield from store_time_steps(offset)
            if ENTRY.unpack_from(self._map, at)[1] != offset or there not in {-1, stored}:
                self.damaged = True
                return
        if count > _FEW_ENTRIES or self.slots > _FEW_SLOTS:
            return
        yield segment, HEADER_SIZE, self._entries + ENTRY_SIZE * count
        entries = segment.read(self._entries + ENTRY_SIZE, self._entries + ENTRY_SIZE * count)
        newest: dict[int, int] = {}
        place = 0
        for number, (key_hash, offset, seconds, previous) in enumerate(ENTRY.iter_unpack(entries), 1):
            slot = key_hash % self.slots
            if newest.get(slot, 0) != previous or key_hash < 0 or seconds < 0 or offset < place:
                self.damaged = True
                return
            newest[slot], place = number, offset
        table = SLOT.iter_unpack(segment.read(HEADER_SIZE, self._entries))
        self.damaged = any(found != newest.get(slot, 0) for slot, (found,) in enumerate(table))

    def sync(self) -> None:
        """Sync the file; may run on another thread."""
        self._segment.sync(0, self._entries)
        self._segment.sync(self._entries, min(self._segment.size, self._entries + ENTRY_SIZE * self.count))

    def close(self) -> None:
        """Write the header and unmap the file."""
        try:
            self.write_header()
        except OSError as error:
            logger.warning("index file %s: its header cannot be written: %s", self.path, error)
        self._segment.close()

    def retire(self) -> RetiredSegment:
        """Retire the file; the caller removes it."""
        del self._map
        return self._segment.retire()

    def discard(self) -> None:
        """Unmap the file and leave it unchanged."""
        self._segment.close()

    def delete(self) -> None:
        """Remove the file."""
        self._segment.delete()
