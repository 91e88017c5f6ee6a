"""Pure decisions of the recovery of a store (store.md §10).

They decide where to begin reading the log, whether to accept a record's queue offset, and which file sizes are wrong.
`tianzhou.store.startup.loading` and `tianzhou.store.startup.opening` execute them.
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
    """The results of the opening of a store.

    Attributes:
        clean: whether the last stop was clean.
        read_from: log offset where the read of records began.
        end: the log's end.
        records: number of records read.
        dispatched: number of them that were missing in queues or index.
        indexed: log offset before which the index is complete; the rest is indexed while the store serves.
        damaged: start and end of stretches of the log without an intact record, before intact ones.
        notes: descriptions of repairs.
        impaired: description of lost entries of a DLedger log; empty when none are known.
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
    """The first record of a segment, with the time when the segment was begun.

    Attributes:
        start: offset of the segment.
        magic: magic number found.
        store_timestamp: ms; 0 without a record.
    """

    start: int
    magic: int
    store_timestamp: int


def start_after_crash(heads: Iterable[SegmentHead], safe_timestamp: int) -> int:
    """Return the offset of the segment from which to read after an abnormal exit (store.md §10.4).

    When the clock was set back, earlier records may be newer than `safe_timestamp` although later ones are older. Then
    the segment is searched before them.

    Args:
        heads: one per segment, newest first.
        safe_timestamp: store time up to which all records and their queue units are on disk.
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
    """Return the index of the segment to read from after a clean stop: the one with the queues' end (§10.3)."""
    for index in range(len(starts) - 1, 0, -1):
        if starts[index] <= dispatched_end:
            return index
    return 0


class OffsetVerdict(Enum):
    """The meaning of a record's queue offset that is not the next one of its queue."""

    GAP = auto()
    ANOTHER_LIFE = auto()
    WRONG = auto()


def judge_offset(offset: int, expected: int, following: int | None, bytes_before: int) -> OffsetVerdict:
    """Distinguish lost records and a recreated topic from a damaged queue offset.

    Args:
        offset: queue offset of the record.
        expected: the queue's next offset.
        following: queue offset of the queue's next record; None when the log has none.
        bytes_before: bytes of log before the record that may have contained lost records of the queue.
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
    # In doubt, one message matters more than a few blank units.
    gap = offset - expected
    return OffsetVerdict.GAP if gap <= _SMALL_GAP or gap * OVERHEAD <= bytes_before else OffsetVerdict.WRONG


@dataclass(frozen=True, slots=True)
class SizeVerdict:
    """The result of a check of file sizes.

    Attributes:
        written_with: the segment size with which the files evidently were written, when it is not the configured one.
        damaged: indexes of truncated files.
    """

    written_with: int | None
    damaged: tuple[int, ...]


def judge_sizes(files: Sequence[tuple[int, int]], size: int) -> SizeVerdict:
    """Distinguish a wrong setting from truncated files.

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
    """Return queues with fewer messages than at the clean stop, with the log offset from which to dispatch them.

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
