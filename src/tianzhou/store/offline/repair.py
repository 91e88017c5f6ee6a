"""What to do about a store that does not hold together: a plan from what a check found (`tianzhou store repair`).

The log is what counts. Damaged stretches of it are covered by records nobody sees, so that reading goes on behind
them; queues and index are rebuilt from it; positions and times are brought down to what there is.
`tianzhou.store.offline.repairer` carries the plan out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tianzhou.records.layout import BLANK_SIZE, OVERHEAD
from tianzhou.store.offline.check_report import CheckReport, Kind, WrongOffset

FILLER_TOPIC: Final = "rmq_sys_repaired"
"""Topic of the records that cover damaged stretches. As rollbacks they enter no queue and no index."""
LEAST_FILLER: Final = OVERHEAD + len(FILLER_TOPIC)
MOST_FILLER: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Lengthen:
    """Give a log file that was cut short its length back, with zeros."""

    start: int
    length: int
    size: int

    def __str__(self) -> str:
        return f"commit log: lengthen the file at {self.start} from {self.length} to {self.size} bytes"


@dataclass(frozen=True, slots=True)
class MakeSegment:
    """Put an empty file where one of the log is missing."""

    start: int
    size: int

    def __str__(self) -> str:
        return f"commit log: put an empty file in place of the missing one at {self.start}"


@dataclass(frozen=True, slots=True)
class Cover:
    """Put a record nobody sees over damaged bytes, or the mark that a file ends over those that reach its end."""

    start: int
    end: int
    ends_file: bool

    def __str__(self) -> str:
        how = "end the file before" if self.ends_file else "cover"
        return f"commit log: {how} the damaged bytes {self.start} to {self.end}"


@dataclass(frozen=True, slots=True)
class CutTail:
    """Zero what follows the last record."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"commit log: cut the torn tail, {self.end - self.start} bytes at {self.start}"


@dataclass(frozen=True, slots=True)
class RebuildQueue:
    """Rebuild a queue from the log.

    Attributes:
        topic: of the queue.
        queue_id: its number.
        end: next offset it must have at least, so that no offset is given twice.
        batch: it is a BatchCQ queue.
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
    """Bring a position down to the end of its queue."""

    wrong: WrongOffset

    def __str__(self) -> str:
        wrong = self.wrong
        where = f"{wrong.key} queue {wrong.number}" if wrong.key else f"number {wrong.number}"
        return f"{wrong.path.name}: {where} from {wrong.offset} to {wrong.maximum}"


@dataclass(frozen=True, slots=True)
class RewriteCheckpoint:
    """Let the checkpoint claim no more than there is.

    Attributes:
        newest: store time of the newest record, ms; 0 to have the next start read the whole log.
    """

    newest: int

    def __str__(self) -> str:
        return f"checkpoint: nothing in it later than {self.newest}"


@dataclass(frozen=True, slots=True)
class DropMarker:
    """Take away the note of the last clean stop, which speaks of what is no more."""

    def __str__(self) -> str:
        return "proved.json: take it away; it speaks of what is no more"


Step = (
    Lengthen | MakeSegment | Cover | CutTail | RebuildQueue | RebuildIndex | MoveOffset | RewriteCheckpoint | DropMarker
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in order.

    Attributes:
        steps: what will be done.
        hopeless: what is wrong and stays so, in words.
    """

    steps: tuple[Step, ...]
    hopeless: tuple[str, ...]


def plan(report: CheckReport) -> Plan:
    """The steps that make a store sound again; none for a store that is.

    Steps that change the log may bring more to light: check and plan again when they are done.

    Args:
        report: of a check of the whole store.
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
    """A damaged stretch, file by file and in pieces that a record can have."""
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
