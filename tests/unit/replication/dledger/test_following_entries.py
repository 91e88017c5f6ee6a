"""A follower's acceptance of a leader's entries, from leaders of both kinds (broker.md §19.6, docs/adr/0015)."""

from __future__ import annotations

from member_desk import Desk, log_of, quick, terms
from memory_log import SEGMENT, MemoryLog

from tianzhou.records.codec import Record, encode_record
from tianzhou.records.entry import HEADER_SIZE, EntryHeader
from tianzhou.records.layout import HEAD_SIZE
from tianzhou.replication.dledger.ready import HardState, NodeRole
from tianzhou.wire.bodies.dledger import PushRequest, PushType, StretchRequest
from tianzhou.wire.codes import DLedgerResponseCode as Code

COMPARE, TRUNCATE, APPEND, COMMIT = PushType.COMPARE, PushType.TRUNCATE, PushType.APPEND, PushType.COMMIT


def same(desk: Desk, source: MemoryLog) -> bool:
    return desk.log.raw == source.raw


def test_stretches_fill_an_empty_log_and_say_how_far_it_is() -> None:
    source = log_of(1, 1, 2, 2)
    desk = Desk()
    answer = desk.stretch(source, -1, 3, term=2, commit=1)
    assert (answer.code, answer.index, answer.end_index) == (Code.SUCCESS, 2, 2)
    assert desk.member.committed.index == 1
    assert desk.member.committed.position == source.end_of(1)
    # Only existing entries are committed.
    desk.stretch(source, 2, 1, term=2, commit=1000)
    assert desk.member.committed.index == 3
    assert same(desk, source)


def test_a_stretch_behind_a_gap_says_where_the_log_ends() -> None:
    source = log_of(1, 1, 1, 1)
    desk = Desk(log_of(1))
    answer = desk.stretch(source, 2, 1, term=1)
    assert (answer.code, answer.conflict_index) == (Code.INCONSISTENT_STATE, 1)


def test_a_stretch_behind_another_entry_names_the_first_one_of_that_term() -> None:
    desk = Desk(log_of(1, 1, 2, 2, 2, 2), state=HardState(2, None))
    source = log_of(1, 1, 1, 1, 1, 3)
    answer = desk.stretch(source, 4, 1, term=3)
    assert (answer.code, answer.conflict_index) == (Code.INCONSISTENT_STATE, 2)
    assert desk.stretch(source, 1, 4, term=3).code == Code.SUCCESS
    assert same(desk, source)


def test_a_late_stretch_cuts_nothing_of_what_followed() -> None:
    source = log_of(1, 1, 1, 1, 1)
    desk = Desk()
    desk.stretch(source, -1, 5, term=1)
    assert desk.stretch(source, 0, 2, term=1).code == Code.SUCCESS
    assert same(desk, source)


def test_committed_entries_are_never_cut_and_that_is_said_once() -> None:
    desk = Desk(log_of(1, 1, 1), state=HardState(1, None), committed_index=2)
    other = log_of(1, 2, 2, 2)
    for _ in range(3):
        assert desk.stretch(other, 0, 3, term=2).code == Code.INCONSISTENT_STATE
        assert desk.push(TRUNCATE, [other.entry(1)], term=2).code == Code.INCONSISTENT_STATE
    assert terms(desk.log) == [1, 1, 1]
    assert len(desk.complaints) == 1
    assert "n1, which leads in term 2, has no entry 1 as this node has it" in desk.complaints[0]


def test_a_log_whose_end_is_behind_the_leaders_begin_begins_anew() -> None:
    source = log_of(*[1] * 30)
    source.expire(20)
    desk = Desk(log_of(1, 1, 1), committed_index=2)
    answer = desk.stretch(source, 19, 10, term=1, commit=25)
    assert (answer.code, answer.index) == (Code.SUCCESS, 29)
    assert (desk.log.begin_index, desk.log.raw) == (20, source.raw)
    assert desk.member.committed.index == 25


def test_a_log_is_not_given_up_for_a_beginning_that_cannot_be_stored() -> None:
    desk = Desk(log_of(1, 1, 1))
    before = list(desk.log.raw)
    size = HEADER_SIZE + SEGMENT  # longer than a segment
    request = StretchRequest(
        leader_id="n1", term=1, commit_index=9, count=1, end_index=9, previous_index=19, previous_term=-1,
        entries=EntryHeader(20, 1, 0, SEGMENT, size).encode() + b"x" * SEGMENT,
    )  # fmt: skip
    assert desk.ask(request).code == Code.INCONSISTENT_STATE
    assert desk.log.raw == before
    assert "where no segment of this one can begin with it" in desk.complaints[-1]


def test_entries_that_cannot_be_are_refused_and_change_nothing() -> None:
    source = log_of(1, 1, 1)
    desk = Desk()
    raw = b"".join(source.raw)
    for entries, count in ((raw, 2), (raw[:-1], 3), (raw, 9), (b"nonsense" * 9, 1), (raw[::-1], 3)):
        request = StretchRequest(
            leader_id="n1", term=1, commit_index=9, count=count, end_index=9, entries=entries, previous_index=-1,
            previous_term=-1,
        )  # fmt: skip
        assert desk.ask(request).code == Code.UNEXPECTED_ARGUMENT
    assert desk.log.end_index == -1
    # An entry of a term above its leader's, or at another position than here.
    assert desk.stretch(log_of(5), -1, 1, term=1).code == Code.INCONSISTENT_STATE
    desk.stretch(source, -1, 1, term=1)
    elsewhere = log_of(1, 1, body=b"another body, so that what is behind it stands elsewhere")
    moved = StretchRequest(
        leader_id="n1", term=1, commit_index=0, count=1, end_index=9, entries=elsewhere.entry(1), previous_index=0,
        previous_term=1,
    )  # fmt: skip
    assert desk.ask(moved).code == Code.INCONSISTENT_STATE
    assert "the nodes of a group need segments of one size" in desk.complaints[-1]
    assert same(desk, log_of(1))


def test_answers_for_entries_wait_for_the_disk_where_that_is_asked_for() -> None:
    source = log_of(1, 1, 1)
    desk = Desk(sync_entries=True)
    assert desk.stretch(source, -1, 2, term=1) is None
    assert desk.push(COMPARE, [source.entry(1)], term=1) is None
    desk.member.synced(0, desk.now_ms)
    desk.carry_out()
    assert not desk.answers
    desk.member.synced(1, desk.now_ms)
    desk.carry_out()
    assert [answer.code for answer in desk.answers] == [Code.SUCCESS, Code.SUCCESS]
    # An entry that is cut before that, or whose leadership ended, is not acknowledged.
    desk.stretch(source, 1, 1, term=1)
    desk.beat("n2", 2)
    assert [answer.code for answer in desk.answers] == [Code.TERM_CHANGED, Code.SUCCESS]


def test_dledgers_leader_compares_cuts_and_appends() -> None:
    desk = Desk(log_of(1, 1, 2, 2), state=HardState(2, None))
    source = log_of(1, 1, 3, 3)
    assert desk.beat("n1", 3) == Code.SUCCESS
    answer = desk.push(COMPARE, [source.entry(3)], term=3)
    assert (answer.code, answer.index, answer.begin_index, answer.end_index) == (Code.INCONSISTENT_STATE, 3, 0, 3)
    assert desk.push(COMPARE, [source.entry(1)], term=3).code == Code.SUCCESS
    # An entry follows the compared one; only the leader may decide about it.
    assert desk.push(APPEND, [source.entry(2)], term=3).code == Code.INCONSISTENT_STATE
    answer = desk.push(TRUNCATE, [source.entry(1)], term=3)
    assert (answer.code, answer.end_index) == (Code.SUCCESS, 1)
    answer = desk.push(APPEND, [source.entry(2)], term=3, commit=2)
    assert (answer.code, answer.index, answer.count) == (Code.SUCCESS, 2, 1)
    assert desk.push(APPEND, [source.entry(3)], term=3).code == Code.SUCCESS
    assert same(desk, source)
    assert desk.push(COMMIT, [], term=3, commit=3).code == Code.SUCCESS
    assert desk.member.committed.index == 3


def test_the_first_entry_of_a_group_comes_by_truncate() -> None:
    source = log_of(1, 1)
    desk = Desk()
    answer = desk.push(COMPARE, [source.entry(1)], term=1)
    assert (answer.code, answer.begin_index, answer.end_index) == (Code.INCONSISTENT_STATE, -1, -1)
    assert desk.push(APPEND, [source.entry(0)], term=1).code == Code.INCONSISTENT_STATE
    assert desk.push(TRUNCATE, [source.entry(0)], term=1).code == Code.SUCCESS
    assert desk.push(APPEND, [source.entry(1)], term=1).code == Code.SUCCESS
    assert same(desk, source)


def test_entries_of_older_terms_that_apaches_leader_counts_wait_for_one_of_its_own() -> None:
    source = log_of(1, 1)
    desk = Desk(source, state=HardState(1, None))
    desk.push(COMPARE, [source.entry(1)], term=3, commit=1)
    desk.push(COMMIT, [], term=3, commit=1)
    assert desk.member.committed.index == -1
    longer = log_of(1, 1, 3)
    desk.push(APPEND, [longer.entry(2)], term=3, commit=2)
    assert desk.member.committed.index == 2


def test_nothing_is_committed_that_was_not_compared_in_this_term() -> None:
    desk = Desk(log_of(1, 2, 2), state=HardState(2, None))
    desk.push(COMMIT, [], term=2, commit=2)
    assert desk.member.committed.index == -1
    desk.push(COMPARE, [desk.log.entry(1)], term=2, commit=2)
    assert desk.member.committed.index == 1


def test_a_late_truncate_cuts_nothing_that_the_leader_appended_since() -> None:
    source = log_of(1, 1, 1)
    desk = Desk(log_of(1), state=HardState(1, None))
    desk.push(COMPARE, [source.entry(0)], term=1)
    desk.push(APPEND, [source.entry(1), source.entry(2)], term=1)
    assert desk.push(TRUNCATE, [source.entry(0)], term=1).code == Code.SUCCESS
    assert same(desk, source)


def test_pushes_are_ordered_by_index_and_repeated_ones_named() -> None:
    source = log_of(1, 1, 1, 1)
    desk = Desk(log_of(1), state=HardState(1, None))
    desk.push(COMPARE, [source.entry(0)], term=1)
    assert desk.push(APPEND, [source.entry(2), source.entry(3)], term=1) is None
    assert desk.push(APPEND, [source.entry(2), source.entry(3)], term=1).code == Code.REPEATED_PUSH
    desk.push(APPEND, [source.entry(1)], term=1)
    assert [(answer.code, answer.index, answer.count) for answer in desk.answers] == [(200, 1, 1), (200, 2, 2)]
    assert same(desk, source)
    assert desk.push(APPEND, [source.entry(1)], term=1).code == Code.SUCCESS
    assert desk.push(APPEND, [source.entry(0), source.entry(1)], term=1).code == Code.SUCCESS


def test_what_comes_too_early_is_bounded_and_does_not_wait_for_ever() -> None:
    source = log_of(*[1] * 9)
    desk = Desk(log_of(1), state=HardState(1, None), timings=quick(waiting_pushes=2, waiting_push_bytes=160))
    desk.push(COMPARE, [source.entry(0)], term=1)
    assert desk.push(APPEND, [source.entry(2)], term=1) is None
    assert desk.push(APPEND, source.raw[3:7], term=1).code == Code.PUSH_REQUEST_IS_FULL
    assert desk.push(APPEND, [source.entry(4)], term=1) is None
    assert desk.push(APPEND, [source.entry(5)], term=1).code == Code.PUSH_REQUEST_IS_FULL
    desk.answers.clear()
    desk.after(1100)
    assert [(answer.code, answer.index) for answer in desk.answers] == [(406, 2), (406, 4)]
    desk.push(APPEND, [source.entry(3)], term=1)
    desk.push(COMPARE, [source.entry(0)], term=1)
    assert [(answer.code, answer.index) for answer in desk.answers] == [(408, 3), (200, 0)]


def test_pushes_without_an_entry_or_with_a_broken_one_are_refused() -> None:
    source = log_of(1)
    desk = Desk()
    assert desk.ask(PushRequest(leader_id="n1", term=1)).code == Code.UNEXPECTED_ARGUMENT
    assert desk.push(COMPARE, [source.entry(0)] * 2, term=1).code == Code.UNEXPECTED_ARGUMENT
    broken = PushRequest(leader_id="n1", term=1, type=APPEND)
    desk.push(APPEND, [source.entry(0)], term=1)
    broken.entry = PushRequest(entry=None).entry
    assert desk.ask(broken).code == Code.UNEXPECTED_ARGUMENT


def test_a_push_of_an_older_term_changes_nothing() -> None:
    desk = Desk(log_of(1), state=HardState(5, None))
    assert desk.push(TRUNCATE, [log_of(2).entry(0)], term=2).code == Code.EXPIRED_TERM
    assert desk.stretch(log_of(2), -1, 1, term=2).code == Code.EXPIRED_TERM
    assert terms(desk.log) == [1]
    assert desk.member.standing.role is NodeRole.CANDIDATE


def test_a_record_that_is_not_whole_is_not_taken() -> None:
    def entry(change: int = -1, place: int = HEADER_SIZE) -> bytes:
        host = bytes([1, 2, 3, 4])
        record = bytearray(
            encode_record(Record("T", 0, 0, place, 0, 0, 1, host, 5, 1, host, 5, 0, 0, b"body", b"KEYS\x01k\x02"))
        )
        if change >= 0:
            record[change] ^= 1
        return EntryHeader(0, 1, 0, len(record), HEADER_SIZE + len(record)).encode() + record

    def stretch(raw: bytes) -> StretchRequest:
        return StretchRequest(
            leader_id="n1", term=1, commit_index=0, count=1, end_index=0, entries=raw, previous_index=-1,
            previous_term=-1,
        )  # fmt: skip

    for raw in (entry(HEAD_SIZE), entry(3), entry(place=99)):  # a byte of the body, the size, the place
        desk = Desk()
        assert desk.ask(stretch(raw)).code == Code.INCONSISTENT_STATE
        assert desk.log.end_index == -1
        assert "record" in desk.complaints[-1]
    assert Desk().ask(stretch(entry())).code == Code.SUCCESS


def torn(source: MemoryLog, *indexes: int) -> MemoryLog:
    """Return a log for which the disk has only parts of some entries."""
    log = MemoryLog(source.raw)
    for index in indexes:
        log.raw[index] = log.raw[index][:HEADER_SIZE] + bytes(len(log.raw[index]) - HEADER_SIZE)
    return log


def test_entries_in_doubt_are_compared_with_the_leaders_from_the_first_one_on() -> None:
    source = log_of(1, 1, 1, 1, 1, 2)
    desk = Desk(torn(source, 3), state=HardState(2, None), impaired=True, doubted_from=2, committed_index=1)
    answer = desk.stretch(source, 5, 0, term=2, commit=5)
    assert (answer.code, answer.conflict_index) == (Code.INCONSISTENT_STATE, 2)
    assert desk.stretch(source, 1, 4, term=2, commit=5).code == Code.SUCCESS
    assert same(desk, source)
    assert not desk.member.impaired
    assert desk.member.committed.index == 5


def test_entries_in_doubt_that_are_the_leaders_stay() -> None:
    source = log_of(1, 1, 1, 2)
    desk = Desk(MemoryLog(source.raw), state=HardState(2, None), impaired=True, doubted_from=1)
    assert desk.stretch(source, 0, 2, term=2).code == Code.SUCCESS
    assert desk.last.cut is None
    assert desk.stretch(source, 2, 0, term=2).code == Code.SUCCESS
    assert desk.stretch(source, 3, 0, term=2).conflict_index == 3
    assert desk.stretch(source, 2, 1, term=2, commit=3).code == Code.SUCCESS
    assert desk.last.cut is None
    assert desk.last.recovered


def test_a_log_in_doubt_before_the_leaders_begin_begins_anew() -> None:
    source = log_of(1, 1, 1, 1, 2)
    desk = Desk(torn(source, 1), state=HardState(2, None), impaired=True, doubted_from=1, committed_index=0)
    source.expire(3)
    assert desk.stretch(source, 2, 2, term=2, commit=4).code == Code.SUCCESS
    assert same(desk, source)


def test_entries_in_doubt_are_cut_off_and_come_again_from_one_of_apaches_leaders() -> None:
    source = log_of(1, 1, 1, 1)
    desk = Desk(torn(source, 2), state=HardState(1, None), impaired=True, doubted_from=2, committed_index=1)
    assert desk.push(COMPARE, [source.entry(3)], term=1).code == Code.INCONSISTENT_STATE
    assert desk.push(COMPARE, [source.entry(2)], term=1).code == Code.INCONSISTENT_STATE
    assert desk.push(COMPARE, [source.entry(1)], term=1).code == Code.SUCCESS
    assert desk.push(TRUNCATE, [source.entry(1)], term=1).code == Code.SUCCESS
    assert desk.log.end_index == 1
    assert desk.push(APPEND, source.raw[2:], term=1).code == Code.SUCCESS
    assert same(desk, source)


def test_entries_that_apaches_leader_committed_with_a_lost_log_are_wanted_before_the_node_counts_again() -> None:
    source = log_of(1, 1, 1, 1, 1, 1)
    desk = Desk(MemoryLog(source.raw[:3]), state=HardState(1, None), impaired=True, doubted_from=3)
    # An earlier reply lowered the leader's comparison to this entry; the leader has more entries, and counted them.
    assert desk.push(COMPARE, [source.entry(2)], term=1, commit=5).code == Code.SUCCESS
    assert desk.member.impaired
    assert desk.push(APPEND, source.raw[3:5], term=1, commit=5).code == Code.SUCCESS
    assert desk.member.impaired
    assert desk.push(APPEND, source.raw[5:], term=1, commit=5).code == Code.SUCCESS
    assert not desk.member.impaired


def test_a_committed_entry_of_a_later_term_before_the_first_one_of_apaches_leader_halts_a_node() -> None:
    source = log_of(1, 1, 1, 1, 1, 6)
    source.expire(3)  # the leader has dropped all indexes at which the logs differ
    desk = Desk(log_of(1, 1, 4, 4), state=HardState(6, None), impaired=True, doubted_from=3, committed_index=2)
    assert desk.push(COMPARE, [source.entry(5)], term=6, commit=5).code == Code.INCONSISTENT_STATE
    assert desk.push(TRUNCATE, [source.entry(3)], term=6, commit=5).code == Code.INCONSISTENT_STATE
    assert desk.member.halted
    assert "has no entry 2 as this node has it" in desk.complaints[-1]
    assert same(desk, log_of(1, 1, 4, 4))


def test_a_log_without_a_certain_entry_begins_anew_with_one_of_apaches_leaders() -> None:
    source = log_of(1, 1, 1, 1)
    for broken in ((), (2,)):
        log = torn(source, *broken)
        log.expire(2)
        desk = Desk(log, state=HardState(1, None), impaired=True, doubted_from=1)
        same_begin = desk.push(COMPARE, [source.entry(2)], term=1).code == Code.SUCCESS
        assert same_begin is not bool(broken)
        if broken:
            assert desk.push(TRUNCATE, [source.entry(0)], term=1).code == Code.SUCCESS
            assert desk.push(APPEND, source.raw[1:], term=1).code == Code.SUCCESS
            assert same(desk, source)
        else:
            assert desk.push(TRUNCATE, [source.entry(2)], term=1).code == Code.SUCCESS
            assert desk.push(APPEND, source.raw[3:], term=1).code == Code.SUCCESS
            assert desk.log.raw == source.raw[2:]
