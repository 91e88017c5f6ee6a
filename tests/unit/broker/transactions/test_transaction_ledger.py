"""The ledger of transactions over values: pending ones, targets of decisions, and the state after a restart."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tianzhou.broker.transactions.transaction_checker import rotated
from tianzhou.broker.transactions.transactions import (
    HalfIdentity,
    HalfVerdict,
    TransactionLedger,
    TransactionOutcome,
    WaitingHalf,
    verdict,
)

TIMEOUT, CHECKS, RESERVED = 6_000, 3, 3_600_000


def identity(key: str = "U", born: int = 1) -> HalfIdentity:
    return HalfIdentity(key, "P", born, b"\x7f\0\0\1", 5)


def judged(half: WaitingHalf, age: int, *, lags: bool = False, reachable: bool = True) -> HalfVerdict:
    return verdict(
        half,
        half.since_ms + age,
        timeout_ms=TIMEOUT,
        check_max=CHECKS,
        reserved_ms=RESERVED,
        lags=lags,
        reachable=reachable,
    )


@pytest.mark.parametrize(
    ("age", "immunity", "checks", "more", "expected"),
    [
        (5_999, None, 0, {}, HalfVerdict.WAIT),
        (6_000, None, 0, {}, HalfVerdict.CHECK),
        (-5, None, 0, {}, HalfVerdict.WAIT),
        (6_000, 60_000, 0, {}, HalfVerdict.WAIT),
        (60_000, 60_000, 0, {}, HalfVerdict.CHECK),
        (0, 0, 0, {}, HalfVerdict.CHECK),
        (6_000, 60_000, 0, {"lags": True}, HalfVerdict.MOVE),
        (60_000, 60_000, 0, {"lags": True}, HalfVerdict.CHECK),
        (60_000, None, 0, {"reachable": False}, HalfVerdict.WAIT),
        (60_000, None, 0, {"reachable": False, "lags": True}, HalfVerdict.MOVE),
        (60_000, None, 2, {}, HalfVerdict.CHECK),
        (60_000, None, 3, {}, HalfVerdict.GIVE_UP),
        (60_000, None, 3, {"reachable": False}, HalfVerdict.GIVE_UP),
        (RESERVED + 1, None, 0, {"reachable": False}, HalfVerdict.GIVE_UP),
        (RESERVED + 1, 2 * RESERVED, 0, {}, HalfVerdict.WAIT),
    ],
)
def test_what_is_done_about_a_half_message(
    age: int, immunity: int | None, checks: int, more: dict[str, bool], expected: HalfVerdict
) -> None:
    assert judged(WaitingHalf(identity(), 0, 0, 1_000, "T", immunity, checks), age, **more) is expected


def test_whose_turn_it_is() -> None:
    clients = [type("C", (), {"connection": name})() for name in "abcd"]
    assert rotated([], 3) == []
    assert [rotated(clients, n) for n in range(3)] == [["a", "b", "c"], ["b", "c", "d"], ["c", "d", "a"]]
    assert rotated(clients[:1], 7) == ["a"]


def test_positions_stop_at_the_first_that_waits() -> None:
    ledger = TransactionLedger()
    assert ledger.positions(0) == (0, 0)
    halves = [WaitingHalf(identity(str(n)), n, n * 100, 0) for n in range(4)]
    for half in halves:
        ledger.opened(half)
    assert ledger.positions(4) == (0, 0)
    ledger.mark(ledger.decided(halves[2], TransactionOutcome.COMMITTED))
    ledger.marks_written(1, 0)
    assert ledger.positions(4) == (0, 0)
    ledger.mark(ledger.decided(halves[0], TransactionOutcome.ROLLED_BACK))
    ledger.marks_written(1, 1)
    assert ledger.positions(4) == (1, 0), "the mark of 2 is still needed"
    ledger.copied(halves[1], 4, 400, checked=True)
    assert ledger.positions(5) == (3, 2)
    ledger.copied(halves[3], 5, 500, checked=True)
    assert ledger.positions(6) == (4, 2)


def test_a_copy_stands_for_the_message() -> None:
    ledger = TransactionLedger()
    half = WaitingHalf(identity(), 7, 700, 0)
    ledger.opened(half)
    ledger.copied(half, 9, 900, checked=True)
    ledger.copied(half, 12, 1200, checked=True)
    assert (half.checks, half.offset, half.place, half.places) == (2, 12, 1200, {700, 900, 1200})
    assert all(ledger.find(offset, identity()) is half for offset in (7, 9, 12))
    assert ledger.find(9, identity("V")) is None
    assert ledger.decided(half, TransactionOutcome.COMMITTED) == [12, 7, 9]
    assert all(ledger.find(offset, identity()) is None for offset in (7, 9, 12))
    assert all(ledger.outcome(offset) is TransactionOutcome.COMMITTED for offset in (7, 9, 12))


def test_a_new_life_knows_copies_from_before_the_progress() -> None:
    ledger = TransactionLedger()
    ledger.restore([WaitingHalf(identity(), 12, 1200, 0, checks=2)], set(), 10, 0)
    (half,) = ledger.waiting()
    assert ledger.find(3, identity()) is half
    assert ledger.find(13, identity()) is None, "no copy comes later than the newest"


def test_messages_sent_again_under_one_key_are_transactions_of_their_own() -> None:
    ledger = TransactionLedger()
    ledger.restore([WaitingHalf(identity(born=born), n, n, 0) for n, born in enumerate((1, 1, 2))], {0}, 0, 0)
    assert [half.offset for half in ledger.waiting()] == [1, 2]


def test_what_apache_moved_and_marked() -> None:
    moved = WaitingHalf(identity(), 9, 900, 0, moved_from=4)
    ledger = TransactionLedger()
    ledger.restore([moved], {4}, 5, 0)
    assert ledger.waiting() == [], "its producer decided about the original"


@dataclass
class Transaction:
    """The known facts of a transaction: its copies in the half queue, and the replies it got."""

    identity: HalfIdentity
    copies: list[int] = field(default_factory=list)
    truth: TransactionOutcome | None = None
    given_up: bool = False
    commits: int = 0


class Life(RuleBasedStateMachine):
    """A model broker that can crash at any moment; its lists are its log."""

    def __init__(self) -> None:
        super().__init__()
        self.halves: list[tuple[Transaction, int, int | None]] = []
        self.marks: list[list[int]] = []
        self.committed: set[int] = set()
        self.transactions: list[Transaction] = []
        self.told = (0, 0)
        self.ledger = TransactionLedger()
        self.now = 0

    # a position in the log is ten times the offset

    def store(self, transaction: Transaction, checks: int, moved_from: int | None) -> int:
        self.halves.append((transaction, checks, moved_from))
        transaction.copies.append(len(self.halves) - 1)
        return len(self.halves) - 1

    def write_marks(self) -> None:
        if count := len(self.ledger.unwritten):
            self.marks.append(self.ledger.unwritten[:count])
            self.ledger.marks_written(count, len(self.marks) - 1)

    def transaction_of(self, half: WaitingHalf) -> Transaction:
        return self.halves[half.offset][0]

    @rule(key=st.sampled_from("ABC"), immune=st.booleans())
    def send(self, key: str, immune: bool) -> None:
        transaction = Transaction(identity(key, born=len(self.transactions)))
        self.transactions.append(transaction)
        offset = self.store(transaction, 0, None)
        self.ledger.opened(
            WaitingHalf(transaction.identity, offset, offset * 10, self.now, "T", 60_000 if immune else None)
        )

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), outcome=st.sampled_from(TransactionOutcome))
    def decide(self, data: st.DataObject, outcome: TransactionOutcome) -> None:
        transaction = data.draw(st.sampled_from(self.transactions))
        offset = data.draw(st.sampled_from(transaction.copies))
        half = self.ledger.find(offset, transaction.identity)
        if transaction.truth is not None:
            assert half is None, "decided before"
            return
        if half is None:
            assert transaction.given_up
            return
        assert self.transaction_of(half) is transaction
        transaction.truth = outcome
        if outcome is TransactionOutcome.COMMITTED:
            self.committed.add(half.place)
            transaction.commits += 1
        self.ledger.mark(self.ledger.decided(half, outcome))
        if outcome is TransactionOutcome.ROLLED_BACK:
            self.write_marks()

    @rule(reachable=st.booleans(), lags=st.booleans(), at_most=st.integers(1, 9))
    def check(self, reachable: bool, lags: bool, at_most: int) -> None:
        copies = []
        for half in self.ledger.waiting()[:at_most]:
            transaction = self.transaction_of(half)
            match judged(half, self.now - half.since_ms, lags=lags, reachable=reachable):
                case HalfVerdict.GIVE_UP:
                    transaction.given_up = True
                    self.ledger.mark(self.ledger.gave_up(half))
                case HalfVerdict.CHECK:
                    copies.append(half.offset)
                    offset = self.store(transaction, half.checks + 1, half.moved_from)
                    self.ledger.copied(half, offset, offset * 10, checked=True)
                case HalfVerdict.MOVE:
                    first = half.offset if half.moved_from is None else half.moved_from
                    offset = self.store(transaction, half.checks, first)
                    self.ledger.copied(half, offset, offset * 10, checked=False)
        progress, _ = self.ledger.positions(len(self.halves))
        self.ledger.mark(offset for offset in copies if offset >= progress)

    @rule(ms=st.sampled_from((1, 5_000, 30_000, 61_000)))
    def time(self, ms: int) -> None:
        self.now += ms

    @rule()
    def flush(self) -> None:
        self.write_marks()

    @rule()
    def tell(self) -> None:
        positions = self.ledger.positions(len(self.halves))
        assert positions >= self.told
        assert positions[1] >= self.told[1]
        self.told = positions

    @rule(clean=st.booleans())
    def die(self, clean: bool) -> None:
        if clean:
            self.write_marks()
            self.tell()
        self.ledger = TransactionLedger()
        half_from, op_from = self.told
        marked: set[int] = set()
        for n, offsets in enumerate(self.marks[op_from:], op_from):
            self.ledger.marked(n, offsets)
            marked.update(offset for offset in offsets if offset >= half_from)
        halves = [
            WaitingHalf(transaction.identity, offset, offset * 10, 0, "T", None, checks, moved_from)
            for offset, (transaction, checks, moved_from) in enumerate(self.halves)
            if offset >= half_from
        ]
        self.ledger.restore(halves, marked, half_from, op_from)
        for half in self.ledger.waiting():
            if self.committed & half.places:
                self.ledger.mark(self.ledger.decided(half, TransactionOutcome.COMMITTED))

    @invariant()
    def each_ends_once_and_none_is_lost(self) -> None:
        waiting = [id(self.transaction_of(half)) for half in self.ledger.waiting()]
        assert len(waiting) == len(set(waiting))
        for transaction in self.transactions:
            assert transaction.commits == (transaction.truth is TransactionOutcome.COMMITTED)
            if transaction.truth is not None:
                assert id(transaction) not in waiting
            elif not transaction.given_up:
                assert id(transaction) in waiting

    @invariant()
    def the_order_is_that_of_the_queue(self) -> None:
        offsets = [half.offset for half in self.ledger.waiting()]
        assert offsets == sorted(offsets)
        assert self.ledger.positions(len(self.halves))[0] <= min(offsets, default=len(self.halves))


TestLife = Life.TestCase
TestLife.settings = settings(stateful_step_count=60)
