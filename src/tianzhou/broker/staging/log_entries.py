"""Log entries of staging: notes of events, and snapshots of the ledger. Values."""

from __future__ import annotations

from dataclasses import dataclass, field

from tianzhou.wire.bodies.staging import AttemptList, BatchDecision


@dataclass(slots=True)
class Decided:
    """Note: the batch consists of these attempts.

    `broker_name` wrote it, and it is in the log from `place` to `end`.
    """

    decision: BatchDecision
    broker_name: str
    place: int = 0
    end: int = 0
    stored_ms: int = 0


@dataclass(slots=True)
class Published:
    """Note: all messages of the batch that were staged here are published."""

    writer: str
    batch: int
    stored_ms: int = 0


@dataclass(slots=True)
class PublishedEverywhere:
    """Note of the coordinator: all brokers have published the batch."""

    writer: str
    batch: int


@dataclass(slots=True)
class UndecidableAttempts:
    """Note: these attempts can no longer be decided; with `locally`, only their units at this broker are dropped."""

    attempts: AttemptList
    locally: bool = False
    place: int = 0
    stored_ms: int = 0


@dataclass(slots=True)
class Forgotten:
    """Note: the state of these writers is dropped after a long idle time."""

    writers: list[str]
    place: int = 0


Note = Decided | Published | PublishedEverywhere | UndecidableAttempts | Forgotten


@dataclass(slots=True)
class OpenAttempt:
    """An attempt in a snapshot; `units` has number, queue offset and physical offset of each unit in sequence."""

    name: str
    batch: int
    since_ms: int
    units: list[int] = field(default_factory=list)


@dataclass(slots=True)
class WriterState:
    """A writer in a snapshot; `place` is the physical offset of the running publication's note, -1 without one."""

    writer: str
    coordinator: str
    touched_ms: int
    published: int
    decision: BatchDecision | None = None
    place: int = -1
    refused: dict[str, int] = field(default_factory=dict)
    open: list[OpenAttempt] = field(default_factory=list)
    everywhere: int = -1
    refusals: int = 0
    floor: int = 0


@dataclass(slots=True)
class StagingSnapshot:
    """State of all writers after the notes and units before the snapshot.

    Attributes:
        writers: all writers.
        next: the next offset of the queue of staged messages.
    """

    writers: list[WriterState] = field(default_factory=list)
    next: int = 0

    @property
    def units(self) -> int:
        """Number of units of open attempts."""
        return sum(len(attempt.units) for state in self.writers for attempt in state.open) // 3
