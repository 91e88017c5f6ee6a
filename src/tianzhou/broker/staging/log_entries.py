"""What the log remembers of staged messages: notes of what happened, and snapshots of all of them. Values."""

from __future__ import annotations

from dataclasses import dataclass, field

from tianzhou.wire.bodies.staging import AttemptList, BatchDecision


@dataclass(slots=True)
class Decided:
    """A note: the batch consists of these attempts; `broker_name` is who wrote it, and `place`, `end` where it is."""

    decision: BatchDecision
    broker_name: str
    place: int = 0
    end: int = 0
    stored_ms: int = 0


@dataclass(slots=True)
class Published:
    """A note: everything of the batch that was staged here is in its queues."""

    writer: str
    batch: int
    stored_ms: int = 0


@dataclass(slots=True)
class Everywhere:
    """A note of the coordinator: all brokers have published the batch, so that none need be asked again."""

    writer: str
    batch: int


@dataclass(slots=True)
class Refused:
    """A note: these attempts can no longer be decided; with `locally`, only what they staged here is forgotten."""

    attempts: AttemptList
    locally: bool = False
    place: int = 0
    stored_ms: int = 0


@dataclass(slots=True)
class Forgotten:
    """A note: nobody has heard of these writers for so long that nothing is remembered of them."""

    writers: list[str]
    place: int = 0


Note = Decided | Published | Everywhere | Refused | Forgotten


@dataclass(slots=True)
class OpenAttempt:
    """What a snapshot says of an attempt; `units` has number, offset and place of one unit after the other."""

    name: str
    batch: int
    since_ms: int
    units: list[int] = field(default_factory=list)


@dataclass(slots=True)
class WriterState:
    """What a snapshot says of a writer; `place` is that of the publication under way, -1 without one."""

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
class Snapshot:
    """Everything notes and units before it have said.

    Attributes:
        writers: all writers.
        next: the next offset of the queue of staged messages.
    """

    writers: list[WriterState] = field(default_factory=list)
    next: int = 0

    @property
    def units(self) -> int:
        """How many units open attempts have."""
        return sum(len(attempt.units) for state in self.writers for attempt in state.open) // 3
