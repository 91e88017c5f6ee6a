"""What to do with a store found on disk: pure decisions over what was read (store.md §10).

Where to begin reading the log, how to go on behind a damaged place, where the log ends, and which files' sizes
make no sense. `tianzhou.store.startup.loading` and `tianzhou.store.startup.opening` carry it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from typing import Final, Protocol

from tianzhou.store.log.record_scan import Finding, LogItem, read_item
from tianzhou.wire.record import MAGIC_V1, MAGIC_V2, OVERHEAD, verify_property_crc

_MAGIC_BYTES: Final = (
    MAGIC_V1.to_bytes(4, "big", signed=True)[:3]  # the versions differ in the last byte only
)
_SMALL_GAP: Final = 10_000


@dataclass
class OpeningReport:
    """What opening a store found and did.

    Attributes:
        clean: the last stop was clean.
        read_from: log offset from which records were looked at.
        end: the log's end.
        records: how many were looked at.
        dispatched: how many of them queues or index did not have.
        indexed: log offset before which the index has everything; the rest follows behind serving.
        damaged: start and end of stretches of the log that hold no intact record, though intact ones follow.
        notes: repairs, in words.
    """

    clean: bool = True
    read_from: int = 0
    end: int = 0
    records: int = 0
    dispatched: int = 0
    indexed: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


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


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """The first record of a segment, as far as it says when the segment was begun.

    Attributes:
        start: offset of the segment.
        magic: magic number found.
        store_timestamp: ms; 0 when nothing is there.
    """

    start: int
    magic: int
    store_timestamp: int


def start_after_crash(heads: Iterable[SegmentHead], safe_timestamp: int) -> int:
    """Offset of the segment to read from after an abnormal exit (store.md §10.4).

    Args:
        heads: one per segment, newest first; no more of them are taken than are needed.
        safe_timestamp: everything stored up to then is known to be on disk, queues included.
    """
    start = 0
    for head in heads:
        start = head.start
        if head.magic in {MAGIC_V1, MAGIC_V2} and 0 < head.store_timestamp <= safe_timestamp:
            break
    return start


def start_after_stop(starts: Sequence[int], dispatched_end: int) -> int:
    """Index of the segment to read from after a clean stop: the one the queues end in (store.md §10.3)."""
    for index in range(len(starts) - 1, 0, -1):
        if starts[index] <= dispatched_end:
            return index
    return 0


def survey(
    parts: Sequence[LogPart],
    index: int,
    position: int = 0,
    *,
    trusted_end: int | None = None,
    check_crc: bool = True,
    force_record_crc: bool = False,
    newest: int = 0,
    doubted_from: int | None = None,
) -> Iterator[LogItem]:
    """Every record from a place on, and every damaged stretch that intact records follow.

    The log ends behind the last record given. A damaged stretch is told as one item with its length.

    Args:
        parts: all segments.
        index: the segment to begin in.
        position: where in it.
        trusted_end: the log is known to end here or later: only a place before it that holds no record is damage.
            None after a crash, when anything that is no record may have records behind it.
        check_crc: as `read_item`.
        force_record_crc: as `read_item`.
        newest: store time of the newest record before the place, ms; older ones behind a gap are left-overs.
        doubted_from: after a power failure, the store time in ms from which on records need not have reached the
            disk as a whole. None when at most the last one can be incomplete.
    """
    while index < len(parts):
        part = parts[index]
        item = read_item(part.view, position, part.start, check_crc=check_crc, force_record_crc=force_record_crc)
        if item.finding is Finding.RECORD and not (trusted_end is None and half_written(item, part, doubted_from)):
            assert item.entry is not None
            newest = max(newest, item.entry.store_timestamp)
            yield item
            position += item.size
            continue
        if item.finding is Finding.BLANK:
            index, position = index + 1, 0
            continue
        if trusted_end is not None and item.offset >= trusted_end:
            return
        place = _next_intact(parts, index, position, newest)
        if place is None:
            return
        index, position = place
        yield LogItem(
            Finding.DAMAGED,
            item.offset,
            parts[index].start + position - item.offset,
            reason=item.reason or "zeros where a record should be",
        )


def half_written(item: LogItem, part: LogPart, doubted_from: int | None = None) -> bool:
    """Whether a record that looks whole may have been on its way to the disk when the process or the power ended.

    No CRC covers topic and properties unless the record carries its own. What was not written reads as zeros, and
    a record with zeros there is never stored without its CRC.

    Args:
        item: the record.
        part: the segment it is in.
        doubted_from: as `survey`.
    """
    entry = item.entry
    if entry is None or (b"\0" not in entry.properties and "\0" not in entry.topic):
        return False
    position = item.offset - part.start
    if verify_property_crc(part.view[position : position + item.size]):
        return False
    if doubted_from is not None:
        return entry.store_timestamp >= doubted_from
    following = read_item(part.view, position + item.size, part.start)
    return following.finding not in {Finding.RECORD, Finding.BLANK}


def _next_intact(parts: Sequence[LogPart], index: int, position: int, newest: int) -> tuple[int, int] | None:
    """Where the next intact record begins.

    Bytes that an earlier truncation left behind can look like records, too; they are older than what stands
    before the gap.
    """
    for at in range(index, len(parts)):
        part = parts[at]
        found = part.find(_MAGIC_BYTES, position + 5 if at == index else 0)
        while found >= 4:
            item = read_item(part.view, found - 4, part.start)
            if item.entry is not None and item.entry.store_timestamp >= newest:
                return at, found - 4
            found = part.find(_MAGIC_BYTES, found + 1)
    return None


class OffsetVerdict(Enum):
    """What a record's queue offset means that is not the next one of its queue."""

    GAP = auto()
    ANOTHER_LIFE = auto()
    WRONG = auto()


def judge_offset(offset: int, expected: int, following: int | None, bytes_before: int) -> OffsetVerdict:
    """Tell lost records and a topic made again from a number that was changed on the disk.

    Args:
        offset: what the record says.
        expected: the queue's next offset.
        following: what the next record of the same queue says; None when the log has none.
        bytes_before: bytes of log before the record in which records of the queue may have stood that are no more.
    """
    if offset == 0:
        life = following is None or following == 1 or following not in {expected, expected + 1}
        return OffsetVerdict.ANOTHER_LIFE if life else OffsetVerdict.WRONG
    if offset < expected:
        return OffsetVerdict.WRONG
    if following == offset + 1:
        return OffsetVerdict.GAP
    if following is not None and expected <= following < offset:
        return OffsetVerdict.WRONG
    # In doubt the message counts more than a few blank units.
    gap = offset - expected
    return OffsetVerdict.GAP if gap <= _SMALL_GAP or gap * OVERHEAD <= bytes_before else OffsetVerdict.WRONG


@dataclass(frozen=True, slots=True)
class SizeVerdict:
    """What file sizes say.

    Attributes:
        written_with: the segment size the files were evidently written with, when it is not the configured one.
        damaged: indexes of files that were cut short.
    """

    written_with: int | None
    damaged: tuple[int, ...]


def judge_sizes(files: Sequence[tuple[int, int]], size: int) -> SizeVerdict:
    """Tell a wrong setting from files that were cut short.

    Args:
        files: start offset and length of each file, in order.
        size: the configured segment size.
    """
    lengths = [length for _, length in files]
    odd = tuple(i for i, length in enumerate(lengths) if length != size)
    wrong = {lengths[i] for i in odd if lengths[i]}
    if not odd and all(start % size == 0 for start, _ in files):
        return SizeVerdict(None, ())
    if any(length > size for length in wrong):
        return SizeVerdict(max(wrong), ())
    spacing = min((b[0] - a[0] for a, b in pairwise(files)), default=None)
    if spacing is not None and spacing != size and (spacing in wrong or not odd):
        return SizeVerdict(spacing, ())
    if len(files) == 1 and wrong and min(wrong) % 1024 == 0:
        return SizeVerdict(min(wrong), ())
    return SizeVerdict(None, odd)


def rebuild_start(
    recorded: Mapping[tuple[str, int], int], found: Mapping[tuple[str, int], tuple[int, int]]
) -> dict[tuple[str, int], int]:
    """Queues that hold less than they did at the clean stop, with the log offset to dispatch them from.

    Args:
        recorded: max offset of each queue at the stop.
        found: max offset and end of the last referenced record (-1 without one) of each queue on disk.
    """
    behind = {}
    for queue, maximum in recorded.items():
        present, physical = found.get(queue, (0, -1))
        if present < maximum:
            behind[queue] = max(physical, 0)
    return behind
