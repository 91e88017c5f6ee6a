"""Whether the files of a store agree: one walk along the log, in bounded memory (`tianzhou store check`).

Each record says in which queue it is and where; the unit that belongs to it is looked at in the queue's file, and
the entries of its keys are the next ones of the index. So nothing has to be remembered but counts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from tianzhou._hot.records import UNIT
from tianzhou.model import names
from tianzhou.store.files.folder import is_held
from tianzhou.store.log.record_scan import PREPARED, ROLLBACK, TRANSACTION_BITS, Finding, LogEntry, read_item
from tianzhou.store.log.recovery import half_written, survey
from tianzhou.store.offline.check_files import check_checkpoint, check_note, check_offsets, topics_of
from tianzhou.store.offline.check_index import IndexWalk
from tianzhou.store.offline.check_queues import BatchQueueCheck, QueueCheck
from tianzhou.store.offline.check_report import CheckReport, Kind, SegmentFile
from tianzhou.store.offline.scan import ReadOnlySegment, StoreScan
from tianzhou.store.queues.consumequeue import UNIT_SIZE
from tianzhou.wire.hashing import crc32, index_hash, java_hash, tags_code
from tianzhou.wire.properties import get_property
from tianzhou.wire.record import (
    BLANK_SIZE,
    BORN_HOST_V6,
    CRC_PROPERTY_BYTES,
    MAGIC_V1,
    STORE_HOST_V6,
    verify_property_crc,
)

# size magic bodyCRC queueId | queueOffset physicalOffset sysFlag | storeTimestamp | bodyLength of a usual record
_PLAIN: Final = struct.Struct(">iiii4xqqi16xq20xi")
_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
_MOST_HEADS: Final = 4096
_STRIDE: Final = 8 << 20
_LIGHT: Final = "%LMQ%"
_FOREVER: Final = 1 << 62
_UNKNOWN: Final = 1 << 40  # no tags code
_CRC_NAME: Final = f"\x02{names.CRC32}\x01".encode()
_TAGS: Final = f"{names.TAGS}\x01".encode()
_KEYS: Final = f"{names.KEYS}\x01".encode()
_UNIQ: Final = f"{names.UNIQ_KEY}\x01".encode()
_MULTI: Final = b"INNER_MULTI_DISPATCH\x01"


class StoreCheck:
    """One check of one store.

    Args:
        scan: the store.
        slots: `maxHashSlotNum`, None to find it out.
    """

    def __init__(self, scan: StoreScan, slots: int | None = None) -> None:
        root = scan.root
        self._scan = scan
        self._root = root
        self.report = report = CheckReport()
        report.in_use = is_held(root)
        report.clean = not (root / "abort").exists()
        self._segments = scan.segments()
        report.log_begin = report.log_end = self._segments[0].start if self._segments else 0
        self._safe = _FOREVER if report.clean else scan.checkpoint_time()
        self._queues: dict[tuple[bytes, int], QueueCheck] = {}
        others = root / "batchconsumequeue"
        self._batch_topics = {d.name.encode() for d in others.iterdir()} if others.is_dir() else set()
        self._batches: dict[tuple[bytes, int], BatchQueueCheck] = {}
        self._index: IndexWalk | None = IndexWalk(root, slots, report)
        if not self._index.present:
            self._index = None
        self._tags: dict[bytes, int] = {}
        self._heads: dict[bytes, dict[bytes, int]] = {}
        self._rests: dict[bytes, int] = {}
        self._newest = 0

    def run(self, progress: Callable[[int], None] | None = None) -> CheckReport:
        """Check everything.

        Args:
            progress: told the bytes of the log that are done.
        """
        report = self.report
        self._check_log_files()
        for topic, queue_id in self._scan.queues():
            self._queue(topic.encode(), queue_id)
        for name in self._batch_topics:
            for directory in (self._root / "batchconsumequeue" / name.decode()).iterdir():
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
        usual = max(set(lengths), key=lengths.count, default=0)
        expected = None
        for segment, length in zip(self._segments, lengths, strict=True):
            report.segments.append(SegmentFile(segment.path, segment.start, length))
            if expected is not None and segment.start != expected:
                report.gaps.append((expected, segment.start))
                report.add(Kind.LOG_FILE, f"commit log: bytes {expected} to {segment.start} are missing, a whole file")
            if length != usual and (length or segment is not self._segments[-1]):
                report.add(
                    Kind.LOG_FILE, f"commit log: {segment.path.name} is {length} bytes long, the others have {usual}"
                )
            expected = segment.start + max(length, usual)

    def _walk(self, progress: Callable[[int], None] | None) -> None:
        segments = self._segments
        report = self.report
        index = position = 0
        done = 0
        while index < len(segments):
            segment = segments[index]
            position, more = self._run(segment, position, position + _STRIDE)
            if progress is not None:
                progress(done + position)
            if more:
                continue
            item = read_item(segment.view, position, segment.start)
            if item.finding is Finding.RECORD and not half_written(item, segment):
                assert item.entry is not None
                self._unusual(item.entry, segment.view[position : position + item.size])
                position += item.size
            elif item.finding is Finding.BLANK:
                done += len(segment.view)
                index, position = index + 1, 0
            else:
                damage = next(iter(survey(segments, index, position, newest=self._newest)), None)
                if damage is None or damage.finding is not Finding.DAMAGED:
                    self._look_behind(segments[index:], position, item.reason)
                    return
                end = damage.offset + damage.size
                report.damaged.append((damage.offset, end))
                report.add(
                    Kind.DAMAGED,
                    f"commit log: no intact record between {damage.offset} and {end}: {damage.reason}",
                )
                while segments[index].start + len(segments[index].view) <= end:
                    done += len(segments[index].view)
                    index += 1
                position = end - segments[index].start

    def _look_behind(self, segments: list[ReadOnlySegment], position: int, reason: str) -> None:
        """What follows the last record, if anything."""
        report = self.report
        end = segments[0].data_end(position)
        if end > position:
            report.tail = segments[0].start + end
        for segment in segments[1:]:
            if (end := segment.data_end(0)) > 0:
                report.tail = segment.start + end
        if report.tail is not None:
            # RocketMQ leaves what it cut off after a crash; only a crash explains it otherwise.
            text = f"commit log: {reason or 'bytes that are no record'} at {report.log_end}, where the log ends"
            report.add(Kind.TAIL, text, expected=True)

    def _run(  # noqa: C901 - one pass over millions of records: no call that can be avoided
        self, segment: ReadOnlySegment, position: int, until: int
    ) -> tuple[int, bool]:
        """Check usual records from `position` on.

        Returns:
            How far it came, and whether it stopped because that is about `until` and not at something unusual.
        """
        memory = segment.map
        more = False
        if memory is None:
            return position, more
        view, base = segment.view, segment.start
        last = len(view) - BLANK_SIZE
        heads_end = last - _PLAIN.size
        unpack = _PLAIN.unpack_from
        pack = UNIT.pack
        queues = self._queues
        batches = self._batch_topics
        tags_of = self._tags
        index = self._index
        newest = self._newest
        records = 0
        name, queue_name = b"", ""
        heads: dict[bytes, int] = {}
        rests = self._rests
        while position < heads_end:
            if position >= until:
                more = True
                break
            size, magic, body_crc, queue_id, number, physical, flags, stored, body_size = unpack(view, position)
            at = position + 88 + body_size
            end = position + size
            if magic != MAGIC_V1 or flags & _V6 or physical != base + position or body_size < 0 or not at < end <= last:
                break
            tail = memory[at:end]
            topic_size = tail[0]
            start = topic_size + 3
            if start > len(tail) or (tail[start - 2] << 8 | tail[start - 1]) != len(tail) - start or not tail[-1]:
                break
            if body_size and crc32(view[position + 88 : at]) != body_crc:
                break
            if tail[-21:-11] == _CRC_NAME and not verify_property_crc(view[position:end]):
                break
            topic = tail[1 : topic_size + 1]
            kind = flags & TRANSACTION_BITS
            if topic != name:
                try:
                    name, queue_name = topic, topic.decode()
                except UnicodeDecodeError:
                    break
                heads = self._heads.setdefault(name, {})
            if tail.find(_MULTI) >= 0 or topic in batches:
                try:
                    self._additional(topic, queue_id, number, physical, size, stored, tail[start:])
                except ValueError:
                    break
            if kind != PREPARED and kind != ROLLBACK and topic not in batches:
                queue = queues.get((topic, queue_id))
                if queue is None:
                    queue = self._queue(topic, queue_id)
                found = tail.rfind(_TAGS)
                tags = 0
                if found >= 0:
                    value = tail[found + 5 : tail.find(b"\x02", found)]
                    tags = tags_of.get(value, _UNKNOWN)
                    if tags == _UNKNOWN or (tail[found - 1] != 2 and found != start):
                        tags = self._tags_code(tail[start:], value)
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
                uniq = tail.rfind(_UNIQ)
                keys = tail.find(_KEYS)
                entry = index.entry
                if keys < 0 <= uniq and (tail[uniq - 1] == 2 or uniq == start):
                    # One key and one entry, as nearly always. Unique keys share all but their ends with their
                    # neighbours (see `index_hash`).
                    ends = tail.find(b"\x02", uniq)
                    head = heads.get(tail[uniq + 9 : ends - 3])
                    rest = rests.get(tail[ends - 3 : ends])
                    if head is None or rest is None or not 0 < uniq + 12 <= ends:
                        head, rest = self._remember(heads, rests, queue_name, tail[uniq + 9 : ends]), 0
                    key_hash = head + rest & 0xFFFFFFFF
                    if key_hash >= 0x80000000:
                        key_hash = -key_hash & 0x7FFFFFFF
                    if entry[0] == key_hash and entry[1] == physical and entry[2] == (stored - index.begin) // 1000:
                        index.entry = entry = index.advance()
                        if entry[1] == physical:
                            index.record(physical, stored, [key_hash])
                    else:
                        index.record(physical, stored, key_hashes(queue_name, tail[start:]))
                elif uniq >= 0 or keys >= 0:
                    index.record(physical, stored, key_hashes(queue_name, tail[start:]))
                elif entry[1] <= physical:
                    index.record(physical, stored, [])
            records += 1
            if stored > newest:
                newest = stored
            position = end
        self._newest = newest
        self.report.records += records
        if records:
            self.report.log_end = base + position
        return position, more

    def _remember(self, heads: dict[bytes, int], rests: dict[bytes, int], topic: str, key: bytes) -> int:
        """The hash of a key, whose two parts are kept for the next one."""
        if len(key) > 3 and key.isascii():
            if len(heads) >= _MOST_HEADS:
                heads.clear()
            # Hashing is a polynomial: with three zero characters at its end, it is the head's share.
            heads[key[:-3]] = java_hash(f"{topic}#{key[:-3].decode()}\0\0\0")
            rests[key[-3:]] = java_hash(key[-3:].decode())
        return index_hash(topic, key.decode("utf-8", "replace"))

    def _tags_code(self, properties: bytes, value: bytes) -> int:
        text = get_property(properties, names.TAGS)
        code = tags_code(text)
        if text is not None and text.encode() == value and len(self._tags) < 10_000:
            self._tags[value] = code
        return code

    def _additional(
        self, topic: bytes, queue_id: int, number: int, physical: int, size: int, stored: int, properties: bytes
    ) -> None:
        """Units beside the usual one: of BatchCQ topics, and of the queues a message is dispatched to as well."""
        tags = tags_code(get_property(properties, names.TAGS))
        if topic in self._batch_topics:
            base = int(get_property(properties, names.INNER_BASE) or number)
            count = int(get_property(properties, names.INNER_NUM) or 1)
            self._batch(topic, queue_id).record(physical, size, tags, stored, base, count)
        others = (get_property(properties, "INNER_MULTI_DISPATCH") or "").split(",")
        offsets = (get_property(properties, "INNER_MULTI_QUEUE_OFFSET") or "").split(",")
        if len(others) == len(offsets):
            for name, offset in zip(others, offsets, strict=True):
                if name and offset.isdigit() and "/" not in name:
                    queue = self._queue(name.encode(), 0 if name.startswith(_LIGHT) else queue_id)
                    if queue.present:
                        queue.record(int(offset), physical, size, tags, stored)

    def _unusual(self, entry: LogEntry, record: memoryview) -> None:
        """A record of version 2, with IPv6 addresses, or without properties."""
        report = self.report
        report.records += 1
        report.log_end = entry.offset + entry.size
        self._newest = max(self._newest, entry.store_timestamp)
        topic = entry.topic.encode()
        if _CRC_NAME[1:] == bytes(record[-CRC_PROPERTY_BYTES:-11]) and not verify_property_crc(record):
            report.records -= 1
            report.damaged.append((entry.offset, report.log_end))
            report.add(Kind.DAMAGED, f"commit log: the record at {entry.offset} does not fit its CRC property")
            return
        kind = entry.sys_flag & TRANSACTION_BITS
        self._additional(
            topic, entry.queue_id, entry.queue_offset, entry.offset, entry.size, entry.store_timestamp, entry.properties
        )
        if kind not in {PREPARED, ROLLBACK} and topic not in self._batch_topics:
            tags = (
                None if entry.topic == names.SCHEDULE_TOPIC else tags_code(get_property(entry.properties, names.TAGS))
            )
            queue = self._queue(topic, entry.queue_id)
            queue.record(entry.queue_offset, entry.offset, entry.size, tags, entry.store_timestamp)
        if self._index is not None and kind != ROLLBACK:
            self._index.record(entry.offset, entry.store_timestamp, key_hashes(entry.topic, entry.properties))

    # queues

    def _queue(self, topic: bytes, queue_id: int) -> QueueCheck:
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = QueueCheck(self._root, topic.decode(), queue_id, self.report, self._safe)
        return queue

    def _batch(self, topic: bytes, queue_id: int) -> BatchQueueCheck:
        key = (topic, queue_id)
        queue = self._batches.get(key)
        if queue is None:
            queue = self._batches[key] = BatchQueueCheck(self._root, topic.decode(), queue_id, self.report)
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
        for segment in self._segments:
            if segment.start <= offset < segment.start + len(segment.view):
                return read_item(segment.view, offset - segment.start, segment.start, check_crc=False).entry
        return None

    def _max_offset(self, topic: str, queue_id: int) -> int | None:
        queue = self._queues.get((topic.encode(), queue_id))
        if queue is None or not queue.present or (topic, queue_id) in self.report.bad_queues:
            return None
        return queue.end_offset


def key_hashes(topic: str, properties: bytes) -> list[int]:
    """Hashes of a record's keys, in the order they are indexed (store.md §8.4)."""
    uniq = get_property(properties, names.UNIQ_KEY)
    keys = (get_property(properties, names.KEYS) or "").split(" ")
    return [index_hash(topic, key) for key in ([uniq] if uniq else []) + keys if key]
