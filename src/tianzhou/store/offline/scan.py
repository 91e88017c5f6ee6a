"""A read-only view of a store folder, without locks, writes or repairs.

Serves `tianzhou store dump|check`, offline readers and tests. The folder may be in use; concurrent appends may or may
not be visible.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tianzhou._hot.records import UNIT
from tianzhou.errors import StoreUnreadable
from tianzhou.records.entry import MAGIC
from tianzhou.records.entry import UNIT as ENTRY_UNIT
from tianzhou.records.framed import NOT_FRAMED
from tianzhou.records.walk import Finding, LogEntry, LogItem, Run, single_items, walk
from tianzhou.store.entries.entry_index import FILE_SIZE
from tianzhou.store.entries.member_files import EntryCheckpoint
from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.store.log.holes import is_hole
from tianzhou.store.offline.files import ReadOnlySegment, segment_paths
from tianzhou.store.offline.index_files import IndexHeader, read_index_headers

UNIT_SIZE: Final = UNIT.size


@dataclass(frozen=True, slots=True)
class QueueUnit:
    """One unit of a queue file.

    Attributes:
        queue_offset: its number.
        physical_offset: log offset of its record.
        size: bytes of the record; 0x7FFFFFFF in a blank unit.
        tags_code: store.md §5.3.
    """

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int

    @property
    def blank(self) -> bool:
        """Whether the unit is a placeholder (store.md §5.2)."""
        return is_hole(self.physical_offset, self.size, self.tags_code)


class StoreScan:
    """A store folder as files.

    Args:
        root: the store's root folder.
        commit_log: directories of commit-log segments; None for `root/commitlog`.
        entry_log: directories of them with records in entries; None for that of the DLedger group's member that owns
            the folder, if there is one.

    Attributes:
        member: folder of that member; None in a plain store.
        framed_from: log offset where records in entries begin.

    Raises:
        StoreUnreadable: there is no such folder, or several members own it.
    """

    def __init__(
        self, root: Path | str, commit_log: list[Path] | None = None, entry_log: list[Path] | None = None
    ) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise StoreUnreadable(f"{self.root} is no folder; name the storePathRootDir of a broker")
        self.member = member_folder(self.root)
        if entry_log is None:
            entry_log = [self.member / "data"] if self.member is not None else []
        self._log_directories = list(dict.fromkeys([*(commit_log or log_directories(self.root)), *entry_log]))
        first = [int(path.name) for directory in entry_log for path in segment_paths(directory)]
        self.framed_from = min(first, default=NOT_FRAMED)

    def segments(self) -> list[ReadOnlySegment]:
        """Return the commit log's segments, in order."""
        paths = [path for directory in self._log_directories for path in segment_paths(directory)]
        return [ReadOnlySegment(path) for path in sorted(paths, key=lambda path: path.name)]

    def walk(self, begin: int | None = None, *, check_crc: bool = True) -> Iterator[LogItem]:
        """Yield every record of the log, and every damaged stretch before later records.

        Args:
            begin: offset of a record, or of a segment; None for the log's start.
            check_crc: whether a record whose body does not fit its CRC counts as damaged.
        """
        return single_items(_steps(self.segments(), begin, check_crc=check_crc, framed_from=self.framed_from))

    def records(
        self,
        begin: int | None = None,
        *,
        check_crc: bool = True,
        on_damage: Callable[[LogItem], None] | None = None,
    ) -> Iterator[tuple[LogEntry, memoryview]]:
        """Yield every intact record: its fields, and all its bytes.

        Args:
            begin: as `walk`.
            check_crc: as `walk`.
            on_damage: called with every damaged stretch that is skipped.
        """
        segments = self.segments()
        starts = [segment.start for segment in segments]
        for item in single_items(_steps(segments, begin, check_crc=check_crc, framed_from=self.framed_from)):
            if item.entry is not None:
                segment = segments[bisect_right(starts, item.offset) - 1]
                position = item.offset - segment.start
                yield item.entry, segment.view[position : position + item.size]
            elif on_damage is not None and item.finding is Finding.DAMAGED:
                on_damage(item)

    def queues(self) -> list[tuple[str, int]]:
        """Return topic and number of every queue with a directory, in order."""
        root = self.root / "consumequeue"
        found = []
        if root.is_dir():
            for topic in root.iterdir():
                if topic.is_dir():
                    found += [(topic.name, int(q.name)) for q in topic.iterdir() if q.is_dir() and q.name.isdigit()]
        return sorted(found)

    def units(self, topic: str, queue_id: int) -> Iterator[QueueUnit]:
        """Yield the units of a queue up to the first invalid one (store.md §5.8)."""
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

    def committed_end(self) -> int:
        """Return the end of the committed entries in the log; very large in a plain store, or when it is unknown."""
        if self.member is None:
            return NOT_FRAMED
        place = (EntryCheckpoint(self.member).read().committed_index + 1) * ENTRY_UNIT.size
        file = self.member / "index" / f"{place - place % FILE_SIZE:020d}"
        try:
            with file.open("rb") as units:
                units.seek(place % FILE_SIZE)
                magic, pos, _, _, _ = ENTRY_UNIT.unpack(units.read(ENTRY_UNIT.size))
        except (OSError, struct.error):
            return NOT_FRAMED
        return int(pos) if magic == MAGIC else NOT_FRAMED

    def index_headers(self) -> list[IndexHeader]:
        """Return the headers of all index files, oldest first."""
        return read_index_headers(self.root)

    def log_bytes(self) -> int:
        """Return the total size of the commit log's files in bytes."""
        return sum(len(segment.view) for segment in self.segments())

    def topics(self) -> frozenset[str] | None:
        """Return the topics configured at the broker; None without a readable file."""
        try:
            table = json.loads((self.root / "config" / "topics.json").read_bytes())["topicConfigTable"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return frozenset(table)

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint; zeros without one.

        Raises:
            StoreUnreadable: the file is invalid.
        """
        checkpoint = Checkpoint(self.root / "checkpoint")
        if problems := checkpoint.load():
            raise StoreUnreadable(problems[0])
        return checkpoint

    def checkpoint_time(self) -> int:
        """Return the store time, ms, up to which all records and units are on disk; 0 when it is unknown."""
        try:
            return self.checkpoint().min_timestamp
        except StoreUnreadable:
            return 0


def log_directories(root: Path) -> list[Path]:
    """Return the directories of commit-log segments below a store's root.

    Raises:
        StoreUnreadable: as `member_folder`.
    """
    member = member_folder(root)
    return [root / "commitlog"] if member is None else [root / "commitlog", member / "data"]


def member_folder(root: Path) -> Path | None:
    """Return the folder of the DLedger group's member that owns a store; None in a plain store.

    Raises:
        StoreUnreadable: several members own it.
    """
    found = sorted(path for path in root.glob("dledger-*") if segment_paths(path / "data"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise StoreUnreadable(f"{root} holds the logs of several members of DLedger groups: {names}; move all but one")
    return found[0] if found else None


def _steps(
    segments: list[ReadOnlySegment], begin: int | None, *, check_crc: bool, framed_from: int
) -> Iterator[Run | LogItem]:
    index = position = 0
    if begin is not None and segments:
        index = max(bisect_right([segment.start for segment in segments], begin) - 1, 0)
        position = max(begin - segments[index].start, 0)
    return walk(segments, index, position, check_crc=check_crc, framed_from=framed_from)
