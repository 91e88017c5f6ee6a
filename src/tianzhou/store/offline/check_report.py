"""The results of a store's check, as text and in the form that the plan of a repair needs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

MOST_LISTED: Final = 100
"""Maximum number of listed findings of one kind; further ones are only counted."""


class Kind(StrEnum):
    """The kind of a finding."""

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
    """One finding.

    Attributes:
        kind: its kind.
        text: place and fact.
        expected: whether it follows from a stop that was not clean, so that the next start repairs it.
    """

    kind: Kind
    text: str
    expected: bool = False


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file of the commit log: path, first log offset and length."""

    path: Path
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class WrongOffset:
    """An offset in a configuration file after the end of its queue.

    Attributes:
        path: the file.
        table: member with the offsets.
        key: entry of the table; None when the table itself has the numbers.
        number: queue, or delay level.
        offset: the offset in the file.
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
    """The results of a check.

    Attributes:
        clean: whether the last stop was clean.
        in_use: whether a broker has the folder open; its recent writes may look incomplete.
        records: intact records in the log.
        queues: queues with files.
        units: queue units that agree with their record.
        expired_units: queue units whose records were deleted with their segment.
        blank_units: placeholder units.
        former_records: records of topics that were deleted since.
        index_files: index files.
        index_entries: entries in them.
        log_begin: start of the log.
        log_end: end of the last intact record.
        newest: store time of the newest record, ms.
        segments: files of the log.
        tail: end of the log's bytes, when invalid bytes follow the last record.
        damaged: start and end of stretches of the log without an intact record, before intact ones.
        gaps: start and end of missing log files.
        bad_queues: topic and number of queues that disagree with the log.
        bad_batches: the same of BatchCQ queues.
        ends: next offset of each bad queue, by its files.
        index_wrong: whether index and log disagree.
        wrong_offsets: offsets after the end of their queue.
        checkpoint_wrong: whether the checkpoint claims more than the store has, or is invalid.
        problems: findings that make the store unsound.
        notes: expected findings.
        counts: number of findings of each kind, listed or not.
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
        """Whether all findings are repaired by the next start."""
        return not self.problems

    def add(self, kind: Kind, text: str, *, expected: bool = False, count: int = 1) -> None:
        """Add a finding.

        Args:
            kind: its kind.
            text: place and fact.
            expected: whether the next start repairs it.
            count: number of equal findings.
        """
        listed = self.notes if expected else self.problems
        before = self.counts[kind]
        self.counts[kind] += count
        if before < MOST_LISTED or not any(problem.kind is kind for problem in listed):
            listed.append(Problem(kind, text, expected))
