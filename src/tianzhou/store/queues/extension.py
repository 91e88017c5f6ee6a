"""Extension files of queues, for data that does not fit into a unit, above all a filter's bitmap (store.md §5.5)."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from tianzhou._hot.records import EXTENSION_ADDRESS, HOLE, UNIT
from tianzhou.store.files.lookup_steps import Range, Steps
from tianzhou.store.files.maps import QueueMaps
from tianzhou.store.files.retired import RetiredSegment
from tianzhou.store.files.segments import Segment, SegmentQueue
from tianzhou.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue

logger = logging.getLogger(__name__)

HEAD: Final = struct.Struct(">hqqh")
"""Size of the whole unit, tags code, store time, bytes of the bitmap that follows."""
MAX_UNIT: Final = 32_767
_FIRST_ADDRESS: Final = -(1 << 63)
_MAX_OFFSET: Final = EXTENSION_ADDRESS - _FIRST_ADDRESS
ACCEPTED: Final = 1
"""Replaces the tags code in units that `ExtendedQueue.judged` accepts."""
_KEPT_FREE: Final = 4
_END: Final = struct.Struct(">h")
_PAGE: Final = 4096
_PLAIN_UNITS: Final = 10_000


class ExtensionUnit(NamedTuple):
    """The content of a unit: code of the tag, store time in ms, bitmap of the matching filters."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes


def is_address(tags_code: int) -> bool:
    """Whether a queue unit's tags code is an address in the extension files."""
    return tags_code <= EXTENSION_ADDRESS


class Extension:
    """The extension files of one queue.

    Args:
        directory: `consumequeue_ext/<topic>/<queueId>`.
        segment_size: bytes of a segment file.
        maps: as in `ConsumeQueue`.

    Attributes:
        files: the segments.
        end: byte position after the last unit.
        flushed: byte position up to which the files are on the disk.
    """

    __slots__ = ("_reserved", "end", "files", "flushed")

    def __init__(self, directory: Path, segment_size: int, maps: QueueMaps | None = None) -> None:
        self.files = SegmentQueue([directory], segment_size, maps)
        self.end = 0
        self.flushed = 0
        self._reserved = 0

    def put(self, unit: ExtensionUnit) -> int | None:
        """Add a unit and return its address; None when it does not fit.

        Raises:
            OSError: the disk refused the write.
        """
        size = HEAD.size + len(unit.bitmap)
        if size > min(MAX_UNIT, self.files.size - _KEPT_FREE) or self.end + size > _MAX_OFFSET:
            return None
        segment = self.files.find(self.end)
        if segment is not None and segment.end - self.end < size + _KEPT_FREE:
            self._reserve(segment, self.end + _END.size)
            _END.pack_into(segment.map, self.end - segment.start, -1)
            self.end, segment = segment.end, None
        if segment is None:
            start = self.end - self.end % self.files.size
            segment = self.files.create(start)
            self.end = self._reserved = start
        self._reserve(segment, self.end + size)
        at = self.end - segment.start
        HEAD.pack_into(segment.map, at, size, unit.tags_code, unit.store_timestamp, len(unit.bitmap))
        segment.map[at + HEAD.size : at + size] = unit.bitmap
        address = self.end + _FIRST_ADDRESS
        self.end += size
        return address

    def _reserve(self, segment: Segment, end: int) -> None:
        if end > self._reserved:
            upto = min(segment.end, -(-end // _PAGE) * _PAGE)
            segment.reserve_range(max(self._reserved - segment.start, 0), upto - segment.start)
            self._reserved = upto

    def get(self, address: int) -> ExtensionUnit | None:
        """Return the unit at an address; None when there is none, or not any more."""
        position = address - _FIRST_ADDRESS
        segment = self.files.find(position)
        if segment is None or not is_address(address) or position + HEAD.size > min(self.end, segment.end):
            return None
        at = position - segment.start
        size, tags_code, store_timestamp, length = HEAD.unpack_from(segment.view, at)
        if size != HEAD.size + length or length < 0 or at + size > segment.size:
            return None
        return ExtensionUnit(tags_code, store_timestamp, bytes(segment.view[at + HEAD.size : at + size]))

    def spans(self, first: int, last: int) -> Iterator[Range]:
        """Yield the byte ranges of the units between two addresses, file by file, without the last bitmap."""
        position, stop = first - _FIRST_ADDRESS, last - _FIRST_ADDRESS + HEAD.size
        while position < stop and (segment := self.files.find(position)) is not None:
            yield segment, position - segment.start, min(stop, segment.end) - segment.start
            position = segment.end

    def resume(self, newest: int | None) -> bool:
        """Continue after the unit at an address, and drop all later units.

        Args:
            newest: the address; None without one.

        Returns:
            Whether there is a unit at the address.
        """
        self.end = self.files.segments[-1].end if self.files.segments else 0
        unit = None if newest is None else self.get(newest)
        if newest is None or unit is None:
            self.reset()
            return newest is None
        self.end = newest - _FIRST_ADDRESS + HEAD.size + len(unit.bitmap)
        self.files.truncate(self.end)
        self.flushed = self._reserved = self.end
        return True

    def retire_before(self, oldest: int) -> list[RetiredSegment]:
        """Retire the files that end before the unit at an address."""
        retired = []
        while len(self.files.segments) > 1 and self.files.segments[0].end < oldest - _FIRST_ADDRESS:
            retired.append(self.files.drop_first().retire())
        return retired

    def retire(self) -> list[RetiredSegment]:
        """Drop all units; the caller removes the files."""
        retired = self.files.retire()
        self.end = self.flushed = self._reserved = 0
        return retired

    def unflushed(self) -> list[tuple[Segment, int, int]]:
        """Return segments with their byte ranges that may not be on the disk yet, and mark them as flushed.

        A failed flush loses nothing, because the queue is rebuilt then.
        """
        flushed, self.flushed = self.flushed, self.end
        return [
            (segment, max(flushed - segment.start, 0), min(segment.size, self.end - segment.start))
            for segment in self.files.segments
            if segment.end > flushed
        ]

    def reset(self) -> None:
        """Drop all units."""
        self.files.delete()
        self.end = self.flushed = self._reserved = 0

    def close(self) -> None:
        """Unmap all files."""
        self.files.close()


class ExtendedQueue(ConsumeQueue):
    """A queue whose units point to extension units (`enableConsumeQueueExt`).

    Args:
        place: directory, topic, number and segment size, as of `ConsumeQueue`.
        extension: its extension files.
        bitmap: returns the filter bitmap of a record by topic, commit-log offset and size; empty without filters.
        options: as of `ConsumeQueue`.

    Attributes:
        extension: the extension files.
        lacks_extension: whether recovery found units that point to missing extension units.
    """

    extended: ClassVar[bool] = True

    __slots__ = ("_bitmap", "extension", "lacks_extension")

    def __init__(
        self, *place: Any, extension: Extension, bitmap: Callable[[str, int, int], bytes], **options: Any
    ) -> None:
        super().__init__(*place, **options)
        self.extension = extension
        self.lacks_extension = False
        self._bitmap = bitmap

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int, store_timestamp: int = 0) -> bool:
        """Add the unit of a record and its extension; see `ConsumeQueue.put`.

        Raises:
            OSError: no segment can be created, or the disk is full.
        """
        is_new = queue_offset >= self.max_offset or queue_offset == 0
        if is_new and physical_offset + size > self.max_physical:
            if queue_offset < self.max_offset:
                self.reset()
            tags_code = self._extend(tags_code, store_timestamp, self._bitmap(self.topic, physical_offset, size))
        return super().put(queue_offset, physical_offset, size, tags_code, store_timestamp)

    def _extend(self, tags_code: int, store_timestamp: int, bitmap: bytes) -> int:
        try:
            address = self.extension.put(ExtensionUnit(tags_code, store_timestamp, bitmap))
        except OSError as error:
            # The message can be read without its extension unit too.
            logger.warning("queue %s/%d: no extension unit can be written: %s", self.topic, self.queue_id, error)
            return tags_code
        return tags_code if address is None else address

    def resolved(self, units: memoryview) -> memoryview:
        """Return units with tags codes in place of addresses; addresses without an extension unit stay."""
        found = bytearray()
        for physical, size, tags in UNIT.iter_unpack(units):
            unit = self.extension.get(tags) if is_address(tags) else None
            found += UNIT.pack(physical, size, tags if unit is None else unit.tags_code)
        return memoryview(found)

    def judged(self, units: memoryview, accept: Callable[[ExtensionUnit], bool]) -> memoryview:
        """Return units with 1 in place of addresses of accepted extension units, and 0 for the others.

        Units without an extension are accepted, because their records are unknown.
        """
        found = bytearray()
        for physical, size, tags in UNIT.iter_unpack(units):
            unit = self.extension.get(tags) if is_address(tags) else None
            passed = tags != HOLE and (unit is None or accept(unit))
            found += UNIT.pack(physical, size, ACCEPTED if passed else 0)
        return memoryview(found)

    def extensions(self, units: memoryview) -> Iterator[Range]:
        """Yield the byte ranges of the extension units of queue units."""
        addresses = [tags for _, _, tags in UNIT.iter_unpack(units) if is_address(tags)]
        if addresses:
            yield from self.extension.spans(addresses[0], addresses[-1])

    def _resume(self, end: int) -> None:
        super()._resume(end)
        self.lacks_extension = not self.extension.resume(self._newest_address())

    def _newest_address(self) -> int | None:
        looked_at = 0
        for segment in reversed(self.files.segments):
            for at in range(min(segment.size, self.end - segment.start) - UNIT_SIZE, -1, -UNIT_SIZE):
                tags: int = UNIT.unpack_from(segment.view, at)[2]
                if is_address(tags):
                    return tags
                looked_at += 1
                if looked_at > _PLAIN_UNITS and not self.extension.files.segments:
                    # Extensions were enabled only recently.
                    return None
        return None

    def expire_steps(self, smallest_physical: int) -> Steps[list[RetiredSegment]]:
        """Retire the oldest segments, as every queue does, and extension files without references."""
        retired = yield from super().expire_steps(smallest_physical)
        # When all messages of a queue have expired, the newest unit shows where the next extension unit goes.
        unit = yield from self.unit_steps(min(self.min_offset, self.max_offset - 1))
        if unit is not None and is_address(unit[2]):
            retired += self.extension.retire_before(unit[2])
        return retired

    def retire(self) -> list[RetiredSegment]:
        """Drop all units; the caller removes the files of both kinds."""
        self.lacks_extension = False
        return self.extension.retire() + super().retire()

    def unflushed(self) -> list[tuple[Segment, int, int]]:
        """Return segments of both kinds, with their byte ranges that may not be on the disk yet."""
        # The disk may have an address only when it has the extension unit at that address.
        return self.extension.unflushed() + super().unflushed()

    def reset(self) -> None:
        """Drop all units and start again at offset 0."""
        super().reset()
        self.extension.reset()
        self.lacks_extension = False

    def close(self) -> None:
        """Unmap all files."""
        super().close()
        self.extension.close()
