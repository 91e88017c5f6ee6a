"""Ledger of transactions: half messages that wait for a decision, and their next steps (broker.md §13).

A half message is decided once: by its producer, or by the answer to a check. Checking a half message appends a copy
with its number of checks. A decision about an older copy holds for the newest one. The ledger drops decided half
messages, so a second decision finds none: a message is either committed or rolled back.

This module does no I/O. `transaction_checker` carries out the verdicts. `restore` rebuilds the ledger from the half
messages and marks in the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

REMEMBERED = 10_000
"""Maximum decisions, and maximum abandoned messages, remembered for repeated requests."""
LAG_LIMIT = 100_000
"""Offsets that an unchecked half message may lag behind the queue's end before it is copied to the end."""


class HalfIdentity(NamedTuple):
    """Identity of a half message, which all its copies share."""

    unique_key: str
    group: str
    born_timestamp: int
    born_host: bytes
    born_port: int


class TransactionOutcome(Enum):
    """Outcome of a transaction."""

    COMMITTED = auto()
    ROLLED_BACK = auto()


class HalfVerdict(Enum):
    """Next step for a waiting half message."""

    WAIT = auto()
    CHECK = auto()
    MOVE = auto()
    GIVE_UP = auto()


@dataclass(slots=True, eq=False)
class WaitingHalf:
    """A half message that waits for its decision.

    Attributes:
        identity: identity that all copies share.
        offset: queue offset of the newest copy in the half queue.
        place: physical offset of the newest copy in the commit log.
        since_ms: store time of the oldest known copy, ms.
        topic: the topic of the committed message.
        immunity_ms: ms in which it must not be checked; None for the broker's own limit.
        checks: number of checks so far.
        moved_from: queue offset before the first move without a check; None when it was never moved.
        older: queue offset and physical offset of each older copy.
    """

    identity: HalfIdentity
    offset: int
    place: int
    since_ms: int
    topic: str = ""
    immunity_ms: int | None = None
    checks: int = 0
    moved_from: int | None = None
    older: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_copy(self) -> bool:
        """Whether the newest copy was written by the broker."""
        return self.checks > 0 or self.moved_from is not None

    @property
    def places(self) -> set[int]:
        """Physical offsets of all known copies in the commit log."""
        return {self.place, *(place for _, place in self.older)}


def verdict(
    half: WaitingHalf, now_ms: int, *, timeout_ms: int, check_max: int, reserved_ms: int, lags: bool, reachable: bool
) -> HalfVerdict:
    """Return the next step for a half message in a round of checks (broker.md §13.4).

    Args:
        half: the message.
        now_ms: wall-clock time.
        timeout_ms: ms that a producer has for its first decision (`transactionTimeOut`).
        check_max: maximum number of checks (`transactionCheckMax`).
        reserved_ms: retention of messages (`fileReservedTime`); a half message that waits longer is abandoned.
        lags: whether the message delays the queue's progress, or its segment may soon be deleted.
        reachable: whether a producer of the group is connected. Without one no check is counted, so a producer that is
            away for an hour finds its messages when it returns.
    """
    age = now_ms - half.since_ms
    patience = timeout_ms if half.immunity_ms is None else half.immunity_ms
    if half.checks >= check_max or age > max(reserved_ms, patience):
        return HalfVerdict.GIVE_UP
    if age >= patience and reachable:
        return HalfVerdict.CHECK
    return HalfVerdict.MOVE if lags else HalfVerdict.WAIT


class TransactionLedger:
    """Waiting half messages in queue order, and the marks of decided ones.

    Attributes:
        progress: offset of the half queue below which all half messages are done.
        counts: number of waiting half messages by target topic.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._open: dict[int, WaitingHalf] = {}
        self._copies: dict[int, WaitingHalf] = {}
        self._identities: dict[HalfIdentity, WaitingHalf] = {}
        self._given_up: dict[HalfIdentity, WaitingHalf] = {}
        self._outcomes: dict[int, TransactionOutcome] = {}
        self._marks: deque[tuple[int, int]] = deque()
        self._unwritten: list[int] = []
        self._next_mark = 0
        self.progress = 0

    def __len__(self) -> int:
        return len(self._open)

    # half messages

    def opened(self, half: WaitingHalf) -> None:
        """Add a stored half message, whose offset is above all others."""
        self._open[half.offset] = self._copies[half.offset] = self._identities[half.identity] = half
        self.counts[half.topic] = self.counts.get(half.topic, 0) + 1
        self._given_up.pop(half.identity, None)

    def waiting(self) -> list[WaitingHalf]:
        """Return all waiting half messages in the order of their newest copies."""
        return list(self._open.values())

    def is_open(self, half: WaitingHalf) -> bool:
        """Whether a half message still waits."""
        return self._open.get(half.offset) is half

    def waits(self, identity: HalfIdentity) -> bool:
        """Whether a half message with this identity waits."""
        return identity in self._identities

    def find(self, offset: int, identity: HalfIdentity) -> WaitingHalf | None:
        """Return the half message that a decision names.

        Args:
            offset: queue offset of one of its copies.
            identity: identity of the record at that offset.

        Returns:
            The message, or None when it has been decided. An abandoned message may still be decided.
        """
        found = self._copies.get(offset)
        if found is None:
            # A copy that was stored before the ledger was restored is found by its identity only.
            found = self._identities.get(identity)
            if found is not None and not (found.is_copy and offset < self._first(found)):
                found = None
        elif found.identity != identity:
            return None
        return self._given_up.get(identity) if found is None else found

    def outcome(self, offset: int) -> TransactionOutcome | None:
        """Return the recent outcome for a half queue offset; None when it is unknown or too old."""
        return self._outcomes.get(offset)

    def decided(self, half: WaitingHalf, outcome: TransactionOutcome) -> list[int]:
        """Note that a half message was committed or rolled back; return the queue offsets to mark."""
        offsets = [half.offset, *(offset for offset, _ in half.older)]
        for offset in offsets:
            self._outcomes[offset] = outcome
        while len(self._outcomes) > REMEMBERED:
            del self._outcomes[next(iter(self._outcomes))]
        self._given_up.pop(half.identity, None)
        self._close(half)
        # Readers skip offsets below the progress, so these need no mark.
        return [offset for offset in offsets if offset == half.offset or offset >= self.progress]

    def copied(self, half: WaitingHalf, offset: int, place: int, *, checked: bool) -> None:
        """Note a half message's copy at the end of its queue, made with or without a check."""
        del self._open[half.offset]
        half.older.append((half.offset, half.place))
        if checked:
            half.checks += 1
        elif half.moved_from is None:
            half.moved_from = half.offset
        half.offset, half.place = offset, place
        self._open[offset] = self._copies[offset] = half

    def gave_up(self, half: WaitingHalf) -> list[int]:
        """Abandon a half message, which is not checked again; return the queue offsets to mark."""
        self._close(half)
        self._given_up[half.identity] = half
        while len(self._given_up) > REMEMBERED:
            del self._given_up[next(iter(self._given_up))]
        return [half.offset]

    def lost(self, half: WaitingHalf) -> None:
        """Drop a half message that is no longer in the log."""
        self._close(half)

    def _close(self, half: WaitingHalf) -> None:
        if self._open.get(half.offset) is half:
            del self._open[half.offset]
            self.counts[half.topic] -= 1
        for offset in (half.offset, *(offset for offset, _ in half.older)):
            self._copies.pop(offset, None)
        if self._identities.get(half.identity) is half:
            del self._identities[half.identity]

    @staticmethod
    def _first(half: WaitingHalf) -> int:
        return half.older[0][0] if half.older else half.offset

    # marks

    def mark(self, offsets: Iterable[int]) -> None:
        """Note half queue offsets that are to be marked as done."""
        self._unwritten.extend(offsets)

    @property
    def unwritten(self) -> list[int]:
        """Offsets whose marks are not in the log yet."""
        return self._unwritten

    def marks_written(self, count: int, op_offset: int) -> None:
        """Note that the first `count` unwritten marks are in the log as one message of the op queue."""
        written, self._unwritten = self._unwritten[:count], self._unwritten[count:]
        self.marked(op_offset, written)

    def marked(self, op_offset: int, offsets: Collection[int]) -> None:
        """Note the half queue offsets that a message of the op queue marks."""
        self._next_mark = op_offset + 1
        if offsets:
            self._marks.append((op_offset, max(offsets)))

    def positions(self, half_end: int) -> tuple[int, int]:
        """Return the progress in the half queue and the op queue; both only grow.

        Args:
            half_end: end offset of the half queue.

        Returns:
            The first offset of each queue that a restart has to read.
        """
        # The progress passes decided offsets whose marks are not written yet, because readers skip offsets below it.
        self.progress = max(self.progress, min(next(iter(self._open), half_end), half_end))
        while self._marks and self._marks[0][1] < self.progress:
            self._marks.popleft()
        return self.progress, self._marks[0][0] if self._marks else self._next_mark

    # restart

    def clear(self) -> None:
        """Clear the ledger before the log is read again."""
        self.counts.clear()
        for table in (self._open, self._copies, self._identities, self._given_up, self._outcomes):
            table.clear()
        self._marks.clear()
        self._unwritten = []
        self._next_mark = self.progress = 0

    def restore(self, halves: Iterable[WaitingHalf], marked: Collection[int], progress: int, op_progress: int) -> None:
        """Rebuild the ledger.

        Args:
            halves: one for each record of the half queue from `progress` on, in order.
            marked: half queue offsets that have marks.
            progress: saved progress in the half queue.
            op_progress: saved progress in the op queue.
        """
        self.progress, self._next_mark = progress, max(self._next_mark, op_progress)
        newest: dict[int, WaitingHalf] = {}
        by_identity: dict[HalfIdentity, WaitingHalf] = {}
        for half in halves:
            before = by_identity.get(half.identity) if half.is_copy else None
            if before is not None:
                half.older = [*before.older, (before.offset, before.place)]
                half.since_ms = min(half.since_ms, before.since_ms)
                del newest[before.offset]
            newest[half.offset] = by_identity[half.identity] = half
        for half in newest.values():
            if half.offset in marked or (half.moved_from is not None and half.moved_from in marked):
                continue
            self.opened(half)
            for offset, _ in half.older:
                self._copies[offset] = half
