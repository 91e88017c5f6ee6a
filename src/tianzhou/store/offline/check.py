"""The check whether the files of a store agree: one walk along the log, in bounded memory (`tianzhou store check`).

Each record contains its queue and queue offset, so the check reads the unit at that place of the queue's file. The
index entries of the record's keys are the next ones of the index. So only counts must be remembered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from tianzhou._hot.records import UNIT
from tianzhou.model import names
from tianzhou.records.codec import CRC_PROPERTY_START, crc_property_fits
from tianzhou.records.framed import NOT_FRAMED
from tianzhou.records.layout import PREPARED, ROLLBACK, TRANSACTION_BITS
from tianzhou.records.walk import Finding, LogEntry, LogItem, Run, read_item, walk
from tianzhou.store.files.folder import is_held
from tianzhou.store.index.index import key_hashes
from tianzhou.store.offline.check_files import check_checkpoint, check_note, check_offsets, topics_of
from tianzhou.store.offline.check_index import IndexWalk
from tianzhou.store.offline.check_queues import BatchQueueCheck, QueueCheck
from tianzhou.store.offline.check_report import CheckReport, Kind, SegmentFile
from tianzhou.store.offline.files import ReadOnlySegment
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.queues.batchqueue import unit_of
from tianzhou.store.queues.consumequeue import UNIT_SIZE
from tianzhou.store.queues.multi_dispatch import stored_places
from tianzhou.wire.hashing import index_hash, java_hash, tags_code
from tianzhou.wire.properties import get_property

_MOST_HEADS: Final = 4096
_STRIDE: Final = 8 << 20
_FOREVER: Final = 1 << 62
_UNKNOWN: Final = 1 << 40  # no tags code
_TAGS: Final = f"{names.TAGS}\x01".encode()
_KEYS: Final = f"{names.KEYS}\x01".encode()
_UNIQ: Final = f"{names.UNIQ_KEY}\x01".encode()
_MULTI: Final = b"INNER_MULTI_DISPATCH\x01"


def check_store(
    scan: StoreScan, slots: int | None = None, progress: Callable[[int], None] | None = None
) -> CheckReport:
    """Check each record, and whether queues, index and the other files agree with the log.

    Args:
        scan: the store.
        slots: `maxHashSlotNum`; None to derive it from the files.
        progress: called with the number of checked bytes of the log.
    """
    return _StoreCheck(scan, slots).run(progress)


class _StoreCheck:
    def __init__(self, scan: StoreScan, slots: int | None) -> None:
        root = scan.root
        self._scan = scan
        self._root = root
        self.report = report = CheckReport()
        report.in_use = is_held(root)
        report.clean = not (root / "abort").exists()
        self._segments = scan.segments()
        self._starts = [segment.start for segment in self._segments]
        report.log_begin = report.log_end = self._segments[0].start if self._segments else 0
        self._safe = _FOREVER if report.clean else scan.checkpoint_time()
        self._queues: dict[tuple[str, int], QueueCheck] = {}
        others = root / "batchconsumequeue"
        self._batch_topics = {d.name for d in others.iterdir()} if others.is_dir() else set()
        self._batches: dict[tuple[str, int], BatchQueueCheck] = {}
        self._index: IndexWalk | None = IndexWalk(root, slots, report)
        if not self._index.present:
            self._index = None
        self._tags: dict[bytes, int] = {}
        self._heads: dict[str, dict[bytes, int]] = {}
        self._rests: dict[bytes, int] = {}
        self._newest = 0

    def run(self, progress: Callable[[int], None] | None) -> CheckReport:
        report = self.report
        self._check_log_files()
        for topic, queue_id in self._scan.queues():
            self._queue(topic, queue_id)
        for name in self._batch_topics:
            for directory in (self._root / "batchconsumequeue" / name).iterdir():
                if directory.name.isdigit():
                    self._batch(name, int(directory.name))
        self._walk(progress)
        report.newest = self._newest
        self._finish()
        check_checkpoint(self._root, report)
        check_offsets(self._root, report, self._max_offset)
        return report

    # the log

    def _check_log_files(self) -> None:
        report = self.report
        lengths = [len(segment.view) for segment in self._segments]
        common = max(set(lengths), key=lengths.count, default=0)
        expected = None
        for segment, length in zip(self._segments, lengths, strict=True):
            report.segments.append(SegmentFile(segment.path, segment.start, length))
            if expected is not None and segment.start != expected:
                report.gaps.append((expected, segment.start))
                report.add(Kind.LOG_FILE, f"commit log: bytes {expected} to {segment.start} are missing, a whole file")
            if length != common and (length or segment is not self._segments[-1]):
                report.add(
                    Kind.LOG_FILE, f"commit log: {segment.path.name} is {length} bytes long, the others have {common}"
                )
            expected = segment.start + max(length, common)

    def _walk(self, progress: Callable[[int], None] | None) -> None:
        report = self.report
        done = 0
        # Uncommitted entries of a group's member are in no queue.
        stop = self._scan.committed_end() if report.clean else NOT_FRAMED
        for step in walk(self._segments, 0, framed_from=self._scan.framed_from, stop=stop):
            if isinstance(step, LogItem) and step.offset >= stop:
                break
            if not isinstance(step, LogItem):
                self._check_run(step)
            elif step.finding is Finding.RECORD:
                assert step.entry is not None
                self._check_record(step.entry)
            elif step.finding is Finding.OTHER:
                report.log_end = step.offset + step.size
            elif step.finding is Finding.DAMAGED:
                end = step.offset + step.size
                report.damaged.append((step.offset, end))
                text = f"commit log: no intact record between {step.offset} and {end}: {step.reason}"
                report.add(Kind.DAMAGED, text)
            else:
                self._look_behind(step)
            if progress is not None and report.log_end - report.log_begin >= done + _STRIDE:
                done = report.log_end - report.log_begin
                progress(done)
        if progress is not None:
            progress(report.log_end - report.log_begin)

    def _look_behind(self, end: LogItem) -> None:
        """Report bytes after the last record, if any."""
        report = self.report
        index = bisect_right(self._starts, end.offset) - 1
        segment, position = self._segments[index], end.offset - self._segments[index].start
        if (data_end := segment.data_end(position)) > position:
            report.tail = segment.start + data_end
        for segment in self._segments[index + 1 :]:
            if (data_end := segment.data_end(0)) > 0:
                report.tail = segment.start + data_end
        if report.tail is not None:
            # RocketMQ leaves bytes that it cut off after a crash. Otherwise only a crash explains them.
            text = f"commit log: {end.reason or 'bytes that are no record'} at {report.log_end}, where the log ends"
            report.add(Kind.TAIL, text, expected=True)

    def _check_run(self, run: Run) -> None:  # noqa: C901 - millions of records, so avoid each call
        pack = UNIT.pack
        queues, batches, tags_of = self._queues, self._batch_topics, self._tags
        index, newest, rests = self._index, self._newest, self._rests
        records = 0
        name, heads = "", self._heads.setdefault("", {})
        for row in run:
            physical, size, topic, queue_id, number, flags, stored, properties = row
            if (
                properties.find(_MULTI) >= 0
                or topic in batches
                or (
                    (properties[-20:-11] == CRC_PROPERTY_START or properties[-11:-1].isdigit())
                    and not crc_property_fits(self._record(physical, size))
                )
            ):
                self._check_record(LogEntry._make(row))
                continue
            if topic != name:
                name, heads = topic, self._heads.setdefault(topic, {})
            kind = flags & TRANSACTION_BITS
            if kind != PREPARED and kind != ROLLBACK:
                queue = queues.get((topic, queue_id))
                if queue is None:
                    queue = self._queue(topic, queue_id)
                found = properties.rfind(_TAGS)
                tags = 0
                if found >= 0:
                    value = properties[found + 5 : properties.find(b"\x02", found)]
                    tags = tags_of.get(value, _UNKNOWN)
                    if tags == _UNKNOWN or (found and properties[found - 1] != 2):
                        tags = self._tags_code(properties, value)
                unit = number * UNIT_SIZE - queue.files.start
                if (
                    number == queue.next
                    and queue.files.map[unit : unit + UNIT_SIZE] == pack(physical, size, tags)
                    and unit >= 0
                ):
                    queue.next = number + 1
                else:
                    queue.record(number, physical, size, None if queue.timed else tags, stored)
            if index is not None and kind != ROLLBACK:
                uniq = properties.rfind(_UNIQ)
                keys = properties.find(_KEYS)
                entry = index.entry
                if keys < 0 <= uniq and (not uniq or properties[uniq - 1] == 2):
                    # One key and one entry, as nearly always. Unique keys share all but their ends with their
                    # neighbours (see `index_hash`).
                    ends = properties.find(b"\x02", uniq)
                    head = heads.get(properties[uniq + 9 : ends - 3])
                    rest = rests.get(properties[ends - 3 : ends])
                    if head is None or rest is None or not 0 < uniq + 12 <= ends:
                        head, rest = self._remember(heads, rests, topic, properties[uniq + 9 : ends]), 0
                    key_hash = head + rest & 0xFFFFFFFF
                    if key_hash >= 0x80000000:
                        key_hash = -key_hash & 0x7FFFFFFF
                    if entry[0] == key_hash and entry[1] == physical and entry[2] == (stored - index.begin) // 1000:
                        index.entry = entry = index.advance()
                        if entry[1] == physical:
                            index.record(physical, stored, [key_hash])
                    else:
                        index.record(physical, stored, key_hashes(topic, properties))
                elif uniq >= 0 or keys >= 0:
                    index.record(physical, stored, key_hashes(topic, properties))
                elif entry[1] <= physical:
                    index.record(physical, stored, [])
            records += 1
            if stored > newest:
                newest = stored
        self._newest = max(self._newest, newest)
        self.report.records += records
        self.report.log_end = run[-1][0] + run[-1][1]

    def _remember(self, heads: dict[bytes, int], rests: dict[bytes, int], topic: str, key: bytes) -> int:
        """Return the hash of a key, and cache its two parts for the next one."""
        if len(key) > 3 and key.isascii():
            if len(heads) >= _MOST_HEADS:
                heads.clear()
            # The hash is a polynomial: with three zero characters at its end, it is the head's share.
            heads[key[:-3]] = java_hash(f"{topic}#{key[:-3].decode()}\0\0\0")
            rests[key[-3:]] = java_hash(key[-3:].decode())
        return index_hash(topic, key.decode("utf-8", "replace"))

    def _tags_code(self, properties: bytes, value: bytes) -> int:
        text = get_property(properties, names.TAGS)
        code = tags_code(text)
        if text is not None and text.encode() == value and len(self._tags) < 10_000:
            self._tags[value] = code
        return code

    def _check_record(self, entry: LogEntry) -> None:
        """Check a record of an unusual form, or with further units."""
        report = self.report
        report.log_end = entry.offset + entry.size
        self._newest = max(self._newest, entry.store_timestamp)
        if not crc_property_fits(self._record(entry.offset, entry.size)):
            report.damaged.append((entry.offset, report.log_end))
            report.add(Kind.DAMAGED, f"commit log: the record at {entry.offset} does not fit its CRC property")
            return
        report.records += 1
        kind = entry.sys_flag & TRANSACTION_BITS
        self._further_units(entry)
        if kind not in {PREPARED, ROLLBACK} and entry.topic not in self._batch_topics:
            tags = (
                None if entry.topic == names.SCHEDULE_TOPIC else tags_code(get_property(entry.properties, names.TAGS))
            )
            queue = self._queue(entry.topic, entry.queue_id)
            queue.record(entry.queue_offset, entry.offset, entry.size, tags, entry.store_timestamp)
        if self._index is not None and kind != ROLLBACK:
            self._index.record(entry.offset, entry.store_timestamp, key_hashes(entry.topic, entry.properties))

    def _further_units(self, entry: LogEntry) -> None:
        """Check units of BatchCQ topics, and of a message's further queues."""
        topic, properties = entry.topic, entry.properties
        if topic in self._batch_topics:
            self._batch(topic, entry.queue_id).record(unit_of(entry))
        for name, queue_id, offset in stored_places(topic, entry.queue_id, properties):
            queue = self._queue(name, queue_id)
            if queue.present:
                tags = tags_code(get_property(properties, names.TAGS))
                queue.record(offset, entry.offset, entry.size, tags, entry.store_timestamp)

    # queues

    def _queue(self, topic: str, queue_id: int) -> QueueCheck:
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = QueueCheck(self._root, topic, queue_id, self.report, self._safe)
        return queue

    def _batch(self, topic: str, queue_id: int) -> BatchQueueCheck:
        key = (topic, queue_id)
        queue = self._batches.get(key)
        if queue is None:
            queue = self._batches[key] = BatchQueueCheck(self._root, topic, queue_id, self.report)
        return queue

    def _finish(self) -> None:
        configured = topics_of(self._root, self.report)
        note = check_note(self._root, self.report)
        for queue in self._queues.values():
            deleted = (configured is not None and queue.topic not in configured) or (
                note is not None and str(queue.queue_id) not in note.queues.get(queue.topic, {})
            )
            queue.finish(self._record_at, deleted=deleted)
        for batch in self._batches.values():
            batch.finish()
        if self._index is not None:
            self._index.finish(behind=note is not None and note.index_behind)

    def _record_at(self, offset: int) -> LogEntry | None:
        if any(start <= offset < end for start, end in self.report.damaged):
            return None
        segment = self._segment(offset)
        if segment is None:
            return None
        return read_item(segment.view, offset - segment.start, segment.start, check_crc=False).entry

    def _segment(self, offset: int) -> ReadOnlySegment | None:
        index = bisect_right(self._starts, offset) - 1
        segment = self._segments[index] if index >= 0 else None
        return segment if segment is not None and offset < segment.start + len(segment.view) else None

    def _record(self, offset: int, size: int) -> memoryview:
        segment = self._segment(offset)
        assert segment is not None
        return segment.view[offset - segment.start : offset - segment.start + size]

    def _max_offset(self, topic: str, queue_id: int) -> int | None:
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.present or (topic, queue_id) in self.report.bad_queues:
            return None
        return queue.end_offset
