"""Looking into a store folder without touching it: no lock, no writes, no repair.

Serves `tianzhou store dump|check`, offline readers and tests. The folder may be in use; what is appended
meanwhile may or may not be seen.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tianzhou._hot.records import UNIT
from tianzhou.errors import StoreUnreadable
from tianzhou.records.walk import LogEntry, LogItem, Run, single_items, walk
from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.store.index.indexfile import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE
from tianzhou.store.log.holes import is_hole

if TYPE_CHECKING:
    from tianzhou.store.offline.check_report import CheckReport

UNIT_SIZE: Final = UNIT.size
_STEP: Final = 1 << 20


class ReadOnlySegment:
    """A file mapped for reading, under the offset its name says.

    Args:
        path: the file.
    """

    __slots__ = ("_map", "path", "start", "view")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start = int(path.name)
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                self._map: mmap.mmap | None = None
                self.view = memoryview(b"")
            else:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.view = memoryview(self._map)

    @property
    def map(self) -> mmap.mmap | None:
        """The map; None for an empty file."""
        return self._map

    def find(self, needle: bytes, position: int) -> int:
        """Position of the next `needle`, -1 without one; holes of the file are not read."""
        if self._map is None:
            return -1
        pattern = re.compile(re.escape(needle), re.DOTALL)
        with self.path.open("rb") as file:
            while position < len(self.view):
                data, hole = extent(file.fileno(), position, len(self.view))
                if data < 0:
                    return -1
                # A needle may begin in the last bytes before the data found.
                # Not self._map.find: CPython 3.11's reads behind the end of the map, where there may be no memory.
                found = pattern.search(self._map, max(position, data - len(needle) + 1), hole)
                if found is not None:
                    return found.start()
                position = max(hole - len(needle) + 1, position + 1) if hole < len(self.view) else hole
        return -1

    def data_end(self, position: int) -> int:
        """Position behind the last byte that is not zero; `position` when there is none from there on."""
        end = position
        if self._map is not None:
            with self.path.open("rb") as file:
                while position < len(self.view):
                    data, hole = extent(file.fileno(), position, len(self.view))
                    if data < 0:
                        break
                    for at in range(data, hole, _STEP):
                        piece = bytes(self.view[at : min(at + _STEP, hole)]).rstrip(b"\0")
                        end = at + len(piece) if piece else end
                    position = hole
        return end


def extent(fd: int, position: int, end: int) -> tuple[int, int]:
    """The next piece of a file that is no hole: from and to; -1 when there is none from `position` on."""
    try:
        data = os.lseek(fd, position, os.SEEK_DATA)
        return data, min(os.lseek(fd, data, os.SEEK_HOLE), end)
    except OSError as error:
        return (-1, end) if error.errno == errno.ENXIO else (position, end)


@dataclass(frozen=True, slots=True)
class QueueUnit:
    """One unit of a queue file.

    Attributes:
        queue_offset: its number.
        physical_offset: where its record begins in the commit log.
        size: of the record; 0x7FFFFFFF in a blank unit.
        tags_code: store.md §5.3.
    """

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int

    @property
    def blank(self) -> bool:
        """Whether the unit only keeps a place (store.md §5.2)."""
        return is_hole(self.physical_offset, self.size, self.tags_code)


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header of an index file (store.md §8.1); timestamps in ms."""

    path: Path
    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    slot_count: int
    count: int


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One entry of an index file: hash of topic and key, record, its store time in ms, number of the one before."""

    number: int
    key_hash: int
    physical_offset: int
    timestamp: int
    previous: int


class StoreScan:
    """A store folder as files.

    Args:
        root: the store's root folder.
        commit_log: directories of commit-log segments; None for `root/commitlog`.

    Raises:
        StoreUnreadable: there is no such folder.
    """

    def __init__(self, root: Path | str, commit_log: list[Path] | None = None) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise StoreUnreadable(f"{self.root} is no folder; name the storePathRootDir of a broker")
        self._log_directories = commit_log or [self.root / "commitlog"]

    def segments(self) -> list[ReadOnlySegment]:
        """The commit log's segments, in order."""
        paths = [path for directory in self._log_directories for path in segment_paths(directory)]
        return [ReadOnlySegment(path) for path in sorted(paths, key=lambda path: path.name)]

    def walk(self, begin: int | None = None, *, check_crc: bool = True) -> Iterator[LogItem]:
        """Every record of the log, and every damaged stretch that records follow.

        Args:
            begin: offset of a record, or of a segment; None for the log's start.
            check_crc: take records whose body does not fit its CRC as damaged.
        """
        return single_items(_steps(self.segments(), begin, check_crc=check_crc))

    def records(
        self,
        begin: int | None = None,
        *,
        check_crc: bool = True,
        on_damage: Callable[[LogItem], None] | None = None,
    ) -> Iterator[tuple[LogEntry, memoryview]]:
        """Every intact record: what it says about itself, and all its bytes.

        Args:
            begin: as `walk`.
            check_crc: as `walk`.
            on_damage: called with every damaged stretch that is stepped over.
        """
        segments = self.segments()
        starts = [segment.start for segment in segments]
        for item in single_items(_steps(segments, begin, check_crc=check_crc)):
            if item.entry is not None:
                segment = segments[bisect_right(starts, item.offset) - 1]
                position = item.offset - segment.start
                yield item.entry, segment.view[position : position + item.size]
            elif on_damage is not None:
                on_damage(item)

    def queues(self) -> list[tuple[str, int]]:
        """Topic and number of every queue that has a directory, in order."""
        root = self.root / "consumequeue"
        found = []
        if root.is_dir():
            for topic in root.iterdir():
                if topic.is_dir():
                    found += [(topic.name, int(q.name)) for q in topic.iterdir() if q.is_dir() and q.name.isdigit()]
        return sorted(found)

    def units(self, topic: str, queue_id: int) -> Iterator[QueueUnit]:
        """The units of a queue up to the first that is not valid (store.md §5.8)."""
        directory = self.root / "consumequeue" / topic / str(queue_id)
        expected = None
        for path in segment_paths(directory):
            segment = ReadOnlySegment(path)
            if expected is not None and segment.start != expected:
                return
            whole = len(segment.view) // UNIT_SIZE * UNIT_SIZE
            number = segment.start // UNIT_SIZE
            for physical, size, tags in UNIT.iter_unpack(segment.view[:whole]):
                if physical < 0 or size <= 0:
                    return
                yield QueueUnit(number, physical, size, tags)
                number += 1
            expected = segment.start + len(segment.view)

    def index_headers(self) -> list[IndexHeader]:
        """The headers of all index files, oldest first."""
        return read_index_headers(self.root)

    def index_entries(self, header: IndexHeader, slots: int | None = None) -> Iterator[IndexEntry]:
        """The entries of one index file.

        Args:
            header: of the file.
            slots: `maxHashSlotNum` of the broker that wrote it, None to find it out.
        """
        if header.count <= 1:
            return
        file = ReadOnlySegment(header.path)
        view = file.view
        if slots is None:
            from tianzhou.store.offline.check_index import slots_of

            slots = slots_of(header, file)
        base = HEADER_SIZE + 4 * (slots or 0)
        for number in range(1, max(header.count, 1)):
            at = base + ENTRY_SIZE * number
            if at + ENTRY_SIZE > len(view):
                return
            key_hash, offset, difference, previous = ENTRY.unpack_from(view, at)
            yield IndexEntry(number, key_hash, offset, header.begin_timestamp + difference * 1000, previous)

    def log_bytes(self) -> int:
        """How many bytes the commit log's files have."""
        return sum(len(segment.view) for segment in self.segments())

    def topics(self) -> frozenset[str] | None:
        """The topics the broker has configured; None when it left no readable file about them."""
        try:
            table = json.loads((self.root / "config" / "topics.json").read_bytes())["topicConfigTable"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return frozenset(table)

    def checkpoint(self) -> Checkpoint:
        """The checkpoint; zeros when there is none.

        Raises:
            StoreUnreadable: the file is none.
        """
        checkpoint = Checkpoint(self.root / "checkpoint")
        if problems := checkpoint.load():
            raise StoreUnreadable(problems[0])
        return checkpoint

    def checkpoint_time(self) -> int:
        """Up to when everything stored is known to be on disk, queues included, ms; 0 when nobody knows."""
        try:
            return self.checkpoint().min_timestamp
        except StoreUnreadable:
            return 0

    def check(self, slots: int | None = None, progress: Callable[[int], None] | None = None) -> CheckReport:
        """Go over everything: each record, and whether queues, index and the rest agree with the log.

        Args:
            slots: `maxHashSlotNum`; None to find it out.
            progress: told the bytes of the log that are done.
        """
        from tianzhou.store.offline.check import StoreCheck

        return StoreCheck(self, slots).run(progress)


def _steps(segments: list[ReadOnlySegment], begin: int | None, *, check_crc: bool) -> Iterator[Run | LogItem]:
    index = position = 0
    if begin is not None and segments:
        index = max(bisect_right([segment.start for segment in segments], begin) - 1, 0)
        position = max(begin - segments[index].start, 0)
    return walk(segments, index, position, check_crc=check_crc)


def read_index_headers(root: Path) -> list[IndexHeader]:
    """The headers of a store's index files, oldest first."""
    directory = root / "index"
    headers = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        if path.name.isascii() and path.name.isdigit() and path.stat().st_size >= HEADER_SIZE:
            with path.open("rb") as file:
                headers.append(IndexHeader(path, *HEADER.unpack(file.read(HEADER_SIZE))))
    return headers


def segment_paths(directory: Path) -> list[Path]:
    """The segment files of a directory, in order; everything else is left alone."""
    if not directory.is_dir():
        return []
    names = (path for path in directory.iterdir() if len(path.name) == 20 and path.name.isdigit())
    return sorted(names, key=lambda path: path.name)
