"""Transactions: which half messages still wait for a decision, and what is to be done about them (broker.md §13).

A half message is decided once: by its producer, or by the answer to a check. Checking a half message writes it again,
with its number of checks; a decision about an older copy counts for the newest. What has been decided is no longer
here, so that a second decision finds nothing: a message is committed or rolled back, never both.

Nothing here waits or stores. `transaction_checker` does what this ledger says, and the log is its memory: `restore`
rebuilds the ledger from half messages and marks.
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
"""A half message that is not to be checked yet moves to the queue's end when it lags behind by more."""


class HalfIdentity(NamedTuple):
    """What all copies of a half message have in common."""

    unique_key: str
    group: str
    born_timestamp: int
    born_host: bytes
    born_port: int


class TransactionOutcome(Enum):
    """How a transaction ended."""

    COMMITTED = auto()
    ROLLED_BACK = auto()


class HalfVerdict(Enum):
    """What is to be done about a half message that waits."""

    WAIT = auto()
    CHECK = auto()
    MOVE = auto()
    GIVE_UP = auto()


@dataclass(slots=True, eq=False)
class WaitingHalf:
    """A half message that waits for its decision.

    Attributes:
        identity: what its copies share.
        offset: of the newest copy in the half queue.
        place: of the newest copy in the commit log.
        since_ms: when it was first stored, as far as that is known.
        topic: where it goes when it is committed.
        immunity_ms: for how long it must not be checked; None for the broker's own limit.
        checks: how often it was checked.
        moved_from: queue offset before it was moved without a check, None when it never was.
        older: queue offset and place of the copies before.
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
        """Whether the newest copy is not what the producer sent."""
        return self.checks > 0 or self.moved_from is not None

    @property
    def places(self) -> set[int]:
        """Where the copies that are known lie in the commit log."""
        return {self.place, *(place for _, place in self.older)}


def verdict(
    half: WaitingHalf, now_ms: int, *, timeout_ms: int, check_max: int, reserved_ms: int, lags: bool, reachable: bool
) -> HalfVerdict:
    """Decide about a half message in a round of checks (broker.md §13.4).

    Args:
        half: the message.
        now_ms: wall-clock time.
        timeout_ms: how long a producer has for its first decision (`transactionTimeOut`).
        check_max: how often it is checked (`transactionCheckMax`).
        reserved_ms: retention of messages (`fileReservedTime`); what waits for longer is given up.
        lags: the message holds up others, or its segment may soon be deleted.
        reachable: a producer of the group is connected. While none is, nothing is counted: a producer that is
            away for an hour finds its messages when it is back.
    """
    age = now_ms - half.since_ms
    patience = timeout_ms if half.immunity_ms is None else half.immunity_ms
    if half.checks >= check_max or age > max(reserved_ms, patience):
        return HalfVerdict.GIVE_UP
    if age >= patience and reachable:
        return HalfVerdict.CHECK
    return HalfVerdict.MOVE if lags else HalfVerdict.WAIT


class TransactionLedger:
    """The half messages that wait, in the order of their queue, and the marks that say which do not any more.

    Attributes:
        progress: offset of the half queue before which all are done.
        counts: how many wait, by the topic they are for.
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
        """A half message was stored; its offset is beyond all others'."""
        self._open[half.offset] = self._copies[half.offset] = self._identities[half.identity] = half
        self.counts[half.topic] = self.counts.get(half.topic, 0) + 1
        self._given_up.pop(half.identity, None)

    def waiting(self) -> list[WaitingHalf]:
        """All that wait, in the order of their newest copies."""
        return list(self._open.values())

    def is_open(self, half: WaitingHalf) -> bool:
        """Whether a half message still waits."""
        return self._open.get(half.offset) is half

    def waits(self, identity: HalfIdentity) -> bool:
        """Whether a half message with this identity waits."""
        return identity in self._identities

    def find(self, offset: int, identity: HalfIdentity) -> WaitingHalf | None:
        """The half message a decision is about.

        Args:
            offset: queue offset of any of its copies.
            identity: of the record at that offset.

        Returns:
            The message, or None when it has been decided. One that was given up may still be decided.
        """
        found = self._copies.get(offset)
        if found is None:
            # A copy from before the ledger was restored is known by its identity only.
            found = self._identities.get(identity)
            if found is not None and not (found.is_copy and offset < self._first(found)):
                found = None
        elif found.identity != identity:
            return None
        return self._given_up.get(identity) if found is None else found

    def outcome(self, offset: int) -> TransactionOutcome | None:
        """What was decided of a half queue offset lately, None when that is not known (any more)."""
        return self._outcomes.get(offset)

    def decided(self, half: WaitingHalf, outcome: TransactionOutcome) -> list[int]:
        """A half message was committed or rolled back; returns the queue offsets to be marked."""
        offsets = [half.offset, *(offset for offset, _ in half.older)]
        for offset in offsets:
            self._outcomes[offset] = outcome
        while len(self._outcomes) > REMEMBERED:
            del self._outcomes[next(iter(self._outcomes))]
        self._given_up.pop(half.identity, None)
        self._close(half)
        # What lies before the progress is done for every reader, marked or not.
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
        """Give up a half message: it is checked no more; returns the queue offsets to mark."""
        self._close(half)
        self._given_up[half.identity] = half
        while len(self._given_up) > REMEMBERED:
            del self._given_up[next(iter(self._given_up))]
        return [half.offset]

    def lost(self, half: WaitingHalf) -> None:
        """A half message is no longer in the log."""
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
        """The first `count` unwritten marks are in the log, as one message of the op queue."""
        written, self._unwritten = self._unwritten[:count], self._unwritten[count:]
        self.marked(op_offset, written)

    def marked(self, op_offset: int, offsets: Collection[int]) -> None:
        """The op queue has marks for half queue offsets."""
        self._next_mark = op_offset + 1
        if offsets:
            self._marks.append((op_offset, max(offsets)))

    def positions(self, half_end: int) -> tuple[int, int]:
        """How far half queue and op queue are done with; both only grow.

        Args:
            half_end: next offset of the half queue.

        Returns:
            The next offset of each that a reader after a restart has to look at.
        """
        # A decision whose mark is not written yet holds nothing up: what lies before the progress is done anyway.
        self.progress = max(self.progress, min(next(iter(self._open), half_end), half_end))
        while self._marks and self._marks[0][1] < self.progress:
            self._marks.popleft()
        return self.progress, self._marks[0][0] if self._marks else self._next_mark

    # a new life

    def clear(self) -> None:
        """Forget everything, before the log is read again."""
        self.counts.clear()
        for table in (self._open, self._copies, self._identities, self._given_up, self._outcomes):
            table.clear()
        self._marks.clear()
        self._unwritten = []
        self._next_mark = self.progress = 0

    def restore(self, halves: Iterable[WaitingHalf], marked: Collection[int], progress: int, op_progress: int) -> None:
        """Rebuild the ledger.

        Args:
            halves: one per record of the half queue from `progress` on, in order.
            marked: half queue offsets that have marks.
            progress: how far the half queue was done with.
            op_progress: how far the op queue was done with.
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
