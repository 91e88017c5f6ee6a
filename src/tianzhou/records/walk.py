"""The walk over a commit log: runs of ordinary records, single records, and damaged ranges (store.md §3.5, §10)."""

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
"""Maximum number of records in a run, which bounds the memory of a walk."""
_HEAD: Final = fields_at(
    "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp", "body_size"
)


class Finding(Enum):
    """Kind of content at a position of the log.

    OTHER is an entry whose body is no message record: an entry that a DLedger node appended for itself.
    """

    RECORD = auto()
    OTHER = auto()
    BLANK = auto()
    NOTHING = auto()
    DAMAGED = auto()


class LogEntry(NamedTuple):
    """Fields of a record without its body.

    Attributes:
        offset: log offset where the record begins.
        size: bytes of the record.
        topic: topic.
        queue_id: queue.
        queue_offset: offset of the message in its queue.
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
        finding: kind of content at this offset.
        offset: log offset.
        size: bytes up to the next item; 0 when unknown.
        entry: the record, when the item is one.
        reason: why the item counts as damaged.
    """

    finding: Finding
    offset: int
    size: int = 0
    entry: LogEntry | None = None
    reason: str = ""

    @classmethod
    def of(cls, row: Row) -> LogItem:
        """Return the item of one record of a run."""
        return cls(Finding.RECORD, row[0], row[1], LogEntry._make(row))


Run = list[Row]
"""Consecutive ordinary records; `LogEntry._make` converts a row to an entry."""


class LogPart(Protocol):
    """A segment as recovery uses it."""

    @property
    def start(self) -> int:
        """Offset of its first byte."""
        ...

    @property
    def view(self) -> memoryview:
        """All its bytes."""
        ...

    def find(self, needle: bytes, position: int) -> int:
        """Return the position of the next occurrence; -1 without one."""
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
    """Yield the items of a log from a position on: runs, single records, and damaged ranges before intact records.

    Ordinary records are of version 1, with IPv4 hosts, without zeros in topic and properties. They are yielded as runs.
    The log ends behind the last record. A damaged range is one item with its length. When anything but the end of the
    last segment follows the log's end, the last item describes it, with size 0.

    In segments of DLedger entries, the offset of a record is the offset of the entry's body. There a damaged range is
    the last item, because a log must not lack entries between others.

    Args:
        parts: all segments.
        index: the segment to begin in.
        position: position in that segment.
        trusted_end: offset that the log is known to reach. Only content before this offset that is no record counts as
            damage. None after a crash, when records may follow anything that is no record.
        check_crc: as in `read_item`.
        force_record_crc: as in `read_item`; all records are then single items.
        newest: store time of the newest record before the position, ms. Older records behind a gap are left over from
            before a truncation.
        doubted_from: after a power failure, the store time in ms of the first record that may be incomplete on the
            disk. None when only the last record can be incomplete.
        most: maximum number of records in a run.
        stop: no run includes a record that begins at this offset or behind it.
        framed_from: records are in DLedger entries in segments that start at this offset or behind it.
        trail: tracks the entries and rejects an entry that may not follow.
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
    """Yield the items of a walk, one for each record of a run. Omit the item for content behind the log's end."""
    for step in steps:
        if not isinstance(step, LogItem):
            yield from map(LogItem.of, step)
        elif step.finding is not Finding.NOTHING:
            yield step


def read_item(  # noqa: C901 - one field after the other, each with its own refusal
    view: memoryview, position: int, base: int, *, check_crc: bool = True, force_record_crc: bool = False
) -> LogItem:
    """Return the item at `position` of a segment.

    Args:
        view: the segment.
        position: index into it.
        base: the segment's start offset.
        check_crc: whether to compare the body with its CRC.
        force_record_crc: whether to compare the whole record with its CRC property instead; the property is then
            required.
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
    """Whether an intact record begins at `position` of a segment, with a correct body CRC and a correct CRC of its own.

    Args:
        view: the segment.
        position: index into it.
        base: the segment's start offset.
    """
    item = read_item(view, position, base)
    return item.finding is Finding.RECORD and crc_property_fits(view[position : position + item.size])


def half_written(item: LogItem, part: LogPart, doubted_from: int | None = None) -> bool:
    """Whether a record that looks intact may have been written only in part when the process or the power failed.

    No CRC covers topic and properties unless the record has its own. Unwritten bytes read as zeros, and the store never
    writes a record with zeros in topic or properties without its own CRC.

    Args:
        item: the record.
        part: the segment of the record.
        doubted_from: as in `walk`.
    """
    if not _lacks_bytes(item, part):
        return False
    assert item.entry is not None
    if doubted_from is not None:
        return item.entry.store_timestamp >= doubted_from
    following = read_item(part.view, item.offset - part.start + item.size, part.start)
    return following.finding not in {Finding.RECORD, Finding.BLANK}


def _lacks_bytes(item: LogItem, part: LogPart) -> bool:
    """Whether topic or properties of a record have zeros, which only unwritten bytes can cause."""
    entry = item.entry
    if entry is None or (b"\0" not in entry.properties and "\0" not in entry.topic):
        return False
    position = item.offset - part.start
    return not verify_property_crc(part.view[position : position + item.size])


class _Records:
    """Reader of consecutive records without entries; its arguments are those of `walk`."""

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
        """Return the item at a position; `sure` means that no record can be half written."""
        item = self.read(part, position)
        if item.finding is Finding.RECORD and not sure and half_written(item, part, self.doubted_from):
            item.finding = Finding.DAMAGED
        return item

    def intact_behind(
        self, parts: Sequence[LogPart], index: int, position: int, newest: int, framed_from: int
    ) -> tuple[int, int] | None:
        """Return segment and position of the next intact record; None without one.

        Bytes left over from an earlier truncation can look like records, too. They are older than the records before
        the
        gap.
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
    """Reader of records in DLedger entries.

    Args:
        records: reads the bodies of entries.
        trail: gets each entry that is read.
    """

    def __init__(self, records: _Records, trail: EntryTrail) -> None:
        self._records = records
        self._trail = trail

    def run(self, part: LogPart, position: int, stop: int, most: int) -> tuple[Run, int, int]:
        """As `next_run`, for the position of an entry."""
        trail = self._trail
        run, position, newest, index, term = next_entries(
            part.view, position, part.start, stop, most, self._records.check_crc, trail.index, trail.term
        )
        if run:
            trail.follow_run(run, index, term)
        return run, position, newest

    def item(self, part: LogPart, position: int, *, sure: bool) -> LogItem:
        """As `_Records.item`, for the position of an entry."""
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
        """Return segment and position of an intact later entry, which proves that entries before it existed, or None.

        Bytes left over from a truncation can look like entries, too. They have an earlier term or are older.
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
