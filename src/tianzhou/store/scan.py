"""Looking into a store folder without touching it: no lock, no writes, no repair.

Serves `tianzhou store dump|check`, offline readers and tests. The folder may be in use; what is appended
meanwhile may or may not be seen.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tianzhou._hot.records import UNIT
from tianzhou.errors import StoreUnreadable
from tianzhou.store.checkpoint import Checkpoint
from tianzhou.store.consumequeue import BLANK_SIZE, UNIT_SIZE
from tianzhou.store.index import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE
from tianzhou.store.logscan import (
    PREPARED,
    ROLLBACK,
    TRANSACTION_BITS,
    Finding,
    LogEntry,
    LogItem,
)
from tianzhou.store.recovery import survey

_LIGHT_PREFIX: Final = "%LMQ%"


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

    def find(self, needle: bytes, position: int) -> int:
        """Position of the next `needle`, -1 without one."""
        return -1 if self._map is None else self._map.find(needle, position)


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
        return self.size == BLANK_SIZE and self.physical_offset == 0


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


@dataclass
class CheckReport:
    """What `StoreScan.check` found.

    Attributes:
        records: intact records in the log.
        units: queue units that point to one of them.
        expired_units: queue units whose records have been deleted with their segment.
        index_entries: entries of index files.
        log_begin: start of the log.
        log_end: end of the last intact record.
        problems: what does not fit, in words; empty for a sound store.
    """

    records: int = 0
    units: int = 0
    expired_units: int = 0
    index_entries: int = 0
    log_begin: int = 0
    log_end: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing was found wrong."""
        return not self.problems


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
        paths = [path for directory in self._log_directories for path in _segment_paths(directory)]
        return [ReadOnlySegment(path) for path in sorted(paths, key=lambda path: path.name)]

    def walk(self, begin: int | None = None, *, check_crc: bool = True) -> Iterator[LogItem]:
        """Every record of the log, and every damaged stretch that records follow.

        Args:
            begin: offset of a record, or of a segment; None for the log's start.
            check_crc: take records whose body does not fit its CRC as damaged.
        """
        segments = self.segments()
        index = position = 0
        if begin is not None:
            while index + 1 < len(segments) and segments[index + 1].start <= begin:
                index += 1
            if segments:
                position = max(begin - segments[index].start, 0)
        yield from survey(segments, index, position, check_crc=check_crc)

    def records(self, begin: int | None = None, *, check_crc: bool = True) -> Iterator[tuple[LogEntry, memoryview]]:
        """Every intact record: what it says about itself, and all its bytes.

        Args:
            begin: as `walk`.
            check_crc: as `walk`.
        """
        segments = self.segments()
        starts = {segment.start: segment for segment in segments}
        order = sorted(starts)
        at = 0
        for item in self.walk(begin, check_crc=check_crc):
            if item.entry is None:
                continue
            while at + 1 < len(order) and order[at + 1] <= item.offset:
                at += 1
            view = starts[order[at]].view
            position = item.offset - order[at]
            yield item.entry, view[position : position + item.size]

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
        for path in _segment_paths(directory):
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
        directory = self.root / "index"
        headers = []
        for path in sorted(directory.iterdir()) if directory.is_dir() else []:
            if path.name.isdigit() and path.stat().st_size >= HEADER_SIZE:
                with path.open("rb") as file:
                    headers.append(IndexHeader(path, *HEADER.unpack(file.read(HEADER_SIZE))))
        return headers

    def index_entries(self, header: IndexHeader, slots: int) -> Iterator[IndexEntry]:
        """The entries of one index file.

        Args:
            header: of the file.
            slots: `maxHashSlotNum` of the broker that wrote it.
        """
        view = ReadOnlySegment(header.path).view
        base = HEADER_SIZE + 4 * slots
        for number in range(1, max(header.count, 1)):
            at = base + ENTRY_SIZE * number
            if at + ENTRY_SIZE > len(view):
                return
            key_hash, offset, difference, previous = ENTRY.unpack_from(view, at)
            yield IndexEntry(number, key_hash, offset, header.begin_timestamp + difference * 1000, previous)

    def checkpoint(self) -> Checkpoint:
        """The checkpoint; zeros when there is none.

        Raises:
            StoreUnreadable: the file is none.
        """
        checkpoint = Checkpoint(self.root / "checkpoint")
        checkpoint.load()
        return checkpoint

    def check(self, slots: int | None = None) -> CheckReport:
        """Go over everything: each record, and whether queues and index agree with the log.

        Args:
            slots: `maxHashSlotNum`; None leaves the index entries out.
        """
        report = CheckReport()
        placed: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
        starts: set[int] = set()
        segments = self.segments()
        report.log_begin = segments[0].start if segments else 0
        self._check_sizes(report, segments)
        for item in self.walk():
            if item.finding is Finding.DAMAGED:
                report.problems.append(
                    f"commit log: no intact record between {item.offset} and {item.offset + item.size}: {item.reason}"
                )
                continue
            entry = item.entry
            assert entry is not None
            report.records += 1
            report.log_end = entry.offset + entry.size
            starts.add(entry.offset)
            if entry.sys_flag & TRANSACTION_BITS not in {PREPARED, ROLLBACK}:
                placed.setdefault((entry.topic, entry.queue_id), {})[entry.queue_offset] = (
                    entry.offset,
                    entry.size,
                )
        self._check_queues(report, placed, starts)
        if slots is not None:
            self._check_index(report, starts, slots)
        return report

    def _check_sizes(self, report: CheckReport, segments: list[ReadOnlySegment]) -> None:
        expected = None
        for segment in segments:
            if expected is not None and segment.start != expected:
                report.problems.append(f"commit log: the segment that should start at {expected} is missing")
            expected = segment.start + len(segment.view)

    def _check_queues(
        self, report: CheckReport, placed: dict[tuple[str, int], dict[int, tuple[int, int]]], starts: set[int]
    ) -> None:
        for topic, queue_id in self.queues():
            light = topic.startswith(_LIGHT_PREFIX)
            records = placed.pop((topic, queue_id), {})
            for unit in self.units(topic, queue_id):
                if unit.blank:
                    continue
                if unit.physical_offset < report.log_begin:
                    report.expired_units += 1
                    continue
                place = records.pop(unit.queue_offset, None)
                # Records of a light queue bear the name and number of another one (store.md §7).
                if place == (unit.physical_offset, unit.size) or (light and unit.physical_offset in starts):
                    report.units += 1
                else:
                    there = f"the log has it at {place[0]}" if place else "the log has no such record"
                    report.problems.append(
                        f"queue {topic}/{queue_id}: unit {unit.queue_offset} points to {unit.physical_offset}, {there}"
                    )
            if records:
                report.problems.append(f"queue {topic}/{queue_id}: {len(records)} records of the log have no unit")
        others = self.root / "batchconsumequeue"
        elsewhere = {path.name for path in others.iterdir()} if others.is_dir() else set()
        for (topic, queue_id), records in placed.items():
            if topic not in elsewhere:
                report.problems.append(
                    f"queue {topic}/{queue_id} is missing; the log has {len(records)} records for it"
                )

    def _check_index(self, report: CheckReport, starts: set[int], slots: int) -> None:
        for header in self.index_headers():
            for entry in self.index_entries(header, slots):
                report.index_entries += 1
                if entry.physical_offset >= report.log_begin and entry.physical_offset not in starts:
                    report.problems.append(
                        f"index {header.path.name}: entry {entry.number} points to {entry.physical_offset}, "
                        "where no record begins"
                    )


def _segment_paths(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if len(path.name) == 20 and path.name.isdigit())
