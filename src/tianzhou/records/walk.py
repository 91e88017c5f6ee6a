"""The walk over a commit log: runs of ordinary records, single records, and damage (store.md §3.5, §10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

import msgspec

from tianzhou._hot import next_entries, next_run
from tianzhou._hot.runs import Row
from tianzhou.records.checksum import crc32
from tianzhou.records.codec import crc_property_fits, verify_property_crc
from tianzhou.records.entry import HEADER_SIZE, EntryHeader
from tianzhou.records.framed import (
    NOT_FRAMED,
    EntryTrail,
    entry_at,
    entry_begin,
    holds_record,
    is_end,
    is_untouched,
)
from tianzhou.records.layout import (
    BLANK_SIZE,
    HEAD_SIZE,
    HOST_BITS,
    MAGIC_BLANK,
    MAGIC_START,
    MAGIC_V1,
    MAGICS,
    NUMBER,
    OVERHEAD,
    POSITION,
    SIZE_MAGIC,
    body_size_at,
    fields_at,
    store_time_at,
)

MOST_OF_RUN: Final = 256
"""Records of a run, so that little memory holds them."""
_HEAD: Final = fields_at(
    "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp", "body_size"
)


class Finding(Enum):
    """Kind of what stands at a position of the log.

    OTHER is the body of an entry that is no message record: a node's own.
    """

    RECORD = auto()
    OTHER = auto()
    BLANK = auto()
    NOTHING = auto()
    DAMAGED = auto()


class LogEntry(NamedTuple):
    """Fields of a record beside its body.

    Attributes:
        offset: where it begins.
        size: its length.
        topic: topic.
        queue_id: queue.
        queue_offset: number in the queue.
        sys_flag: store.md §0.4.
        store_timestamp: ms.
        properties: the property string.
    """

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes


class LogItem(msgspec.Struct):
    """One step of a walk over the log.

    Attributes:
        finding: what stands here.
        offset: where, absolutely.
        size: bytes to the next thing; 0 when that is unknown.
        entry: the record, when it is one.
        reason: why it counts as damaged.
    """

    finding: Finding
    offset: int
    size: int = 0
    entry: LogEntry | None = None
    reason: str = ""

    @classmethod
    def of(cls, row: Row) -> LogItem:
        """A record of a run."""
        return cls(Finding.RECORD, row[0], row[1], LogEntry._make(row))


Run = list[Row]
"""Ordinary records one behind the other; `LogEntry._make` makes an entry of each."""


class LogPart(Protocol):
    """A segment as recovery sees it."""

    @property
    def start(self) -> int:
        """Offset of its first byte."""
        ...

    @property
    def view(self) -> memoryview:
        """All its bytes."""
        ...

    def find(self, needle: bytes, position: int) -> int:
        """Position of the next occurrence, -1 without one."""
        ...


def walk(
    parts: Sequence[LogPart],
    index: int,
    position: int = 0,
    *,
    trusted_end: int | None = None,
    check_crc: bool = True,
    force_record_crc: bool = False,
    newest: int = 0,
    doubted_from: int | None = None,
    most: int = MOST_OF_RUN,
    stop: int = (1 << 63) - 1,
    framed_from: int = NOT_FRAMED,
    trail: EntryTrail | None = None,
) -> Iterator[Run | LogItem]:
    """Walk over the log from a place on: runs, single records, and damaged stretches that intact records follow.

    Ordinary records are of version 1, with IPv4 hosts, without zeros in topic and properties; they come as runs.
    The log ends behind the last record. A damaged stretch is one item with its length. When something else than the
    end of the last part comes behind the log's end, the last item is that, with size 0.

    Where records stand in entries, the offset of a record is that of the entry's body, and a damaged stretch is the
    last item: whatever follows it, entries must not be missing between others.

    Args:
        parts: all segments.
        index: the segment to begin in.
        position: where in it.
        trusted_end: the log is known to end here or later: only a place before it that holds no record is damage.
            None after a crash, when anything that is no record may have records behind it.
        check_crc: as `read_item`.
        force_record_crc: as `read_item`; nothing comes as a run then.
        newest: store time of the newest record before the place, ms; older ones behind a gap are left-overs.
        doubted_from: after a power failure, the store time in ms from which on records need not have reached the
            disk as a whole. None when at most the last one can be incomplete.
        most: records of a run.
        stop: no run reaches to a record that begins at this offset or behind it.
        framed_from: records of segments that start here or later stand in entries.
        trail: follows the entries; says which ones may come.
    """
    plain = _Records(check_crc=check_crc, force_record_crc=force_record_crc, doubted_from=doubted_from)
    framed = None
    if framed_from != NOT_FRAMED:
        framed = _Entries(plain, trail or EntryTrail())
        if index < len(parts) and parts[index].start >= framed_from:
            position = entry_begin(parts[index].view, position, parts[index].start)
    while index < len(parts):
        part = parts[index]
        reader: _Records | _Entries = plain if framed is None or part.start < framed_from else framed
        if not force_record_crc:
            run, position, latest = reader.run(part, position, stop - part.start, most)
            if run:
                newest = max(newest, latest)
                yield run
                continue
        item = reader.item(part, position, sure=trusted_end is not None)
        if item.finding in _WHOLE:
            if item.entry is not None:
                newest = max(newest, item.entry.store_timestamp)
            yield item
            position = item.offset + item.size - part.start
            continue
        if item.finding is Finding.BLANK:
            index, position = index + 1, 0
            continue
        place = None
        if trusted_end is None or item.offset < trusted_end:
            place = reader.intact_behind(parts, index, position, newest, framed_from)
        if place is None:
            yield LogItem(Finding.NOTHING, item.offset, 0, reason=item.reason)
            return
        index, position = place
        reason = item.reason or "zeros where a record should be"
        yield LogItem(Finding.DAMAGED, item.offset, parts[index].start + position - item.offset, reason=reason)
        if reader is framed:
            return


def single_items(steps: Iterable[Run | LogItem]) -> Iterator[LogItem]:
    """The items of a walk, each record of a run being one; without what stands behind the log's end."""
    for step in steps:
        if not isinstance(step, LogItem):
            yield from map(LogItem.of, step)
        elif step.finding is not Finding.NOTHING:
            yield step


def read_item(  # noqa: C901 - one field after the other, each with its own refusal
    view: memoryview, position: int, base: int, *, check_crc: bool = True, force_record_crc: bool = False
) -> LogItem:
    """Item at `position` of a segment.

    Args:
        view: the segment.
        position: index into it.
        base: the segment's start offset.
        check_crc: compare the body with its CRC.
        force_record_crc: compare the whole record with its CRC property instead, which then must be there.
    """
    offset = base + position
    room = len(view) - position
    if room < BLANK_SIZE:
        return LogItem(Finding.BLANK if room == 0 else Finding.NOTHING, offset, room)
    size, magic = SIZE_MAGIC.unpack_from(view, position)
    if magic == MAGIC_BLANK:
        return LogItem(Finding.BLANK, offset, room)
    if size == 0 and magic == 0:
        return LogItem(Finding.NOTHING, offset)
    if magic not in MAGICS:
        return LogItem(Finding.DAMAGED, offset, reason=f"magic number {magic & 0xFFFFFFFF:#010x} is none of a record")
    if size < OVERHEAD or size > room - BLANK_SIZE:
        return LogItem(Finding.DAMAGED, offset, reason=f"size {size} does not fit the {room} bytes left")
    crc, queue_id, queue_offset, physical, sys_flag, store_timestamp, body_length = _HEAD.unpack_from(view, position)
    if physical != offset:
        return LogItem(Finding.DAMAGED, offset, reason=f"the record says that it is at {physical}")
    end = position + size
    body_at = position + HEAD_SIZE
    if sys_flag & HOST_BITS:
        body_at = position + body_size_at(sys_flag) + 4
        if body_at > end:
            return LogItem(Finding.DAMAGED, offset, reason="too short for its host addresses")
        (store_timestamp,) = POSITION.unpack_from(view, position + store_time_at(sys_flag))
        (body_length,) = NUMBER.unpack_from(view, body_at - 4)
    at = body_at + body_length
    if body_length < 0 or at + 1 > end:
        return LogItem(Finding.DAMAGED, offset, reason=f"body length {body_length} does not fit size {size}")
    if magic == MAGIC_V1:
        topic_length = view[at]
        at += 1
    else:
        topic_length = view[at] << 8 | view[at + 1] if at + 2 <= end else size
        at += 2
    properties_at = at + topic_length + 2
    if properties_at > end:
        return LogItem(Finding.DAMAGED, offset, reason=f"topic length {topic_length} does not fit size {size}")
    properties_length = view[properties_at - 2] << 8 | view[properties_at - 1]
    if properties_at + properties_length != end:
        reason = f"its fields add up to {properties_at + properties_length - position}, it says size {size}"
        return LogItem(Finding.DAMAGED, offset, size, reason=reason)
    if force_record_crc:
        if not verify_property_crc(view[position:end]):
            return LogItem(Finding.DAMAGED, offset, size, reason="the CRC of the record is wrong or missing")
    elif check_crc and body_length and crc32(view[body_at : body_at + body_length]) != crc:
        return LogItem(Finding.DAMAGED, offset, size, reason="the CRC of the body is wrong")
    try:
        topic = str(view[at : at + topic_length], "utf-8")
    except UnicodeDecodeError:
        return LogItem(Finding.DAMAGED, offset, size, reason="the topic is no UTF-8 text")
    properties = bytes(view[properties_at:end])
    row = offset, size, topic, queue_id, queue_offset, sys_flag, store_timestamp, properties
    return LogItem(Finding.RECORD, offset, size, LogEntry._make(row))


def is_whole(view: memoryview, position: int, base: int) -> bool:
    """Whether a record begins at `position` of a segment whose every check holds, that of its own CRC as well.

    Args:
        view: the segment.
        position: index into it.
        base: the segment's start offset.
    """
    item = read_item(view, position, base)
    return item.finding is Finding.RECORD and crc_property_fits(view[position : position + item.size])


def half_written(item: LogItem, part: LogPart, doubted_from: int | None = None) -> bool:
    """Whether a record that looks whole may have been on its way to the disk when the process or the power ended.

    No CRC covers topic and properties unless the record carries its own. What was not written reads as zeros, and
    a record with zeros there is never stored without its CRC.

    Args:
        item: the record.
        part: the segment it is in.
        doubted_from: as `walk`.
    """
    if not _lacks_bytes(item, part):
        return False
    assert item.entry is not None
    if doubted_from is not None:
        return item.entry.store_timestamp >= doubted_from
    following = read_item(part.view, item.offset - part.start + item.size, part.start)
    return following.finding not in {Finding.RECORD, Finding.BLANK}


def _lacks_bytes(item: LogItem, part: LogPart) -> bool:
    """Whether there are zeros in a record where only what was not written has them."""
    entry = item.entry
    if entry is None or (b"\0" not in entry.properties and "\0" not in entry.topic):
        return False
    position = item.offset - part.start
    return not verify_property_crc(part.view[position : position + item.size])


class _Records:
    """Reads records that stand one behind the other; arguments as those of `walk`."""

    def __init__(self, *, check_crc: bool, force_record_crc: bool, doubted_from: int | None) -> None:
        self.check_crc = check_crc
        self.force_record_crc = force_record_crc
        self.doubted_from = doubted_from

    def run(self, part: LogPart, position: int, stop: int, most: int) -> tuple[Run, int, int]:
        """As `next_run`."""
        return next_run(part.view, position, part.start, stop, most, self.check_crc)

    def read(self, part: LogPart, position: int) -> LogItem:
        """As `read_item`."""
        return read_item(
            part.view, position, part.start, check_crc=self.check_crc, force_record_crc=self.force_record_crc
        )

    def item(self, part: LogPart, position: int, *, sure: bool) -> LogItem:
        """What stands at a position; `sure` when nothing can have been on its way to the disk."""
        item = self.read(part, position)
        if item.finding is Finding.RECORD and not sure and half_written(item, part, self.doubted_from):
            item.finding = Finding.DAMAGED
        return item

    def intact_behind(
        self, parts: Sequence[LogPart], index: int, position: int, newest: int, framed_from: int
    ) -> tuple[int, int] | None:
        """Segment and position of the next intact record.

        Bytes that an earlier truncation left behind can look like records, too; they are older than what stands
        before the gap.
        """
        for at in range(index, len(parts)):
            part = parts[at]
            if part.start >= framed_from:
                return None if isinstance(entry_at(part.view, 0, part.start), str) else (at, 0)
            found = part.find(MAGIC_START, position + 5 if at == index else 0)
            while found >= 4:
                item = read_item(part.view, found - 4, part.start)
                if item.entry is not None and item.entry.store_timestamp >= newest:
                    return at, found - 4
                found = part.find(MAGIC_START, found + 1)
        return None


class _Entries:
    """Reads records that stand in entries.

    Args:
        records: reads their bodies.
        trail: is led past each entry that is read.
    """

    def __init__(self, records: _Records, trail: EntryTrail) -> None:
        self._records = records
        self._trail = trail

    def run(self, part: LogPart, position: int, stop: int, most: int) -> tuple[Run, int, int]:
        """As `next_run`, with the position of an entry."""
        trail = self._trail
        run, position, newest, index, term = next_entries(
            part.view, position, part.start, stop, most, self._records.check_crc, trail.index, trail.term
        )
        if run:
            trail.follow_run(run, index, term)
        return run, position, newest

    def item(self, part: LogPart, position: int, *, sure: bool) -> LogItem:
        """As that of `_Records`, with the position of an entry."""
        view, offset = part.view, part.start + position
        if is_end(view, position):
            return LogItem(Finding.BLANK, offset, len(view) - position)
        if is_untouched(view, position):
            return LogItem(Finding.NOTHING, offset)
        header = entry_at(view, position, part.start)
        refusal = header if isinstance(header, str) else self._trail.refusal(header)
        if refusal or isinstance(header, str):
            return LogItem(Finding.DAMAGED, offset, reason=refusal)
        body = position + HEADER_SIZE
        item = self._body(part, body, header)
        if not sure and item.finding in _WHOLE and self._half_written(item, part, position + header.size):
            item = LogItem(Finding.DAMAGED, offset, reason="the entry was on its way to the disk")
        if item.finding not in _WHOLE:
            return LogItem(Finding.DAMAGED, offset, reason=f"the body of entry {header.index}: {item.reason}")
        self._trail.follow(header)
        return item

    def _body(self, part: LogPart, body: int, header: EntryHeader) -> LogItem:
        if not holds_record(part.view, body):
            reason = "the body of the entry is no message record"
            return LogItem(Finding.OTHER, part.start + body, header.body_size, reason=reason)
        item = self._records.read(part, body)
        if item.finding is Finding.RECORD and item.size != header.body_size:
            reason = f"a record of {item.size} bytes in a body of {header.body_size}"
            return LogItem(Finding.DAMAGED, item.offset, reason=reason)
        return item

    def _half_written(self, item: LogItem, part: LogPart, end: int) -> bool:
        doubted_from = self._records.doubted_from
        if item.finding is not Finding.OTHER:
            if not _lacks_bytes(item, part):
                return False
            if doubted_from is not None:
                assert item.entry is not None
                return item.entry.store_timestamp >= doubted_from
        return isinstance(entry_at(part.view, end, part.start), str) and not is_end(part.view, end)

    def intact_behind(
        self, parts: Sequence[LogPart], index: int, position: int, newest: int, _framed_from: int
    ) -> tuple[int, int] | None:
        """Segment and position of a whole entry that cannot be there unless those before it were.

        What a cut has left behind can look like entries, too: they are of an earlier term, or older.
        """
        for at in range(index, len(parts)):
            part = parts[at]
            start = HEADER_SIZE + 4
            found = part.find(MAGIC_START, max(position + HEADER_SIZE + 5 if at == index else 0, start))
            while found >= 0:
                place = found - start
                header = entry_at(part.view, place, part.start)
                if not isinstance(header, str) and header.index > self._trail.index and header.term >= self._trail.term:
                    item = read_item(part.view, found - 4, part.start)
                    if item.entry is not None and item.entry.store_timestamp >= newest:
                        return at, place
                found = part.find(MAGIC_START, found + 1)
        return None


_WHOLE: Final = frozenset((Finding.RECORD, Finding.OTHER))
