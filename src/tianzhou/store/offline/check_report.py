"""What checking a store finds, in words and in the form that a repair is planned from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

MOST_LISTED: Final = 100
"""Findings of one kind that are listed in words; the others are only counted."""


class Kind(StrEnum):
    """What can be wrong."""

    LOG_FILE = "log-file"
    DAMAGED = "damaged-record"
    TAIL = "torn-tail"
    LOST_END = "lost-end"
    QUEUE_FILE = "queue-file"
    QUEUE_MISSING = "queue-missing"
    UNIT_MISSING = "unit-missing"
    UNIT_WRONG = "unit-wrong"
    UNIT_DANGLING = "unit-dangling"
    EXTENSION = "extension"
    INDEX_FILE = "index-file"
    INDEX_ENTRY = "index-entry"
    INDEX_LACKS = "index-lacks"
    CHECKPOINT = "checkpoint"
    CONFIG = "config"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that does not fit.

    Attributes:
        kind: what sort of thing.
        text: place and fact.
        expected: the broker that wrote the folder did not stop cleanly, and the next start sees to it.
    """

    kind: Kind
    text: str
    expected: bool = False


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file of the commit log: where it begins, how long it is."""

    path: Path
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class WrongOffset:
    """A position in a configuration file behind the end of its queue.

    Attributes:
        path: the file.
        table: member that holds the positions.
        key: entry of the table; None when the table itself has the numbers.
        number: queue, or delay level.
        offset: what is written there.
        maximum: next offset of the queue.
    """

    path: Path
    table: str
    key: str | None
    number: int
    offset: int
    maximum: int


@dataclass
class CheckReport:
    """What checking found.

    Attributes:
        clean: the last stop was clean.
        in_use: a broker has the folder open; what it wrote meanwhile may look unfinished.
        records: intact records in the log.
        queues: queues that have files.
        units: queue units that agree with their record.
        expired_units: queue units whose records have been deleted with their segment.
        blank_units: queue units that only keep a place.
        former_records: records of topics that have been deleted since.
        index_files: index files.
        index_entries: entries in them.
        log_begin: start of the log.
        log_end: end of the last intact record.
        newest: store time of the newest record, ms.
        segments: files of the log.
        tail: end of the log's bytes, when something that is no record follows the last one.
        damaged: start and end of stretches of the log that hold no intact record, though intact ones follow.
        gaps: start and end of missing log files.
        bad_queues: topic and number of queues that do not agree with the log.
        bad_batches: the same of BatchCQ queues.
        ends: next offset of each bad queue, by its files.
        index_wrong: index and log do not agree.
        wrong_offsets: positions behind the end of their queue.
        checkpoint_wrong: the checkpoint claims more than there is, or is none.
        problems: what makes the store unsound.
        notes: what is not in order, but expected.
        counts: how many findings of each kind, listed or not.
    """

    clean: bool = True
    in_use: bool = False
    records: int = 0
    queues: int = 0
    units: int = 0
    expired_units: int = 0
    blank_units: int = 0
    former_records: int = 0
    index_files: int = 0
    index_entries: int = 0
    log_begin: int = 0
    log_end: int = 0
    newest: int = 0
    segments: list[SegmentFile] = field(default_factory=list)
    tail: int | None = None
    damaged: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    bad_queues: set[tuple[str, int]] = field(default_factory=set)
    bad_batches: set[tuple[str, int]] = field(default_factory=set)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    index_wrong: bool = False
    wrong_offsets: list[WrongOffset] = field(default_factory=list)
    checkpoint_wrong: bool = False
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def sound(self) -> bool:
        """Whether nothing was found wrong but what the next start sees to."""
        return not self.problems

    def add(self, kind: Kind, text: str, *, expected: bool = False, count: int = 1) -> None:
        """Take note of a finding.

        Args:
            kind: what sort.
            text: place and fact.
            expected: the next start sees to it.
            count: how many of the sort it stands for.
        """
        listed = self.notes if expected else self.problems
        before = self.counts[kind]
        self.counts[kind] += count
        if before < MOST_LISTED or not any(problem.kind is kind for problem in listed):
            listed.append(Problem(kind, text, expected))
