"""The ledger of staged messages: a ledger rebuilt from the log always equals the one before."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tianzhou.broker.staging import staging_records as records
from tianzhou.broker.staging.log_entries import (
    Decided,
    Forgotten,
    Note,
    Published,
    PublishedEverywhere,
    StagingSnapshot,
    UndecidableAttempts,
)
from tianzhou.broker.staging.staging import MAX_REFUSED, StagedUnit, StagingLedger, Unit, UnitTreatment
from tianzhou.records.codec import Record
from tianzhou.wire.bodies.staging import AttemptList, BatchDecision, StagedAttempt, attempt_name
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.staging import StagedMessage

HERE, THERE = "broker-a", "broker-b"


class Log:
    """The two queues as a list of records, and the ledger that was current while they were written."""

    def __init__(self, max_refused: int = MAX_REFUSED) -> None:
        self.max_refused = max_refused
        self.ledger = StagingLedger(HERE, max_refused)
        self.units: list[StagedUnit] = []
        self.notes: list[Record] = []
        self.place = 0

    def stage(self, writer: str, batch: int, attempt: str, number: int) -> UnitTreatment:
        entry = self.ledger.entry(writer, batch, attempt, number)
        if entry is UnitTreatment.TAKE:
            self.place += 100
            where = Unit(number, len(self.units), self.place)
            unit = StagedUnit(writer, batch, attempt, HERE, where, self.place)
            self.units.append(unit)
            self.ledger.staged(unit)
        return entry

    def note(self, note: Note) -> None:
        place = self._write(records.note_record(note, 0, b"\x7f\0\0\1", 1))
        if not isinstance(note, Published | PublishedEverywhere):
            note.place = place
        if isinstance(note, Decided):
            note.end = place + 100
        if not isinstance(note, Forgotten | PublishedEverywhere):
            note.stored_ms = place
        self.ledger.apply(note)

    def take_snapshot(self, keep: int | None = None, most: int = records.PART_BYTES) -> list[int]:
        """Write the first parts of a snapshot; return the lengths of all parts."""
        parts = records.snapshot_records(self.ledger.snapshot(len(self.units)), 0, b"\x7f\0\0\1", 1, most)
        for record in parts[:keep]:
            self._write(record)
        return [len(record.body) for record in parts]

    def _write(self, new: Any) -> int:
        self.place += 100
        host = b"\x7f\0\0\1"
        self.notes.append(
            Record(
                new.topic, 0, len(self.notes), self.place, 0, 0, 0, host, 1, self.place, host, 1, 0, 0, new.body,
                new.properties, size=100,
            )
        )  # fmt: skip
        return self.place

    def restored(self) -> StagingLedger:
        history = records.StagingHistory()
        for record in reversed(self.notes):
            if not history.add(record):
                break
        snapshot = history.snapshot or StagingSnapshot()
        ledger = StagingLedger(HERE, self.max_refused)
        ledger.restore(snapshot, history.notes, self.units[snapshot.next :])
        return ledger

    def known(self, ledger: StagingLedger) -> tuple[Any, ...]:
        snapshot = ledger.snapshot(len(self.units))
        for state in snapshot.writers:
            state.open.sort(key=lambda attempt: attempt.name)
        refused = {state.writer: list(state.refused) for state in snapshot.writers}
        return sorted(snapshot.writers, key=lambda state: state.writer), refused

    def check(self) -> None:
        found, wanted = self.restored(), self.ledger
        assert self.known(found) == self.known(wanted)
        for name in wanted.publishing():
            one, other = found.get(name), wanted.get(name)
            assert one is not None
            assert other is not None
            assert one.publication is not None
            assert other.publication is not None
            assert one.publication.units == other.publication.units
        assert sorted(found.publishing()) == sorted(wanted.publishing())


def decision(writer: str, batch: int, **attempts: int) -> BatchDecision:
    return BatchDecision(writer, batch, HERE, [StagedAttempt(name, {HERE: count}) for name, count in attempts.items()])


def test_the_life_of_a_batch() -> None:
    log = Log()
    assert [log.stage("W", 0, "a", number) for number in (0, 1, 1)] == [
        UnitTreatment.TAKE,
        UnitTreatment.TAKE,
        UnitTreatment.KNOWN,
    ]
    log.stage("W", 0, "b", 0)
    wanted = decision("W", 0, a=2)
    assert log.ledger.missing(decision("W", 0, a=3, c=1)) == ["a", "c"]
    assert log.ledger.missing(wanted) == []
    log.note(Decided(wanted, HERE))
    log.check()
    assert log.stage("W", 0, "c", 0) is UnitTreatment.DECIDED
    writer = log.ledger.get("W")
    assert writer is not None
    assert writer.publication is not None
    assert [unit.number for unit in writer.publication.units] == [0, 1]
    assert log.ledger.overdue(1 << 60) == []
    log.note(Published("W", 0))
    assert (writer.published, writer.publication, writer.attempts) == (0, None, {})
    log.check()


def test_a_decision_without_units_here_is_published_at_once() -> None:
    log = Log()
    log.stage("W", 3, "a", 0)
    log.note(Decided(BatchDecision("W", 3, HERE, [StagedAttempt("x", {THERE: 2})]), HERE))
    writer = log.ledger.get("W")
    assert writer is not None
    assert (writer.published, writer.publication, writer.attempts) == (3, None, {})
    log.check()


def test_what_is_overdue_and_who_is_idle() -> None:
    log = Log()
    for number, (writer, batch, attempt) in enumerate([("W", 1, "a"), ("W", 1, "b"), ("W", 2, "c"), ("V", 0, "d")]):
        log.stage(writer, batch, attempt, 0)
        assert log.place == 100 * (number + 1)
    assert log.ledger.overdue(100) == []
    assert log.ledger.overdue(301) == [AttemptList("W", 1, HERE, ["a", "b"]), AttemptList("W", 2, HERE, ["c"])]
    log.note(UndecidableAttempts(AttemptList("V", 0, HERE, ["d"])))
    assert log.stage("V", 0, "d", 1) is UnitTreatment.REFUSED
    assert log.ledger.refused_of(decision("V", 0, d=1)) == ["d"]
    assert log.ledger.idle(1 << 60) == ["V"]
    assert log.ledger.idle(100) == []
    log.note(Forgotten(["V"]))
    assert log.ledger.get("V") is None
    log.check()


def test_a_snapshot_the_broker_died_in_the_midst_of_says_nothing() -> None:
    log = Log()
    for number in range(250):
        log.stage(f"W{number}", 0, "a", 0)
        log.note(Decided(decision(f"W{number}", 0, a=1), HERE))
    parts = len(log.take_snapshot(most=30_000))
    assert parts > 2
    log.note(Published("W7", 0))
    log.check()
    log.take_snapshot(keep=2, most=30_000)
    log.check()
    log.note(Published("W8", 0))
    log.check()
    history = records.StagingHistory()
    read = 0
    for record in reversed(log.notes):
        read += 1
        if not history.add(record):
            break
    assert read == parts + 1 + 2 + 1


def test_a_snapshot_is_cut_by_bytes_and_a_writer_continues_over_parts() -> None:
    log = Log(max_refused=10_000)
    for number in range(4):
        name = f"W{number}"
        names = [f"attempt-{n:05}-{'x' * 150}" for n in range(1500)]
        for attempt in names[:2]:
            log.stage(name, 0, attempt, 0)
        there = [StagedAttempt(attempt, {THERE: 1}) for attempt in names[2:]]
        here = [StagedAttempt(attempt, {HERE: 1}) for attempt in names[:2]]
        log.note(Decided(BatchDecision(name, 0, HERE, here + there), HERE))
        log.note(UndecidableAttempts(AttemptList(name, 1, HERE, [f"r{attempt}" for attempt in names])))
        for unit in range(300):
            log.stage(name, 1, "open", unit)
    lengths = log.take_snapshot()
    assert sum(lengths) > 2 << 20
    assert max(lengths) <= records.PART_BYTES
    assert len(lengths) <= 4
    log.check()
    lengths = log.take_snapshot(most=4_000)
    assert max(lengths) <= 4_000
    log.check()
    log.take_snapshot(keep=len(lengths) - 1, most=4_000)
    log.check()


def test_a_writer_is_not_forgotten_before_all_brokers_have_its_last_batch() -> None:
    log = Log()
    both = BatchDecision("W", 0, HERE, [StagedAttempt("a", {HERE: 1, THERE: 1})])
    log.stage("W", 0, "a", 0)
    log.note(Decided(both, HERE))
    log.note(Published("W", 0))
    assert log.ledger.elsewhere("W")
    assert (log.ledger.idle(1 << 60), log.ledger.unpropagated(1 << 60)) == ([], ["W"])
    log.note(PublishedEverywhere("W", 0))
    log.check()
    assert not log.restored().elsewhere("W")
    log.take_snapshot()
    log.check()
    assert not log.restored().elsewhere("W")
    assert (log.ledger.idle(1 << 60), log.ledger.unpropagated(1 << 60)) == (["W"], [])
    other = StagingLedger(THERE)
    other.apply(Decided(both, THERE))
    other.apply(Published("W", 0))
    assert other.idle(1 << 60) == ["W"], "its coordinator sees to the others"


def test_who_was_decided_is_forgotten_when_all_is_published_everywhere() -> None:
    names = [f"a{number}" for number in range(1000)]
    both = BatchDecision("W", 0, HERE, [StagedAttempt(name, {HERE: 1, THERE: 1}) for name in names])
    log = Log()
    for name in names:
        log.stage("W", 0, name, 0)
    log.note(Decided(both, HERE))
    log.note(Published("W", 0))
    writer = log.ledger.get("W")
    assert writer is not None
    assert writer.decision == both, "others may have to be told"
    log.note(PublishedEverywhere("W", 0))
    assert writer.decision == BatchDecision("W", 0, HERE, [])
    assert (writer.decided, writer.published) == (0, 0)
    assert not log.ledger.elsewhere("W")
    assert log.stage("W", 0, "late", 0) is UnitTreatment.DECIDED
    log.check()
    assert sum(log.take_snapshot()) < 1000
    log.check()
    alone = decision("W", 1, b=1)
    log.stage("W", 1, "b", 0)
    log.note(Decided(alone, HERE))
    assert writer.decision == alone
    log.note(Published("W", 1))
    assert writer.decision == BatchDecision("W", 1, HERE, []), "nobody else has part in it"
    log.check()


def test_a_broker_that_does_not_decide_forgets_it_when_it_has_published() -> None:
    other = StagingLedger(THERE)
    both = BatchDecision("W", 0, HERE, [StagedAttempt("a", {HERE: 1, THERE: 1})])
    other.staged(StagedUnit("W", 0, "a", HERE, Unit(0, 0, 100), 1))
    other.apply(Decided(both, THERE))
    writer = other.get("W")
    assert writer is not None
    assert writer.decision == both
    other.apply(Published("W", 0))
    assert writer.decision == BatchDecision("W", 0, HERE, [])


def test_what_is_kept_of_refused_attempts_is_bounded_and_they_stay_refused() -> None:
    """A query fails again and again before its decision."""
    log = Log()
    log.stage("W", 0, "unnamed", 0)
    writer = log.ledger.get("W")
    assert writer is not None
    refused = []
    for run in range(30):
        names = [attempt_name(writer.refusals, f"{run}.{task}") for task in range(100)]
        assert not log.ledger.refused_of(decision("W", 0, **dict.fromkeys(names, 1))), "each run may be decided"
        log.note(UndecidableAttempts(AttemptList("W", 0, HERE, names)))
        log.note(UndecidableAttempts(AttemptList("W", 0, HERE, names)))
        refused += names
    assert (len(writer.refused), writer.refusals) == (MAX_REFUSED, 3000)
    log.check()
    log.take_snapshot()
    for ledger in (log.ledger, log.restored()):
        wanted = decision("W", 0, **dict.fromkeys(refused, 1))
        assert ledger.refused_of(wanted) == refused
        assert ledger.refused_of(decision("W", 0, unnamed=1)) == ["unnamed"], "nobody knows when it began"
        began_long_ago = attempt_name(1999, "x")
        assert ledger.refused_of(decision("W", 0, **{began_long_ago: 1})) == [began_long_ago]
        assert ledger.entry("W", 0, began_long_ago, 0) is UnitTreatment.REFUSED
        assert ledger.refused_of(decision("W", 0, **{attempt_name(2000, "x"): 1})) == []
    # Finally one run succeeds.
    name = attempt_name(writer.refusals, "31.0")
    assert log.stage("W", 0, name, 0) is UnitTreatment.TAKE
    log.note(Decided(decision("W", 0, **{name: 1}), HERE))
    assert writer.refused == {}
    log.note(Published("W", 0))
    assert log.stage("W", 1, attempt_name(writer.refusals, "32.0"), 0) is UnitTreatment.TAKE
    log.check()


def test_a_start_looks_at_no_unit_before_its_snapshot() -> None:
    log = Log()
    for number in range(50):
        log.stage("V", 0, "open", number)
    for batch in range(100):
        log.stage("W", batch, f"a{batch}", 0)
        log.note(Decided(decision("W", batch, **{f"a{batch}": 1}), HERE))
        if batch == 40:
            log.stage("W", batch + 1, "half", 0)
            log.take_snapshot(most=900)
        log.note(Published("W", batch))
    log.stage("V", 0, "open", 50)
    log.take_snapshot()
    log.stage("V", 0, "open", 51)
    log.stage("V", 0, "other", 0)
    log.check()
    history = records.StagingHistory()
    for record in reversed(log.notes):
        if not history.add(record):
            break
    assert history.snapshot is not None
    assert (history.snapshot.next, len(log.units), history.snapshot.units) == (152, 154, 51)
    restored = log.restored().get("V")
    assert restored is not None
    assert list(restored.attempts["open"].units) == list(range(52))


WRITERS = st.sampled_from("VW")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "stage",
                "stage",
                "stage",
                "decide",
                "publish",
                "refuse",
                "discard",
                "snapshot",
                "torn",
                "forget",
                "everywhere",
            ]
        ),
        WRITERS,
        st.integers(0, 2),
        st.sampled_from("abc"),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_ledger_made_of_the_log_is_the_one_that_died(steps: list[tuple[str, str, int, str]]) -> None:
    log = Log(max_refused=2)
    for step, name, ahead, attempt in steps:
        writer = log.ledger.get(name)
        batch = (writer.decided if writer is not None else -1) + ahead
        attempt = f"{attempt}{batch}"
        known = [] if writer is None else [one for one in writer.attempts if one.endswith(f"~{attempt}")]
        attempt = known[0] if known else attempt_name(0 if writer is None else writer.refusals, attempt)
        if step == "stage" and batch >= 0:
            found = writer.attempts.get(attempt) if writer is not None else None
            log.stage(name, batch, attempt, len(found.units) if found is not None else 0)
        elif step == "decide" and writer is not None and writer.publication is None:
            chosen = [one for one in writer.attempts.values() if one.batch == writer.decided + 1][:2]
            wanted = decision(name, writer.decided + 1, **{one.name: len(one.units) for one in chosen})
            if ahead and chosen:
                wanted.attempts[0].units[THERE] = 1
            assert log.ledger.missing(wanted) == []
            log.note(Decided(wanted, HERE))
        elif step == "publish" and writer is not None and writer.publication is not None:
            log.note(Published(name, writer.decided))
        elif step in ("refuse", "discard") and writer is not None and batch > writer.decided:
            log.note(UndecidableAttempts(AttemptList(name, batch, HERE, [attempt]), step == "discard"))
        elif step == "snapshot":
            log.take_snapshot(most=records.PART_BYTES if ahead else 700)
        elif step == "torn":
            log.take_snapshot(keep=ahead, most=700 + 100_000 * (ahead == 0))
        elif step == "everywhere" and writer is not None and log.ledger.elsewhere(name):
            log.note(PublishedEverywhere(name, writer.decided))
        elif step == "forget" and name in log.ledger.idle(1 << 60):
            log.note(Forgotten([name]))
        log.check()


def test_the_visible_message_is_an_ordinary_one() -> None:
    unit = Record("rmq_sys_STAGED_TOPIC", 0, 5, 4711, 0, 0, 99, b"\x01\x02\x03\x04", 8, 0, b"", 0, 0, 0, b"", b"")
    plain = StagedMessage("T", 2, 3, 1, b"UNIQ_KEY\x01U\x02TAGS\x01A\x02KEYS\x01k", b"body")
    made = records.visible(plain, unit, b"CLUSTER\x01c\x02", lambda level: min(level, 18), 2)
    assert (made.topic, made.queue_id, made.body, made.flag, made.sys_flag) == ("T", 2, b"body", 3, 3)
    assert (made.born_timestamp, made.born_host, made.born_port) == (99, b"\x01\x02\x03\x04", 8)
    assert (made.keys, made.uniq_key, made.prepared_transaction_offset, made.tags_code) == ("k", "U", 4711, 65)
    assert made.properties == b"UNIQ_KEY\x01U\x02TAGS\x01A\x02KEYS\x01k\x02CLUSTER\x01c\x02"
    late = plain._replace(properties=b"UNIQ_KEY\x01U\x02DELAY\x0199\x02")
    made = records.visible(late, unit, b"CLUSTER\x01c\x02", lambda level: min(level, 18), 0)
    assert (made.topic, made.queue_id) == ("SCHEDULE_TOPIC_XXXX", 17)
    assert decode_properties(made.properties) == {
        "UNIQ_KEY": "U", "DELAY": "18", "CLUSTER": "c", "REAL_TOPIC": "T", "REAL_QID": "2",
    }  # fmt: skip
