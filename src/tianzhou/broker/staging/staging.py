"""Ledger of staged messages: attempts and their units, decisions, and progress of publications.

A task stages its messages as units of an attempt. The writer's coordinator decides once which attempts make up a
batch; every broker that holds units of them publishes these and drops the others (docs/adr/0006). A batch is
decided once, batches of a writer in ascending order, and an attempt that was refused can no longer be decided.

This module does no I/O. `tianzhou.broker.staging.staging_publisher` carries out its decisions. `restore` rebuilds the
ledger from the notes and units in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from tianzhou.broker.staging.log_entries import (
    Decided,
    Forgotten,
    Note,
    OpenAttempt,
    Published,
    PublishedEverywhere,
    StagingSnapshot,
    UndecidableAttempts,
    WriterState,
)
from tianzhou.limits import STAGED_UNITS, STAGED_WRITERS, Bounds
from tianzhou.wire.bodies.staging import AttemptList, BatchDecision, refusals_before

MAX_REFUSED: Final = 1_000
"""Maximum refused attempts of a writer remembered by name; older ones are recognized by their start."""


class Unit(NamedTuple):
    """Place of a unit of staged messages.

    Attributes:
        number: number of the unit in its attempt, from 0.
        offset: queue offset in the queue of staged messages.
        place: physical offset in the commit log.
    """

    number: int
    offset: int
    place: int


@dataclass(slots=True)
class Attempt:
    """Units that one attempt of a task has staged here.

    Attributes:
        name: unique name.
        batch: the batch it belongs to.
        since_ms: store time of its first unit, ms.
        units: units by number.
    """

    name: str
    batch: int
    since_ms: int
    units: dict[int, Unit] = field(default_factory=dict)


@dataclass(slots=True)
class Publication:
    """A decided batch that is being published.

    Attributes:
        decision: the decision with the attempts to publish.
        place: physical offset of the decision's note; all messages of the batch are stored after it.
        units: units to publish here, in order.
        unit: index of the next unit.
        message: index of the next message in it.
        found: unique keys of messages that a previous process published.
    """

    decision: BatchDecision
    place: int
    units: list[Unit]
    unit: int = 0
    message: int = 0
    found: set[str] = field(default_factory=set)


@dataclass(slots=True)
class StagingWriter:
    """State of a writer.

    Attributes:
        coordinator: name of the broker that decides the writer's batches.
        touched_ms: time of the last event.
        attempts: undecided attempts, by name.
        decision: the last decision known here; its attempts are dropped once no broker needs them.
        decided_end: end of the decision's note in the commit log; the decision is answered only after a flush up to it.
        published: last batch whose messages are all published here.
        everywhere: at the coordinator, the last batch with units at other brokers that all brokers have published.
        publication: the batch that is being published.
        refused: attempts that can no longer be decided and their batches, in the order of refusal.
        refusals: number of all refusals. The name of an attempt begins with this number at the attempt's start.
        floor: attempts that began before this number of refusals are refused too; their names are dropped.
    """

    coordinator: str
    touched_ms: int = 0
    attempts: dict[str, Attempt] = field(default_factory=dict)
    decision: BatchDecision | None = None
    decided_end: int = 0
    published: int = -1
    everywhere: int = -1
    publication: Publication | None = None
    refused: dict[str, int] = field(default_factory=dict)
    refusals: int = 0
    floor: int = 0

    @property
    def decided(self) -> int:
        """The last batch that was decided, -1 for none."""
        return -1 if self.decision is None else self.decision.batch

    def refuses(self, attempt: str) -> bool:
        """Whether an attempt can no longer be decided."""
        return attempt in self.refused or refusals_before(attempt) < self.floor


class UnitTreatment(Enum):
    """Treatment of a unit that arrives."""

    TAKE = auto()
    KNOWN = auto()
    DECIDED = auto()
    REFUSED = auto()


@dataclass(slots=True)
class StagedUnit:
    """A unit with its writer, batch and attempt, as in its record."""

    writer: str
    batch: int
    attempt: str
    coordinator: str
    unit: Unit
    stored_ms: int


class StagingLedger:
    """Writers and their staged units at this broker.

    Args:
        broker_name: this broker's name, the key of its unit counts in decisions.
        max_refused: see `MAX_REFUSED`.
        bounds: limits in force.
    """

    def __init__(self, broker_name: str = "", max_refused: int = MAX_REFUSED, *, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._units = 0  # an upper bound of the number of units
        self._broker_name = broker_name
        self._max_refused = max_refused
        self._writers: dict[str, StagingWriter] = {}

    def __len__(self) -> int:
        return len(self._writers)

    def get(self, writer: str) -> StagingWriter | None:
        """Return the state of a writer, None when it is unknown."""
        return self._writers.get(writer)

    def check_room(self, name: str, units: int = 0) -> None:
        """Check that a writer and its units fit into the limits.

        Raises:
            LimitExceeded: there are too many.
        """
        if name not in self._writers:
            self._bounds.check(STAGED_WRITERS, len(self._writers) + 1, f"writer {name}")
        if units and self._units + units > self._bounds.most(STAGED_UNITS):
            self._count()
            self._bounds.check(STAGED_UNITS, self._units + units, f"units of writer {name}")

    def _count(self) -> None:
        attempts = (attempt for writer in self._writers.values() for attempt in writer.attempts.values())
        self._units = sum(len(attempt.units) for attempt in attempts)

    def entry(self, writer: str, batch: int, attempt: str, number: int) -> UnitTreatment:
        """Return the treatment of a unit that arrives."""
        known = self._writers.get(writer)
        if known is None:
            return UnitTreatment.TAKE
        if batch <= max(known.decided, known.published):
            return UnitTreatment.DECIDED
        if known.refuses(attempt):
            return UnitTreatment.REFUSED
        waiting = known.attempts.get(attempt)
        return UnitTreatment.KNOWN if waiting is not None and number in waiting.units else UnitTreatment.TAKE

    def staged(self, found: StagedUnit) -> None:
        """Note a stored unit."""
        writer = self._writers.setdefault(found.writer, StagingWriter(found.coordinator))
        attempt = writer.attempts.setdefault(found.attempt, Attempt(found.attempt, found.batch, found.stored_ms))
        attempt.units[found.unit.number] = found.unit
        self._units += 1
        writer.touched_ms = max(writer.touched_ms, found.stored_ms)

    def missing(self, decision: BatchDecision) -> list[str]:
        """Return the attempts of a decision that lack units here."""
        return [
            attempt.name
            for attempt in decision.attempts
            if self.hole(decision.writer, attempt.name, attempt.units.get(self._broker_name, 0)) is not None
        ]

    def hole(self, writer: str, attempt: str, count: int) -> int | None:
        """Return the number of the first missing unit of an attempt below `count`, None when none is missing."""
        known = self._writers.get(writer)
        waiting = None if known is None else known.attempts.get(attempt)
        units = {} if waiting is None else waiting.units
        # Stop at the first missing unit: `count` comes from a peer and may be any number.
        return next((number for number in range(count) if number not in units), None)

    def refused_of(self, decision: BatchDecision) -> list[str]:
        """Return the attempts of a decision that can no longer be decided."""
        writer = self._writers.get(decision.writer)
        return [] if writer is None else [name for name in decision.names() if writer.refuses(name)]

    # notes that are in the log

    def apply(self, note: Note) -> None:
        """Apply a note that was written to the log."""
        if isinstance(note, Decided):
            self._decided(note)
        elif isinstance(note, Published):
            self._published(note)
        elif isinstance(note, PublishedEverywhere):
            if (writer := self._writers.get(note.writer)) is not None:
                writer.everywhere = max(writer.everywhere, note.batch)
                self._shorten(writer)
        elif isinstance(note, UndecidableAttempts):
            self._refused(note)
        else:
            for name in note.writers:
                self._writers.pop(name, None)

    def _decided(self, note: Decided) -> None:
        decision = note.decision
        writer = self._writers.setdefault(decision.writer, StagingWriter(decision.coordinator))
        writer.decision, writer.decided_end, writer.coordinator = decision, note.end, decision.coordinator
        writer.touched_ms = max(writer.touched_ms, note.stored_ms)
        counts = {attempt.name: attempt.units.get(note.broker_name, 0) for attempt in decision.attempts}
        if any(counts.values()):
            writer.publication = _publication(writer, note)
        else:
            writer.published = decision.batch
        self._drop(writer, decision.batch, keep=counts if writer.publication else ())
        self._shorten(writer)

    def _published(self, note: Published) -> None:
        writer = self._writers.get(note.writer)
        if writer is None:
            return
        writer.published = max(writer.published, note.batch)
        writer.touched_ms = max(writer.touched_ms, note.stored_ms)
        if writer.publication is not None and writer.publication.decision.batch <= note.batch:
            writer.publication = None
        self._drop(writer, note.batch)
        self._shorten(writer)

    def _refused(self, note: UndecidableAttempts) -> None:
        refused = note.attempts
        writer = self._writers.setdefault(refused.writer, StagingWriter(refused.coordinator))
        writer.touched_ms = max(writer.touched_ms, note.stored_ms)
        for name in refused.attempts:
            writer.attempts.pop(name, None)
            if not note.locally and refused.batch > writer.decided and not writer.refuses(name):
                writer.refused[name] = refused.batch
                writer.refusals += 1
        if len(writer.refused) > self._max_refused:
            for name in list(writer.refused)[: -self._max_refused]:
                del writer.refused[name]
            # An attempt that begins now gets the present number of refusals; attempts with dropped names began with a
            # smaller one.
            writer.floor = writer.refusals - len(writer.refused)
            writer.attempts = {
                name: attempt
                for name, attempt in writer.attempts.items()
                if attempt.batch <= writer.decided or not writer.refuses(name)
            }

    def _shorten(self, writer: StagingWriter) -> None:
        """Drop the attempts of a decision once its batch is published.

        The coordinator drops them once all brokers have published the batch.
        """
        decision = writer.decision
        if decision is None or writer.published < decision.batch:
            return
        if decision.coordinator != self._broker_name or not self.elsewhere(decision.writer):
            writer.decision = replace(decision, attempts=[])

    @staticmethod
    def _drop(writer: StagingWriter, batch: int, keep: Iterable[str] = ()) -> None:
        """Drop attempts and refusals of a batch and earlier ones."""
        keep_names = set(keep)
        writer.attempts = {
            name: attempt
            for name, attempt in writer.attempts.items()
            if attempt.batch > batch or (attempt.batch == batch and name in keep_names)
        }
        writer.refused = {name: of for name, of in writer.refused.items() if of > batch}

    # rounds

    def publishing(self) -> list[str]:
        """Return the writers with a batch that is not completely published."""
        return [name for name, writer in self._writers.items() if writer.publication is not None]

    def overdue(self, before_ms: int) -> list[AttemptList]:
        """Return the attempts that are undecided since before a time, by writer and batch."""
        found: dict[tuple[str, int], AttemptList] = {}
        for name, writer in self._writers.items():
            for attempt in writer.attempts.values():
                if attempt.since_ms < before_ms and attempt.batch > writer.decided:
                    key = (name, attempt.batch)
                    of_batch = found.setdefault(key, AttemptList(name, attempt.batch, writer.coordinator))
                    of_batch.attempts.append(attempt.name)
        return list(found.values())

    def idle(self, before_ms: int) -> list[str]:
        """Return the writers without an event since a time on which no other broker depends."""
        return [name for name in self._silent(before_ms) if not self._decides_for_others(name)]

    def unpropagated(self, before_ms: int) -> list[str]:
        """Return the idle writers whose last decision other brokers may still need from this one."""
        return [name for name in self._silent(before_ms) if self._decides_for_others(name)]

    def elsewhere(self, name: str) -> bool:
        """Whether a writer's last batch has units at other brokers that may not be published yet."""
        writer = self._writers.get(name)
        if writer is None or writer.decision is None or writer.everywhere >= writer.decided:
            return False
        return any(broker != self._broker_name for broker in writer.decision.brokers)

    def _decides_for_others(self, name: str) -> bool:
        return self._writers[name].coordinator == self._broker_name and self.elsewhere(name)

    def _silent(self, before_ms: int) -> list[str]:
        return [
            name
            for name, writer in self._writers.items()
            if writer.touched_ms < before_ms and not writer.attempts and writer.publication is None
        ]

    # restart

    def snapshot(self, next_offset: int) -> StagingSnapshot:
        """Return a snapshot from which `restore` rebuilds the ledger.

        Args:
            next_offset: end offset of the queue of staged messages.
        """
        states = []
        for name, writer in self._writers.items():
            # A batch that is being published stays among the attempts until it is completely published.
            attempts = [
                OpenAttempt(one.name, one.batch, one.since_ms, [part for unit in one.units.values() for part in unit])
                for one in writer.attempts.values()
            ]
            place = -1 if writer.publication is None else writer.publication.place
            states.append(
                WriterState(
                    name, writer.coordinator, writer.touched_ms, writer.published, writer.decision, place,
                    dict(writer.refused), attempts, writer.everywhere, writer.refusals, writer.floor,
                )
            )  # fmt: skip
        return StagingSnapshot(states, next_offset)

    def restore(self, snapshot: StagingSnapshot, notes: Sequence[Note], units: Iterable[StagedUnit]) -> None:
        """Rebuild the ledger.

        Args:
            snapshot: the last snapshot.
            notes: notes written after it, in order.
            units: units from the snapshot's `next` on, in order.
        """
        self._writers = {}
        places: dict[str, Decided] = {}
        for state in snapshot.writers:
            self._writers[state.writer] = StagingWriter(
                state.coordinator, state.touched_ms, _attempts(state.open), state.decision, published=state.published,
                everywhere=state.everywhere, refused=dict(state.refused), refusals=state.refusals, floor=state.floor,
            )  # fmt: skip
            if state.place >= 0 and state.decision is not None:
                places[state.writer] = Decided(state.decision, self._broker_name, state.place)
        # Units of an attempt, or of a whole writer, before these physical offsets are dropped.
        gone: dict[tuple[str, str], int] = {}
        for note in notes:
            self.apply(note)
            if isinstance(note, Decided):
                places[note.decision.writer] = note
            elif isinstance(note, UndecidableAttempts):
                gone |= {(note.attempts.writer, name): note.place for name in note.attempts.attempts}
            elif isinstance(note, Forgotten):
                gone |= {(name, ""): note.place for name in note.writers}
        pending = {
            name: note
            for name, note in places.items()
            if (writer := self._writers.get(name)) is not None and note.decision.batch > writer.published
        }
        for found in units:
            self._revive(found, gone, pending)
        for name, note in pending.items():
            writer = self._writers[name]
            writer.publication = _publication(writer, note)
        self._count()

    def _revive(self, found: StagedUnit, gone: Mapping[tuple[str, str], int], pending: Mapping[str, Decided]) -> None:
        writer = self._writers.get(found.writer)
        note = pending.get(found.writer)
        if note is None or found.batch != note.decision.batch or found.attempt not in note.decision.names():
            if found.unit.place < max(gone.get((found.writer, found.attempt), 0), gone.get((found.writer, ""), 0)):
                return
            if writer is not None and (
                found.batch <= max(writer.decided, writer.published) or writer.refuses(found.attempt)
            ):
                return
        self.staged(found)


def _publication(writer: StagingWriter, note: Decided) -> Publication:
    """Return the publication of a decided batch from its beginning, with its units at this broker."""
    units = [
        unit
        for attempt in note.decision.attempts
        if attempt.name in writer.attempts
        for number, unit in sorted(writer.attempts[attempt.name].units.items())
        if number < attempt.units.get(note.broker_name, 0)
    ]
    return Publication(note.decision, note.place, units)


def _attempts(states: Iterable[OpenAttempt]) -> dict[str, Attempt]:
    """Return the attempts of a writer, each joined from its pieces in a snapshot."""
    found: dict[str, Attempt] = {}
    for state in states:
        attempt = found.setdefault(state.name, Attempt(state.name, state.batch, state.since_ms))
        for number, offset, place in zip(*(iter(state.units),) * 3, strict=True):
            attempt.units[number] = Unit(number, offset, place)
    return found
