"""What to do with a store found on disk: pure decisions over what was read (store.md §10).

Where to begin reading the log, how to go on behind a damaged place, where the log ends, and which files' sizes
make no sense. `tianzhou.store.startup.loading` and `tianzhou.store.startup.opening` carry it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from typing import Final

from tianzhou.records.layout import MAGIC_V1, MAGIC_V2, OVERHEAD

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
        impaired: which entries of a DLedger log are lost, in words; empty when none are known to be.
    """

    clean: bool = True
    read_from: int = 0
    end: int = 0
    records: int = 0
    dispatched: int = 0
    indexed: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    impaired: str = ""


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

    Where the clock was set back, what is in front of that may be newer than `safe_timestamp` although what follows is
    older: then the segment is looked for in front of it.

    Args:
        heads: one per segment, newest first.
        safe_timestamp: everything stored up to then is known to be on disk, queues included.
    """
    start = newer = 0
    found = None
    for head in heads:
        start = head.start
        if head.magic not in {MAGIC_V1, MAGIC_V2} or head.store_timestamp <= 0:
            continue
        if head.store_timestamp > newer > 0:
            found = None
        newer = head.store_timestamp
        if found is None and newer <= safe_timestamp:
            found = start
    return start if found is None else found


def start_after_stop(starts: Sequence[int], dispatched_end: int) -> int:
    """Index of the segment to read from after a clean stop: the one the queues end in (store.md §10.3)."""
    for index in range(len(starts) - 1, 0, -1):
        if starts[index] <= dispatched_end:
            return index
    return 0


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
