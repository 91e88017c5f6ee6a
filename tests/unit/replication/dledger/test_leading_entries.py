"""A leader's replication of its log, and its transfer of leadership (broker.md §19.6, §19.7, docs/adr/0015)."""

from __future__ import annotations

from typing import Any

from member_desk import Desk, log_of, quick

from tianzhou.replication.dledger.member import Unsupported
from tianzhou.replication.dledger.ready import HardState, NodeRole
from tianzhou.replication.dledger.throttle import Throttle
from tianzhou.wire.bodies.dledger import (
    HeartBeatRequest,
    HeartBeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    StretchRequest,
    StretchResponse,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from tianzhou.wire.codes import DLedgerResponseCode as Code


def leader(*terms: int, ours: bool = True, **others: Any) -> Desk:
    """Return a leader of term 4 with existing entries."""
    desk = Desk(log_of(*terms), state=HardState(3, None), **others)
    desk.elect(ours=ours)
    return desk


def pushed(desk: Desk, peer: str = "n1") -> tuple[PushType, int]:
    """Return the type and last entry of the last push."""
    request = desk.sent(PushRequest, peer)[-1].request
    return request.type, request.entries[-1].index if request.entries else -1


def answer(desk: Desk, peer: str = "n1", code: Code = Code.SUCCESS, begin: int = 0, end: int = -1) -> None:
    """Send the follower's reply to the last push."""
    desk.reply(desk.sent(PushRequest, peer)[-1], PushResponse(code=int(code), begin_index=begin, end_index=end))


def took(desk: Desk, peer: str = "n1") -> None:
    """Let a follower of ours accept every entry."""
    for _ in range(10):
        sends = desk.sent(StretchRequest, peer)
        for send in sends:
            desk.sends.remove(send)
            reached = send.request.previous_index + send.request.count
            desk.reply(send, StretchResponse(index=reached, end_index=reached))


def test_stretches_go_out_one_behind_the_other_within_their_bounds() -> None:
    desk = leader(1, timings=quick(max_push_bytes=300, stretch_bytes=120))
    took(desk)
    for n in range(20):
        desk.log.add(desk.state.term, b"%060d" % n)
    desk.member.appended(desk.now_ms)
    desk.carry_out()
    sends = desk.sent(StretchRequest, "n1")
    assert [send.request.previous_index for send in sends] == [1, 2, 3]
    assert desk.member.committed.index == 1
    took(desk)
    took(desk)
    assert desk.member.committed.index == 21


def test_entries_that_come_while_a_stretch_is_on_its_way_go_together() -> None:
    desk = leader(1)
    took(desk)
    for n in range(5):
        desk.log.add(desk.state.term, b"%d" % n)
        desk.member.appended(desk.now_ms)
        desk.carry_out()
    (first,) = desk.sent(StretchRequest, "n1")
    assert (first.request.previous_index, first.request.count) == (1, 1)
    desk.sends.remove(first)
    desk.reply(first, StretchResponse(index=2, end_index=2))
    (rest,) = desk.sent(StretchRequest, "n1")
    assert (rest.request.previous_index, rest.request.count, rest.request.commit_index) == (2, 4, 2)


def test_with_sync_flush_one_more_stretch_is_on_its_way_while_a_follower_syncs() -> None:
    desk = leader(1, sync_entries=True, synced_index=0)
    took(desk)
    for n in range(5):
        desk.log.add(desk.state.term, b"%d" % n)
        desk.member.appended(desk.now_ms)
        desk.carry_out()
    sends = desk.sent(StretchRequest, "n1")
    assert [(send.request.previous_index, send.request.count) for send in sends] == [(1, 1), (2, 1)]


def test_a_follower_that_has_something_else_is_asked_for_what_was_before() -> None:
    desk = leader(1, 1, 1, 3, 3)
    probe = desk.sent(StretchRequest, "n1")[-1]
    assert (probe.request.previous_index, probe.request.previous_term, probe.request.count) == (4, 3, 0)
    desk.reply(probe, StretchResponse(code=Code.INCONSISTENT_STATE, conflict_index=3, end_index=9))
    probe = desk.sent(StretchRequest, "n1")[-1]
    assert (probe.request.previous_index, probe.request.previous_term) == (2, 1)
    took(desk)
    assert desk.member.committed.index == 5


def test_nothing_of_an_older_term_is_committed_by_itself() -> None:
    desk = leader(1, 1, 1)
    probe = desk.sent(StretchRequest, "n1")[-1]
    desk.reply(probe, StretchResponse(index=2, end_index=2))
    assert desk.member.committed.index == -1
    took(desk)
    assert desk.member.committed.index == 3


def test_a_leader_that_syncs_counts_itself_when_it_has_the_entry_on_the_disk() -> None:
    desk = leader(1, size=5, sync_entries=True, synced_index=0)
    took(desk, "n1")
    took(desk, "n2")
    assert desk.member.committed.index == -1
    desk.member.synced(1, desk.now_ms)
    desk.carry_out()
    assert desk.member.committed.index == 1


def test_an_unanswered_stretch_is_sent_again() -> None:
    desk = leader(1)
    took(desk)
    desk.log.add(desk.state.term, b"more")
    desk.member.appended(desk.now_ms)
    desk.carry_out()
    desk.sends.clear()
    desk.after(4000)
    desk.beats()
    assert desk.sent(StretchRequest, "n1")[-1].request.previous_index == 1


def test_a_follower_that_lost_entries_counts_no_more_for_them() -> None:
    desk = leader(1, size=5)
    took(desk, "n1")
    desk.log.add(desk.state.term, b"more")
    desk.member.appended(desk.now_ms)
    desk.carry_out()
    send = desk.sent(StretchRequest, "n1")[-1]
    desk.reply(send, StretchResponse(code=Code.INCONSISTENT_STATE, conflict_index=1, end_index=0))
    took(desk, "n2")
    assert desk.member.committed.index == -1
    took(desk, "n1")
    assert desk.member.committed.index == 2


def test_a_follower_that_started_anew_is_noticed_though_nothing_is_sent() -> None:
    desk = leader(1)
    took(desk, "n1")
    desk.sends.clear()
    for _ in range(3):
        desk.after(500)
        desk.beats()
    probe = desk.sent(StretchRequest, "n1")[-1]
    assert (probe.request.previous_index, probe.request.count, probe.request.commit_index) == (1, 0, 1)
    desk.reply(probe, StretchResponse(code=Code.INCONSISTENT_STATE, conflict_index=1, end_index=0))
    assert desk.member.lag("n1") == 1
    took(desk, "n1")
    assert desk.member.lag("n1") == 0


def test_a_follower_that_turns_out_to_be_apaches_is_pushed_entry_by_entry() -> None:
    desk = leader(1)
    desk.reply(desk.sent(StretchRequest, "n1")[-1], Unsupported())
    assert pushed(desk) == (PushType.COMPARE, 1)


def test_apaches_follower_is_compared_cut_and_appended_to() -> None:
    desk = leader(1, 1, 1, 2, ours=False)
    assert pushed(desk) == (PushType.COMPARE, 4)
    answer(desk, code=Code.INCONSISTENT_STATE, end=9)
    assert pushed(desk) == (PushType.COMPARE, 3)
    answer(desk, code=Code.INCONSISTENT_STATE, end=9)
    assert pushed(desk) == (PushType.COMPARE, 2)
    answer(desk, end=9)
    assert pushed(desk) == (PushType.TRUNCATE, 2)
    answer(desk, end=2)
    appends = [send for send in desk.sent(PushRequest, "n1") if send.request.type is PushType.APPEND]
    assert [send.request.entries[0].index for send in appends] == [3, 4]
    for send in appends:
        desk.reply(send, PushResponse(index=send.request.entries[0].index, count=1, end_index=4))
    assert desk.member.committed.index == 4
    desk.sends.clear()
    desk.after(1100)
    assert pushed(desk) == (PushType.COMMIT, -1)
    assert desk.sent(PushRequest, "n1")[-1].request.commit_index == 4


def test_apaches_shorter_follower_is_compared_at_its_end() -> None:
    desk = leader(1, 1, 1, ours=False)
    answer(desk, code=Code.INCONSISTENT_STATE, end=1)
    assert pushed(desk) == (PushType.COMPARE, 1)
    answer(desk, end=1)
    assert pushed(desk) == (PushType.APPEND, 3)


def test_apaches_follower_without_anything_in_common_begins_with_the_leaders_first_entry() -> None:
    desk = leader(1, 1, 1, ours=False)
    answer(desk, code=Code.INCONSISTENT_STATE, begin=-1, end=-1)
    assert pushed(desk) == (PushType.TRUNCATE, 0)


def test_apaches_compare_counts_when_a_later_heart_beat_shows_its_term() -> None:
    desk = leader(1, ours=False)
    desk.sends = [send for send in desk.sends if not isinstance(send.request, HeartBeatRequest)]
    answer(desk, end=1)
    assert desk.member.committed.index == -1
    beat = desk.sent(HeartBeatRequest, "n1")[-1]
    desk.reply(beat, HeartBeatResponse())
    assert desk.member.committed.index == 1


def test_an_unanswered_push_is_repeated_after_a_second_and_a_mismatch_leads_back_to_compare() -> None:
    desk = leader(1, 1, ours=False)
    answer(desk, code=Code.INCONSISTENT_STATE, end=1)
    answer(desk, end=1)
    assert pushed(desk) == (PushType.APPEND, 2)
    number = desk.sent(PushRequest, "n1")[-1].number
    desk.after(900)
    assert desk.sent(PushRequest, "n1")[-1].number == number
    desk.after(200)
    again = [send for send in desk.sent(PushRequest, "n1") if send.request.type is PushType.APPEND][-1]
    assert again.number > number
    answer_to = PushResponse(code=Code.REPEATED_PUSH, end_index=1)
    desk.reply(again, answer_to)
    assert desk.member.committed.index == -1
    desk.after(1100)
    again = [send for send in desk.sent(PushRequest, "n1") if send.request.type is PushType.APPEND][-1]
    desk.reply(again, PushResponse(code=Code.INCONSISTENT_STATE, end_index=1))
    assert pushed(desk) == (PushType.COMPARE, 2)


def test_batches_for_apaches_nodes_where_they_are_wanted() -> None:
    desk = leader(1, 1, 1, 1, 1, ours=False, timings=quick(max_batch_push_bytes=110))
    answer(desk, code=Code.INCONSISTENT_STATE, end=0)
    answer(desk, end=0)
    appends = [send.request for send in desk.sent(PushRequest, "n1") if send.request.type is PushType.APPEND]
    assert [[entry.index for entry in request.entries] for request in appends] == [[1, 2, 3], [4, 5]]
    desk.reply(desk.sent(PushRequest, "n1")[-1], PushResponse(index=4, count=2, end_index=5))
    assert desk.member.committed.index == 5


def test_a_follower_far_behind_gets_its_quota_a_second() -> None:
    throttle = Throttle(quick(peer_push_throttle_bytes=1000, peer_push_quota_bytes=500, throttled_entries=10))
    assert throttle.allows(5000, 999, 100)
    assert throttle.allows(5000, 5000, 10)
    assert throttle.allows(5000, 5000, 11)
    throttle.sent(5000, 500)
    assert not throttle.allows(5999, 5000, 11)
    assert throttle.allows(6000, 5000, 11)


def test_too_much_without_a_quorum_is_refused() -> None:
    desk = leader(1, timings=quick(max_pending_requests=3))
    took(desk)
    for _ in range(4):
        assert desk.member.refusal() is None
        desk.log.add(desk.state.term, b"more")
        desk.member.appended(desk.now_ms)
        desk.carry_out()
    assert desk.member.refusal() is Code.LEADER_PENDING_FULL


def test_leadership_goes_over_to_a_follower_that_is_not_far_behind() -> None:
    desk = leader(1)
    took(desk)
    assert desk.member.transfer("n9", desk.now_ms) is Code.UNKNOWN_MEMBER
    assert desk.ask(TransferRequest(term=9, transfer_id="n0", transferee_id="n1")).code == Code.INCONSISTENT_TERM
    assert desk.ask(TransferRequest(term=4, transfer_id="n1", transferee_id="n2")).code == Code.UNEXPECTED_ARGUMENT
    assert desk.ask(TransferRequest(term=4, transfer_id="n0", transferee_id="n1")) is None
    order = desk.sent(TransferRequest, "n1")[-1]
    assert (order.request.take_leadership_ledger_index, order.request.term) == (1, 4)
    assert desk.member.refusal() is Code.LEADER_TRANSFERRING
    assert desk.ask(TransferRequest(term=4, transfer_id="n0", transferee_id="n2")).code == Code.LEADER_TRANSFERRING
    desk.reply(order, TransferResponse(code=Code.TAKE_LEADERSHIP_FAILED))
    assert desk.answers[-1].code == Code.TAKE_LEADERSHIP_FAILED
    assert desk.member.refusal() is None


def test_who_is_far_behind_does_not_take_leadership() -> None:
    desk = leader(1, timings=quick(max_leadership_transfer_wait_index=2))
    took(desk)
    for _ in range(3):
        desk.log.add(desk.state.term, b"more")
    desk.member.appended(desk.now_ms)
    desk.carry_out()
    assert desk.member.transfer("n1", desk.now_ms) is Code.FALL_BEHIND_TOO_MUCH


def test_who_shall_lead_waits_for_the_leaders_end_and_stands_without_asking_first() -> None:
    source = log_of(1, 1)
    desk = Desk()
    desk.stretch(source, -1, 1, term=1)
    order = {"term": 1, "transfer_id": "n1", "transferee_id": "n0", "take_leadership_ledger_index": 1}
    assert desk.ask(TransferRequest(**{**order, "transfer_id": "n2"})).code == Code.INCONSISTENT_LEADER
    assert desk.ask(TransferRequest(**order)) is None
    desk.stretch(source, 0, 1, term=1)
    assert desk.state == HardState(2, "n0")
    vote = desk.sent(VoteRequest, "n2")[-1]
    desk.answers.clear()
    desk.reply(vote, VoteResponse(vote_result=VoteResult.ACCEPT, term=2))
    assert desk.member.standing.role is NodeRole.LEADER
    assert (desk.answers[-1].code, desk.answers[-1].term) == (Code.SUCCESS, 2)


def test_who_shall_lead_and_does_not_get_the_log_says_so() -> None:
    desk = Desk()
    desk.beat("n1", 1)
    assert (
        desk.ask(TransferRequest(term=1, transfer_id="n1", transferee_id="n0", take_leadership_ledger_index=5)) is None
    )
    desk.after(1100)
    assert desk.answers[-1].code == Code.TAKE_LEADERSHIP_FAILED
    assert desk.state.term == 1


def test_a_preferred_leader_gets_the_leadership_when_it_can() -> None:
    desk = leader(1, preferred_leaders=("n2", "n8"), timings=quick(max_leadership_transfer_wait_index=2))
    took(desk, "n1")
    desk.after(1100)
    assert not desk.sent(TransferRequest)  # as far as it is known, two entries behind
    took(desk, "n2")
    desk.after(1100)
    assert [send.peer for send in desk.sent(TransferRequest)] == ["n2"]


def test_a_leader_hands_nothing_over_before_it_has_committed_an_entry_of_its_term() -> None:
    desk = leader(1, preferred_leaders=("n2",))
    desk.after(1100)
    assert desk.member.lag("n2") == 2
    assert not desk.sent(TransferRequest)
    took(desk, "n1")
    desk.after(1100)
    assert [send.peer for send in desk.sent(TransferRequest)] == ["n2"]


def test_a_leader_keeps_the_leadership_while_no_preferred_leader_answers() -> None:
    desk = leader(1, preferred_leaders=("n2",))
    desk.sends.clear()
    for _ in range(10):
        desk.after(500)
        beats = desk.sent(HeartBeatRequest, "n1")
        desk.sends = [send for send in desk.sends if send not in beats]
        for send in beats:
            desk.reply(send, HeartBeatResponse(tianzhou=1))
    assert desk.member.lag("n2") is None
    took(desk, "n1")
    assert desk.member.committed.index == 1
    desk.after(1100)
    assert desk.member.standing.role is NodeRole.LEADER
    assert not desk.sent(TransferRequest)
