"""The plan of a store's repair, from the results of a check (`tianzhou store repair`).

The log is the source of all repairs. Invisible records cover its damaged stretches, so that reads continue after them.
Queues and index are rebuilt from the log, and offsets and times are reduced to the existing data.
`tianzhou.store.offline.repairer` executes the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tianzhou.records.layout import BLANK_SIZE, OVERHEAD
from tianzhou.store.offline.check_report import CheckReport, Kind, WrongOffset

FILLER_TOPIC: Final = "rmq_sys_repaired"
"""Topic of the records that cover damaged stretches. As rollbacks they are added to no queue and no index."""
LEAST_FILLER: Final = OVERHEAD + len(FILLER_TOPIC)
MOST_FILLER: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Lengthen:
    """Restore the length of a truncated log file, with zeros."""

    start: int
    length: int
    size: int

    def __str__(self) -> str:
        return f"commit log: lengthen the file at {self.start} from {self.length} to {self.size} bytes"


@dataclass(frozen=True, slots=True)
class MakeSegment:
    """Create an empty file for a missing one of the log."""

    start: int
    size: int

    def __str__(self) -> str:
        return f"commit log: put an empty file in place of the missing one at {self.start}"


@dataclass(frozen=True, slots=True)
class Cover:
    """Cover damaged bytes with an invisible record, or with the mark that ends a file when they reach its end."""

    start: int
    end: int
    ends_file: bool

    def __str__(self) -> str:
        how = "end the file before" if self.ends_file else "cover"
        return f"commit log: {how} the damaged bytes {self.start} to {self.end}"


@dataclass(frozen=True, slots=True)
class CutTail:
    """Zero the bytes after the last record."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"commit log: cut the torn tail, {self.end - self.start} bytes at {self.start}"


@dataclass(frozen=True, slots=True)
class RebuildQueue:
    """Rebuild a queue from the log.

    Attributes:
        topic: topic of the queue.
        queue_id: its number.
        end: minimum next offset, so that no offset is assigned twice.
        batch: whether it is a BatchCQ queue.
    """

    topic: str
    queue_id: int
    end: int = 0
    batch: bool = False

    def __str__(self) -> str:
        return f"queue {self.topic}/{self.queue_id}: rebuild it from the log"


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    """Rebuild the index from the log."""

    def __str__(self) -> str:
        return "index: rebuild it from the log"


@dataclass(frozen=True, slots=True)
class MoveOffset:
    """Reduce an offset to the end of its queue."""

    wrong: WrongOffset

    def __str__(self) -> str:
        wrong = self.wrong
        where = f"{wrong.key} queue {wrong.number}" if wrong.key else f"number {wrong.number}"
        return f"{wrong.path.name}: {where} from {wrong.offset} to {wrong.maximum}"


@dataclass(frozen=True, slots=True)
class RewriteCheckpoint:
    """Reduce the checkpoint to the existing data.

    Attributes:
        newest: store time of the newest record, ms; 0 makes the next start read the whole log.
    """

    newest: int

    def __str__(self) -> str:
        return f"checkpoint: nothing in it later than {self.newest}"


@dataclass(frozen=True, slots=True)
class DropMarker:
    """Remove the note of the last clean stop, which refers to lost data."""

    def __str__(self) -> str:
        return "proved.json: take it away; it speaks of what is no more"


Step = (
    Lengthen | MakeSegment | Cover | CutTail | RebuildQueue | RebuildIndex | MoveOffset | RewriteCheckpoint | DropMarker
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The repair steps, in order.

    Attributes:
        steps: steps to execute.
        hopeless: descriptions of damage that cannot be repaired.
    """

    steps: tuple[Step, ...]
    hopeless: tuple[str, ...]


def plan(report: CheckReport) -> Plan:
    """Return the steps that make a store sound again; none for a sound store.

    Steps that change the log may reveal further problems: check and plan again after them.

    Args:
        report: report of a check of the whole store.
    """
    steps: list[Step] = []
    hopeless: list[str] = []
    size = max((segment.length for segment in report.segments), default=0)
    # An empty last file is left over from a crash; the next start deletes it.
    last = report.segments[-1] if report.segments else None
    steps += [
        Lengthen(segment.start, segment.length, size)
        for segment in report.segments
        if segment.length < size and (segment.length or segment is not last)
    ]
    for start, end in report.gaps:
        steps += [MakeSegment(at, size) for at in range(start, end, size or 1)]
    if not steps:
        for start, end in report.damaged:
            for part in _parts(start, end, report):
                if not part.ends_file and part.end - part.start < LEAST_FILLER:
                    hopeless.append(
                        f"commit log: {part.end - part.start} damaged bytes at {part.start} are too few to be covered"
                    )
                else:
                    steps.append(part)
        if report.tail is not None and (not report.clean or report.problems):
            steps.append(CutTail(report.log_end, report.tail))
        steps += [
            RebuildQueue(topic, number, report.ends.get((topic, number), 0))
            for topic, number in sorted(report.bad_queues)
        ]
        steps += [RebuildQueue(topic, number, batch=True) for topic, number in sorted(report.bad_batches)]
        if report.index_wrong:
            steps.append(RebuildIndex())
        if report.clean:
            steps += [MoveOffset(wrong) for wrong in report.wrong_offsets]
    if report.checkpoint_wrong:
        steps.append(RewriteCheckpoint(report.newest if report.clean else 0))
    if report.counts[Kind.LOST_END]:
        steps.append(DropMarker())
    hopeless += [problem.text for problem in report.problems if problem.kind is Kind.CONFIG]
    return Plan(tuple(steps), tuple(hopeless))


def _parts(start: int, end: int, report: CheckReport) -> Iterator[Cover]:
    """Yield the parts of a damaged stretch, file by file and in sizes that a record can have."""
    for segment in report.segments:
        begin, stop = max(start, segment.start), min(end, segment.start + segment.length)
        if begin >= stop:
            continue
        if stop == segment.start + segment.length and stop - begin >= BLANK_SIZE:
            yield Cover(begin, stop, ends_file=True)
            continue
        while stop - begin > MOST_FILLER + LEAST_FILLER:
            yield Cover(begin, begin + MOST_FILLER, ends_file=False)
            begin += MOST_FILLER
        yield Cover(begin, stop, ends_file=False)
