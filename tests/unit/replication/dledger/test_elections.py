"""Elections: votes, winners, and the lease of a leader (broker.md §19.2 to §19.4, docs/adr/0015)."""

from __future__ import annotations

import pytest
from member_desk import TIMINGS, Desk, log_of, quick

from tianzhou.errors import ConfigError, StoreError
from tianzhou.replication.dledger.member import DLedgerMember, Unsupported
from tianzhou.replication.dledger.ready import HardState, NodeRole
from tianzhou.wire.bodies.dledger import (
    HeartBeatRequest,
    HeartBeatResponse,
    PreVoteRequest,
    StretchRequest,
    StretchResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from tianzhou.wire.codes import DLedgerResponseCode as Code


def test_votes_are_answered_as_dledger_answers_them() -> None:
    desk = Desk(log_of(1, 2, 2), state=HardState(4, None))
    assert desk.vote("n7", 5, 9, 9) is VoteResult.REJECT_UNKNOWN_LEADER
    assert desk.vote("n0", 5, 9, 9) is VoteResult.REJECT_UNEXPECTED_LEADER
    assert desk.vote("n1", 5, 9, 1) is VoteResult.REJECT_EXPIRED_LEDGER_TERM
    assert desk.vote("n1", 5, 1, 2) is VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    assert desk.vote("n1", 3, 2, 2) is VoteResult.REJECT_EXPIRED_VOTE_TERM
    assert desk.state == HardState(4, None)
    assert desk.vote("n1", 4, 2, 2) is VoteResult.ACCEPT
    assert desk.vote("n1", 4, 2, 2) is VoteResult.ACCEPT
    assert desk.vote("n2", 4, 2, 2) is VoteResult.REJECT_ALREADY_VOTED
    assert desk.beat("n1", 4) == Code.SUCCESS
    assert desk.vote("n2", 4, 2, 2) is VoteResult.REJECT_ALREADY_HAS_LEADER


def test_a_larger_term_is_taken_and_the_vote_given_at_once() -> None:
    desk = Desk(state=HardState(4, "n2"))
    assert desk.vote("n1", 9) is VoteResult.ACCEPT
    assert desk.state == HardState(9, "n1")
    # Term and vote leave with the reply, and must be on the disk before it.
    assert desk.last.hard_state == HardState(9, "n1")
    assert len(desk.last.answers) == 1


def test_a_restarted_node_keeps_its_vote() -> None:
    desk = Desk(state=HardState(4, "n2"))
    assert desk.vote("n1", 4) is VoteResult.REJECT_ALREADY_VOTED
    assert desk.vote("n2", 4) is VoteResult.ACCEPT


def test_a_node_that_lost_its_vote_and_not_its_log_gives_no_second_one() -> None:
    desk = Desk(log_of(1, 6), state=HardState(2, None))
    assert desk.vote("n1", 6, 9, 9) is VoteResult.REJECT_ALREADY_VOTED
    assert desk.vote("n1", 7, 9, 9) is VoteResult.ACCEPT


def test_a_term_that_no_group_reaches_is_passed_over() -> None:
    desk = Desk()
    assert desk.vote("n1", 1 << 60) is VoteResult.UNKNOWN
    assert desk.beat("n1", 1 << 60) == Code.UNEXPECTED_ARGUMENT
    assert desk.member.standing.term == 0


def test_strangers_and_other_groups_are_refused() -> None:
    desk = Desk()
    assert desk.beat("n7") == Code.UNKNOWN_MEMBER
    assert desk.beat("n0") == Code.UNEXPECTED_MEMBER
    desk.member.requested(1, HeartBeatRequest(group="other", remote_id="n0", leader_id="n1", term=1), desk.now_ms)
    desk.carry_out()
    assert desk.answers[-1].code == Code.UNKNOWN_GROUP
    desk.member.requested(1, VoteRequest(group="group", remote_id="n4", leader_id="n1", term=1), desk.now_ms)
    desk.carry_out()
    assert (desk.answers[-1].code, desk.answers[-1].vote_result) == (Code.UNKNOWN_MEMBER, VoteResult.UNKNOWN)
    assert desk.member.standing.term == 0


def test_a_node_must_be_in_its_group() -> None:
    with pytest.raises(ConfigError, match="'n9' is not among the peers of the group 'g': n0, n1"):
        DLedgerMember("g", "n9", ["n1", "n0"], log_of(), HardState(), chance=lambda: 0.0, now_ms=0)


def test_whoever_hears_a_leader_tells_others_not_to_stand() -> None:
    desk = Desk()
    assert desk.would_vote("n2", 1) is VoteResult.ACCEPT
    desk.beat("n1", 1)
    assert desk.would_vote("n2", 2) is VoteResult.REJECT_ALREADY_HAS_LEADER
    desk.after(5900)
    assert desk.would_vote("n2", 2) is VoteResult.REJECT_ALREADY_HAS_LEADER
    desk.after(200)
    assert desk.would_vote("n2", 2) is VoteResult.ACCEPT
    # A pre-vote is no promise.
    assert desk.state == HardState(1, None)


def test_a_node_that_nobody_answers_stays_in_its_term() -> None:
    desk = Desk(state=HardState(3, None))
    desk.after(60_000, 100)
    assert desk.member.standing.role is NodeRole.CANDIDATE
    assert desk.state.term == 3
    assert not desk.sent(VoteRequest)


def test_a_candidate_asks_first_then_in_earnest() -> None:
    desk = Desk(log_of(1, 1), state=HardState(3, None))
    desk.after(1000)
    first = desk.sent(PreVoteRequest)
    assert [(s.peer, s.request.term, s.request.ledger_end_index) for s in first[:2]] == [("n1", 4, 1), ("n2", 4, 1)]
    assert desk.state.term == 3
    desk.reply(first[-1], VoteResponse(vote_result=VoteResult.ACCEPT, term=3))
    assert desk.state == HardState(4, "n0")
    vote = desk.sent(VoteRequest, "n1")[-1]
    desk.reply(vote, VoteResponse(vote_result=VoteResult.ACCEPT, term=4))
    assert desk.member.standing.role is NodeRole.LEADER
    # An entry opens the term.
    assert desk.log.end_term == 4


def test_an_apache_node_that_is_not_ready_is_asked_again() -> None:
    desk = Desk(state=HardState(3, None))
    desk.after(1000)
    desk.reply(desk.sent(PreVoteRequest, "n2")[-1], VoteResponse(vote_result=VoteResult.ACCEPT, term=3))
    asked = desk.sent(VoteRequest, "n1")
    desk.reply(asked[-1], VoteResponse(vote_result=VoteResult.REJECT_TERM_NOT_READY, term=3))
    assert len(desk.sent(VoteRequest, "n1")) == len(asked)
    desk.after(60)
    again = desk.sent(VoteRequest, "n1")[-1]
    assert (again.number > asked[-1].number, again.request.term) == (True, 4)
    desk.reply(again, VoteResponse(vote_result=VoteResult.ACCEPT, term=4))
    assert desk.member.standing.role is NodeRole.LEADER


def test_apaches_nodes_are_asked_whether_they_have_a_leader_by_a_vote_of_the_present_term() -> None:
    desk = Desk(state=HardState(3, "n2"))
    desk.after(1000)
    desk.reply(desk.sent(PreVoteRequest, "n1")[-1], Unsupported())
    question = desk.sent(VoteRequest, "n1")[-1]
    assert question.request.term == 3
    desk.reply(question, VoteResponse(vote_result=VoteResult.REJECT_ALREADY_HAS_LEADER, term=3))
    assert desk.state.term == 3
    desk.sends.clear()
    desk.after(1500)
    desk.reply(desk.sent(PreVoteRequest, "n1")[-1], Unsupported())
    desk.reply(desk.sent(VoteRequest, "n1")[-1], VoteResponse(vote_result=VoteResult.REJECT_ALREADY_VOTED, term=3))
    assert desk.state == HardState(4, "n0")


def test_a_larger_term_among_the_answers_is_taken() -> None:
    desk = Desk(state=HardState(3, None))
    desk.after(1000)
    desk.reply(desk.sent(PreVoteRequest, "n1")[-1], VoteResponse(vote_result=VoteResult.ACCEPT, term=3))
    refused = VoteResponse(vote_result=VoteResult.REJECT_EXPIRED_VOTE_TERM, term=17)
    desk.reply(desk.sent(VoteRequest, "n1")[-1], refused)
    assert desk.state == HardState(17, None)
    # A late vote has no effect.
    desk.reply(desk.sent(VoteRequest, "n2")[-1], VoteResponse(vote_result=VoteResult.ACCEPT, term=4))
    assert desk.member.standing.role is NodeRole.CANDIDATE


def test_an_impaired_node_gives_apaches_candidates_no_vote_and_ours_one_that_says_so() -> None:
    desk = Desk(log_of(1), state=HardState(1, None), impaired=True)
    assert desk.vote("n1", 5, 9, 9) is VoteResult.REJECT_TAKING_LEADERSHIP
    for kind in (PreVoteRequest, VoteRequest):
        answer = desk.ask(
            kind(leader_id="n1", local_id="n1", term=5, ledger_end_index=9, ledger_end_term=9, tianzhou=1)
        )
        assert (answer.vote_result, answer.impaired) == (VoteResult.ACCEPT, True)


@pytest.mark.parametrize("earnest", [False, True])
def test_votes_of_impaired_nodes_count_only_with_all_others(earnest: bool) -> None:
    kind = VoteRequest if earnest else PreVoteRequest
    desk = Desk(log_of(1), state=HardState(1, None), size=5)
    desk.after(1000)
    if earnest:
        for peer in ("n1", "n2"):
            desk.reply(desk.sent(PreVoteRequest, peer)[-1], VoteResponse(vote_result=VoteResult.ACCEPT, term=1))
    questions = {peer: desk.sent(kind, peer)[-1] for peer in ("n1", "n2", "n3", "n4")}

    def went_on() -> bool:
        return desk.member.standing.role is NodeRole.LEADER if earnest else bool(desk.sent(VoteRequest, "n1"))

    for peer, impaired in (("n1", True), ("n2", True), ("n3", False)):
        desk.reply(
            questions[peer], VoteResponse(vote_result=VoteResult.ACCEPT, term=desk.state.term, impaired=impaired)
        )
        assert not went_on()
    desk.reply(questions["n4"], VoteResponse(vote_result=VoteResult.ACCEPT, term=desk.state.term, impaired=True))
    assert went_on()


def test_an_impaired_node_leads_when_all_others_vote_for_it() -> None:
    desk = Desk(log_of(1), state=HardState(1, None), impaired=True)
    desk.after(1000)
    for kind in (PreVoteRequest, VoteRequest):
        for peer in ("n1", "n2"):
            assert desk.member.standing.role is NodeRole.CANDIDATE
            answer = VoteResponse(vote_result=VoteResult.ACCEPT, term=desk.state.term, impaired=peer == "n1")
            desk.reply(desk.sent(kind, peer)[-1], answer)
    assert desk.member.standing.role is NodeRole.LEADER
    assert not desk.member.impaired
    assert desk.last.recovered


def test_an_impaired_node_is_sound_when_it_has_what_its_leader_had_when_it_was_heard() -> None:
    source = log_of(1, 1, 1, 2, 2)
    desk = Desk(log_of(1), state=HardState(1, None), impaired=True)
    assert desk.stretch(source, -1, 3, term=2, commit=2).code == Code.SUCCESS
    assert desk.member.impaired  # only entries of an older term are committed so far
    desk.stretch(source, 2, 1, term=2, commit=3)
    assert desk.member.impaired
    desk.stretch(source, 3, 1, term=2, commit=3)
    assert not desk.member.impaired
    assert desk.last.recovered
    assert desk.vote("n1", 5, 4, 2) is VoteResult.ACCEPT


def test_one_node_alone_leads_itself() -> None:
    desk = Desk(size=1, impaired=True)
    desk.after(1000)
    assert desk.member.standing.serving
    assert desk.member.committed.index == 0
    assert desk.member.refusal() is None
    desk.log.add(1, b"more")
    desk.member.appended(desk.now_ms)
    assert desk.member.committed.index == 1


def test_a_leader_serves_when_it_has_committed_an_entry_of_its_term() -> None:
    desk = Desk(log_of(1))
    desk.elect()
    assert not desk.member.standing.serving
    assert desk.member.refusal() is Code.LEADER_NOT_READY
    stretch = desk.sent(StretchRequest, "n1")[-1]
    desk.reply(stretch, StretchResponse(index=0, end_index=0))
    stretch = desk.sent(StretchRequest, "n1")[-1]
    assert stretch.request.count == 1
    desk.reply(stretch, StretchResponse(index=1, end_index=1))
    assert desk.member.standing.serving
    assert desk.member.refusal() is None


def test_a_leader_that_no_quorum_answers_stops_when_followers_stop_to_wait() -> None:
    desk = Desk()
    desk.elect()
    stretch = desk.sent(StretchRequest, "n1")[-1]
    desk.reply(stretch, StretchResponse(index=0, end_index=0))
    desk.reply(desk.sent(StretchRequest, "n1")[-1], StretchResponse(index=0, end_index=0))
    term = desk.state.term
    desk.after(5000)
    assert desk.member.standing.serving
    desk.after(1100)
    assert desk.member.standing.role is NodeRole.CANDIDATE
    assert desk.state.term == term
    assert desk.member.refusal() is Code.NOT_LEADER
    assert any("too few nodes have answered" in text for text in desk.complaints)


def test_a_leader_of_five_goes_on_while_two_of_the_others_answer() -> None:
    desk = Desk(size=5)
    desk.elect()
    for _ in range(10):
        desk.after(2100)
        for send in desk.sent(HeartBeatRequest):
            desk.reply(send, HeartBeatResponse() if send.peer in ("n1", "n2") else None)
        desk.sends.clear()
    assert desk.member.standing.role is NodeRole.LEADER
    desk.after(2100)
    for send in desk.sent(HeartBeatRequest, "n1"):
        desk.reply(send, HeartBeatResponse(code=Code.EXPIRED_TERM, term=99))
    assert desk.state == HardState(99, None)


def test_a_follower_that_is_not_ready_is_beaten_again_at_once() -> None:
    desk = Desk()
    desk.elect()
    desk.sends.clear()
    desk.after(2000)
    beat = desk.sent(HeartBeatRequest, "n1")[-1]
    desk.reply(beat, HeartBeatResponse(code=Code.TERM_NOT_READY))
    desk.sends.clear()
    desk.after(60)
    assert [send.peer for send in desk.sent(HeartBeatRequest)] == ["n1"]


def test_a_second_leader_of_a_term_is_refused() -> None:
    desk = Desk()
    assert desk.beat("n1", 3) == Code.SUCCESS
    assert desk.beat("n2", 3) == Code.INCONSISTENT_LEADER
    assert desk.beat("n2", 2) == Code.EXPIRED_TERM
    assert desk.beat("n2", 4) == Code.SUCCESS
    assert desk.member.standing.leader == "n2"


def test_apaches_leader_of_an_older_term_is_led_to_a_new_election_now_and_then() -> None:
    desk = Desk(state=HardState(7, None))
    for _ in range(3):
        assert desk.beat("n1", 4) == Code.EXPIRED_TERM
    beats = desk.sent(HeartBeatRequest)
    assert [(send.peer, send.request.term) for send in beats] == [("n1", 7)]
    desk.after(6100, 100)
    desk.beat("n1", 4)
    assert len(desk.sent(HeartBeatRequest)) == 2
    # Our nodes step down on the reply alone.
    desk.ask(HeartBeatRequest(leader_id="n2", term=4, tianzhou=1))
    assert len(desk.sent(HeartBeatRequest, "n2")) == 0


def test_a_group_with_short_times_has_a_new_leader_within_two_seconds() -> None:
    short = quick(heartbeat_interval_ms=300, min_vote_interval_ms=50, max_vote_interval_ms=150)
    desk = Desk(timings=short)
    desk.beat("n1", 1)
    waited = 0
    while desk.member.standing.role is not NodeRole.LEADER:
        desk.after(10)
        waited += 10
        for send in desk.sends:
            if send.peer == "n2" and isinstance(send.request, VoteRequest):
                desk.reply(send, VoteResponse(vote_result=VoteResult.ACCEPT, term=send.request.term))
        assert waited < 2000


def test_times_that_cannot_be_are_named() -> None:
    with pytest.raises(ConfigError, match="min_vote_interval_ms is 900, not below max_vote_interval_ms, which is 300"):
        quick(min_vote_interval_ms=900, max_vote_interval_ms=300)
    with pytest.raises(ConfigError, match="heartbeat_interval_ms is 0; it has to be above 0"):
        quick(heartbeat_interval_ms=0)


def test_a_shell_that_does_not_carry_out_what_was_decided_is_stopped() -> None:
    desk = Desk()
    source = log_of(1, 1)
    desk.carry_out = lambda: None  # type: ignore[method-assign]
    desk.stretch(source, -1, 2, term=1)
    with pytest.raises(StoreError, match="carry out `Ready` before the member is called again"):
        desk.member.tick(desk.now_ms + 10)


@pytest.mark.parametrize(("sound", "leads"), [((), True), (("n1",), True), (("n1", "n2"), False)])
def test_a_node_with_entries_in_doubt_leads_only_where_too_few_have_lost_nothing(
    sound: tuple[str, ...], *, leads: bool
) -> None:
    desk = Desk(log_of(1, 1), state=HardState(1, None), impaired=True, doubted_from=1)
    desk.after(2000)
    for kind in (PreVoteRequest, VoteRequest):
        for peer in ("n1", "n2"):
            for send in desk.sent(kind, peer)[-1:]:
                answer = VoteResponse(vote_result=VoteResult.ACCEPT, term=desk.state.term, impaired=peer not in sound)
                desk.reply(send, answer)
    assert (desk.member.standing.role is NodeRole.LEADER) is leads


def test_two_that_stand_at_once_stand_again_soon_in_another_term_though_the_third_is_silent() -> None:
    desk = Desk(log_of(1), state=HardState(1, None))

    def answered(kind: type, result: VoteResult) -> int:
        for _ in range(200):
            questions = desk.sent(kind, "n1")
            if questions:
                desk.sends.clear()
                desk.reply(questions[0], VoteResponse(vote_result=result, term=desk.state.term))
                return int(questions[0].request.term)
            desk.after(10)
        raise AssertionError(f"no {kind.__name__} within two seconds")

    terms = set()
    for _ in range(3):
        began_ms = desk.now_ms
        answered(PreVoteRequest, VoteResult.ACCEPT)
        terms.add(answered(VoteRequest, VoteResult.REJECT_ALREADY_VOTED))
        assert desk.now_ms - began_ms < 3 * TIMINGS.max_vote_interval_ms
    assert terms == {2, 3, 4}
