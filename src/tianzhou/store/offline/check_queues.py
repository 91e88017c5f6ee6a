"""The check of queue files against the log, by the place of each record's unit (store.md §5, §6, §7)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path
from typing import Final

from tianzhou._hot.records import EXTENSION_ADDRESS, UNIT
from tianzhou.model import names
from tianzhou.records.walk import LogEntry
from tianzhou.store.log.holes import is_hole
from tianzhou.store.offline.check_report import CheckReport, Kind
from tianzhou.store.offline.files import ReadOnlySegment, segment_paths
from tianzhou.store.queues.batchqueue import BATCH_UNIT, BatchUnit
from tianzhou.store.queues.consumequeue import UNIT_SIZE
from tianzhou.store.queues.extension import HEAD as EXTENSION_HEAD

_MAPS: Final = 256
_NOTHING: Final = memoryview(b"")
_FAR: Final = 1 << 62
_NO_UNIT: Final = BatchUnit(_FAR, 0, 0, 0, 0, 0)
"""The unit after the last one."""

RecordAt = Callable[[int], LogEntry | None]


class QueueFiles:
    """The files of one queue, one of them mapped at a time.

    Args:
        directory: directory of the files.
        name: name of the queue, for reports.
        unit: bytes of a unit.
        report: receives problems of the files themselves.
    """

    __slots__ = ("_files", "begin", "end", "files_wrong", "map", "name", "start", "view")

    # Every map takes a descriptor, and there may be thousands of queues.
    _mapped: dict[QueueFiles, None] = {}  # noqa: RUF012 - shared on purpose

    def __init__(self, directory: Path, name: str, unit: int, report: CheckReport) -> None:
        self.name = name
        self.view = _NOTHING
        self.map: mmap | bytes = b""
        self.start = -_FAR
        self.files_wrong = False
        self._files: list[tuple[int, int, Path]] = []
        expected = common = None
        for path in segment_paths(directory):
            start, length = int(path.name), path.stat().st_size
            if length == 0:
                # The file was created just before a crash.
                continue
            if (expected is not None and start != expected) or length % unit or length != (common or length):
                what = f"is {length} bytes long" if start == expected else "does not follow the one before"
                report.add(Kind.QUEUE_FILE, f"queue {name}: file {path.name} {what}; it is not looked at")
                self.files_wrong = True
                break
            self._files.append((start, start + length, path))
            expected, common = start + length, length
        self.begin = self._files[0][0] if self._files else 0
        self.end = self._files[-1][1] if self._files else 0

    def open(self, position: int) -> bool:
        """Map the file that contains a byte position; return False without one."""
        for start, end, path in self._files:
            if start <= position < end:
                mapped = QueueFiles._mapped
                mapped.pop(self, None)
                while len(mapped) >= _MAPS:
                    next(iter(mapped)).close()
                segment = ReadOnlySegment(path)
                assert segment.map is not None
                self.map, self.view, self.start = segment.map, segment.view, start
                mapped[self] = None
                return True
        return False

    def close(self) -> None:
        """Unmap the file."""
        self.map, self.view, self.start = b"", _NOTHING, -_FAR
        QueueFiles._mapped.pop(self, None)

    def unit(self, layout: struct.Struct, number: int) -> tuple[int, ...] | None:
        """Return unit number `number`; None when the files do not contain it."""
        position = number * layout.size
        at = position - self.start
        if not 0 <= at < len(self.view):
            if not self.open(position):
                return None
            at = position - self.start
        return layout.unpack_from(self.view, at)


class QueueCheck:
    """One queue of 20-byte units, during the walk along the log.

    Args:
        root: the store.
        topic: topic of the queue.
        queue_id: its number.
        report: receives the problems.
        safe: store time, ms, up to which records must have their units; later ones get them at the next start.

    Attributes:
        next: the record after the last one with a right unit. A caller that finds the unit of this record right itself
            may increase it and skip the call of `record`.
    """

    __slots__ = (
        "_absent",
        "_absent_later",
        "_first_absent",
        "_former",
        "_late",
        "_report",
        "_root",
        "_safe",
        "_wrong",
        "end_offset",
        "files",
        "first",
        "hits",
        "last",
        "next",
        "present",
        "queue_id",
        "timed",
        "topic",
    )

    def __init__(self, root: Path, topic: str, queue_id: int, report: CheckReport, safe: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        # Their tags codes are the times at which they are due.
        self.timed = topic == names.SCHEDULE_TOPIC
        directory = root / "consumequeue" / topic / str(queue_id)
        self.present = directory.is_dir()
        self.files = QueueFiles(directory, f"{topic}/{queue_id}", UNIT_SIZE, report)
        self.hits = 0
        self.end_offset = 0
        self.first = self.last = self.next = -1
        self._root = root
        self._report = report
        self._safe = safe
        self._former = 0
        self._absent = self._absent_later = 0
        self._first_absent = -1
        self._late = 0
        self._wrong = 0

    def record(self, number: int, physical: int, size: int, tags: int | None, stored: int) -> None:
        """Check the unit of one record.

        Args:
            number: queue offset.
            physical: log offset of the record.
            size: its length.
            tags: the code that the unit must have; None for any.
            stored: store time, ms.
        """
        self._take_in()
        if not self.hits and number <= self.last:
            # The topic was deleted and created again, so earlier counts are of the deleted topic.
            self._former += self._absent + self._absent_later + self._wrong + self._late
            self._absent = self._absent_later = self._wrong = self._late = 0
            self.last = -1
        files = self.files
        at = number * UNIT_SIZE - files.start
        if not 0 <= at < len(files.view):
            at = number * UNIT_SIZE - files.start if number >= 0 and files.open(number * UNIT_SIZE) else -1
        there = UNIT.unpack_from(files.view, at) if at >= 0 else (0, 0, 0)
        if there[0] == physical and there[1] == size:
            if there[2] != tags and tags is not None:
                self._other_tags(number, tags, there[2], stored)
            if self.hits == 0:
                self.first = number
            self.hits += 1
            self.last = number
            self.next = number + 1
        else:
            self._miss(number, physical, there, stored)

    def _take_in(self) -> None:
        """Count the units that the caller has found right."""
        if self.next > self.last + 1:
            self.hits += self.next - self.last - 1
            self.last = self.next - 1

    def _miss(self, number: int, physical: int, there: tuple[int, int, int], stored: int) -> None:
        self.last = max(self.last, number) if self.hits else number
        self.next = -1
        if there[1] <= 0 or is_hole(*there):
            if not self._absent + self._absent_later:
                self._first_absent = number
            if stored > self._safe:
                self._absent_later += 1
            else:
                self._absent += 1
        elif stored > self._safe and there[0] > physical:
            self._late += 1
        else:
            self._wrong += 1

    def _other_tags(self, number: int, expected: int, found: int, stored: int) -> None:
        if found <= EXTENSION_ADDRESS:
            if self._extended(found) != expected:
                self._report.add(
                    Kind.EXTENSION,
                    f"queue {self.files.name}: unit {number} leads to no extension unit with its tags code",
                )
            return
        self._add(Kind.UNIT_WRONG, f"unit {number} has tags code {found}, its record {expected}", stored > self._safe)

    def _extended(self, address: int) -> int | None:
        position = address + (1 << 63)
        directory = self._root / "consumequeue_ext" / self.topic / str(self.queue_id)
        for path in reversed(segment_paths(directory)):
            if int(path.name) <= position:
                with path.open("rb") as file:
                    file.seek(position - int(path.name))
                    data = file.read(EXTENSION_HEAD.size)
                if len(data) == EXTENSION_HEAD.size:
                    size, code, _, bits = EXTENSION_HEAD.unpack(data)
                    return int(code) if size == EXTENSION_HEAD.size + bits else None
        return None

    def _add(self, kind: Kind, text: str, expected: bool = False, count: int = 1) -> None:
        if not expected:
            self._report.bad_queues.add((self.topic, self.queue_id))
        self._report.add(kind, f"queue {self.files.name}: {text}", expected=expected, count=count)

    def finish(self, record_at: RecordAt, *, deleted: bool) -> None:
        """Check the units without a record in the walk.

        Args:
            record_at: returns the intact record at an offset.
            deleted: whether a missing queue was deleted on purpose.
        """
        self._take_in()
        report = self._report
        unclean = not report.clean
        missing = self._absent + self._absent_later + self._wrong + self._late
        if not self.present:
            if deleted:
                report.former_records += missing
            elif missing:
                expected = unclean and not self._absent + self._wrong
                self._add(
                    Kind.QUEUE_MISSING, f"it is not there; the log has {missing} records for it", expected, missing
                )
            return
        report.queues += 1
        report.units += self.hits
        report.former_records += self._former
        if self.files.files_wrong:
            report.bad_queues.add((self.topic, self.queue_id))
        if self._wrong:
            self._add(Kind.UNIT_WRONG, f"units that point to other records: {self._wrong}", count=self._wrong)
        if self._late:
            self._add(
                Kind.UNIT_WRONG, f"units that point to other records: {self._late}", expected=True, count=self._late
            )
        for count, expected in ((self._absent, False), (self._absent_later, unclean)):
            if count:
                text = f"records without a unit: {count}, the first is offset {self._first_absent}"
                self._add(Kind.UNIT_MISSING, text, expected, count)
        self._look_at_rest(record_at)
        if (self.topic, self.queue_id) in report.bad_queues and report.clean and not self.files.files_wrong:
            report.ends[self.topic, self.queue_id] = self.end_offset
        self.files.close()

    def _look_at_rest(self, record_at: RecordAt) -> None:
        report = self._report
        begin = self.files.begin // UNIT_SIZE
        seen = range(0)
        if self.hits == self.last + 1 - self.first and self.hits:
            seen = range(self.first, self.last + 1)
        expired = self._expired_before(begin, seen.start) if seen else 0
        report.expired_units += expired
        dangling = behind = 0
        example = ""
        for number, physical, size, tags in self._units(begin + expired, seen):
            if is_hole(physical, size, tags):
                report.blank_units += 1
            elif physical < report.log_begin:
                report.expired_units += 1
            elif physical >= report.log_end:
                behind += 1
                example = example or f"unit {number}, to {physical}"
            elif not self._fits(record_at(physical), number, size):
                dangling += 1
                example = example or f"unit {number}, to {physical}"
        if dangling:
            self._add(
                Kind.UNIT_DANGLING,
                f"units that point to no record of theirs: {dangling}, the first is {example}",
                False,
                dangling,
            )
        elif behind:
            text = f"units that point behind the log's end {report.log_end}: {behind}, the first is {example}"
            self._add(Kind.UNIT_DANGLING, text, not report.clean, behind)

    def _expired_before(self, begin: int, end: int) -> int:
        """Return how many units from `begin` on point to deleted records, when all units before `end` do; else 0.

        Log offsets grow along a queue, so the last unit shows it.
        """
        unit = self.files.unit(UNIT, end - 1) if end > begin else None
        if unit is None or is_hole(*unit) or not 0 <= unit[0] < self._report.log_begin:
            return 0
        return end - begin

    def _units(self, begin: int, seen: range) -> Iterator[tuple[int, int, int, int]]:
        """Yield the valid units from number `begin` on except those in `seen`."""
        number = begin
        while number * UNIT_SIZE < self.files.end:
            if number in seen:
                number = seen.stop
                continue
            unit = self.files.unit(UNIT, number)
            if unit is None or unit[0] < 0 or unit[1] <= 0:
                break
            yield number, unit[0], unit[1], unit[2]
            number += 1
        self.end_offset = number

    def _fits(self, entry: LogEntry | None, number: int, size: int) -> bool:
        if entry is None or entry.size != size:
            return False
        own = (entry.topic, entry.queue_id, entry.queue_offset) == (self.topic, self.queue_id, number)
        # Light and other additional queues are named in the record's properties.
        return own or self.topic.encode() in entry.properties


class BatchQueueCheck:
    """One BatchCQ queue (store.md §6): its units follow the order of the log, one per record.

    Args:
        root: the store.
        topic: topic of the queue.
        queue_id: its number.
        report: receives the problems.
    """

    def __init__(self, root: Path, topic: str, queue_id: int, report: CheckReport) -> None:
        directory = root / "batchconsumequeue" / topic / str(queue_id)
        self.present = directory.is_dir()
        self._files = QueueFiles(directory, f"{topic}/{queue_id}", BATCH_UNIT.size, report)
        self._report = report
        self._key = (topic, queue_id)
        if self._files.files_wrong:
            report.bad_batches.add(self._key)
        self._number = self._files.begin // BATCH_UNIT.size
        self._missing = self._dangling = 0
        self._read()
        while 0 <= self._unit.physical_offset < report.log_begin:
            report.expired_units += 1
            self._read()

    def _read(self) -> None:
        unit = self._files.unit(BATCH_UNIT, self._number)
        if unit is None or unit[0] < 0 or unit[1] <= 0 or unit[5] <= 0:
            self._unit = _NO_UNIT
            return
        self._unit = BatchUnit._make(unit[:6])
        self._number += 1

    def record(self, unit: BatchUnit) -> None:
        """Check the unit of one record.

        Args:
            unit: the expected unit.
        """
        while self._unit.physical_offset < unit.physical_offset:
            self._dangling += 1
            self._read()
        if self._unit.physical_offset > unit.physical_offset:
            self._missing += 1
            return
        if self._unit != unit:
            self._report.bad_batches.add(self._key)
            self._report.add(
                Kind.UNIT_WRONG,
                f"queue {self._files.name}: unit {self._number - 1} says {self._unit[1:]} of the record at "
                f"{unit.physical_offset}, which says {unit[1:]} (size, tags code, store time, first offset, messages)",
            )
        self._report.units += 1
        self._read()

    def finish(self) -> None:
        """Report units after the last record, and missing units."""
        report = self._report
        report.queues += self.present
        while self._unit is not _NO_UNIT:
            self._dangling += 1
            self._read()
        for count, kind, text in (
            (self._missing, Kind.UNIT_MISSING, "records without a unit"),
            (self._dangling, Kind.UNIT_DANGLING, "units that point to no record of theirs"),
        ):
            if count:
                if report.clean:
                    report.bad_batches.add(self._key)
                report.add(kind, f"queue {self._files.name}: {text}: {count}", expected=not report.clean, count=count)
        self._files.close()
