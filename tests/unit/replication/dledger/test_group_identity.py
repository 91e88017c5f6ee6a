"""A member and logs of another group, or of a diverged history of its group (docs/adr/0024)."""

from __future__ import annotations

from random import Random
from typing import Any

import folders
import pytest
from group_checks import Checks
from group_network import Network
from group_story import TIMINGS
from member_desk import Desk, log_of, terms
from memory_log import MemoryLog
from our_node import OurNode

from tianzhou.records.opening import opening_group_id
from tianzhou.replication.dledger.membership.joint import joint_at, marks_of
from tianzhou.replication.dledger.ready import HardState, Keep, NodeRole, Opening
from tianzhou.wire.bodies.dledger import (
    IDENTIFYING,
    HeartBeatRequest,
    HeartBeatResponse,
    PreVoteRequest,
    PushType,
    StretchRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from tianzhou.wire.codes import DLedgerResponseCode as Code

OWN, OTHER = "a" * 32, "b" * 32
FOLLOWS_NOT = "follows no further"


def group_log(*terms_of: int, group_id: str = OWN, seed: int = 1, body: bytes = b"x") -> MemoryLog:
    """Return a log whose terms begin with opening records; logs of two seeds have entries of the same sizes."""
    log, rng = MemoryLog(), Random(seed)
    for number, term in enumerate(terms_of):
        if term > log.end_term:
            log.open_term(Opening(term, group_id, f"{rng.getrandbits(128):032x}"), rng.randint(10**12, 10**13))
        else:
            log.add(term, body + b"%d" % number)
    return log


def stretch(
    desk: Desk, source: MemoryLog, previous: int, count: int, *, commit: int = -1, group_id: str | None = OWN,
    looks: bool = True,
) -> Any:  # fmt: skip
    """Send the request of the leader n1 with a log; `looks` means that it searches the last equal entry."""
    request = StretchRequest(
        leader_id="n1", term=source.end_term, commit_index=commit, count=count, end_index=source.end_index,
        entries=b"".join(source.entry(previous + 1 + n) for n in range(count)), previous_index=previous,
        previous_term=source.term_at(previous) if previous >= source.begin_index >= 0 else -1,
        group_id=group_id, tianzhou=IDENTIFYING,
    )  # fmt: skip
    if looks and previous >= source.begin_index >= 0:
        request.previous_digest, request.term_index, request.term_digest = joint_at(source, previous)
    return desk.ask(request)


def vote_of(desk: Desk, source: MemoryLog, group_id: str | None, kind: type[VoteRequest] = VoteRequest) -> Any:
    """Request a vote as the candidate n1 with a log."""
    return desk.ask(
        kind(
            leader_id="n1", term=source.end_term + 5, ledger_end_index=source.end_index, group_id=group_id,
            ledger_end_term=source.end_term, marks=marks_of(source), tianzhou=IDENTIFYING,
        )
    )  # fmt: skip


def test_the_first_leader_draws_an_identity_and_later_opening_records_repeat_it() -> None:
    desk = Desk(size=1)
    desk.after(1000)
    (first,) = desk.log.raw
    identity = opening_group_id(first)
    assert len(identity) == 32
    assert (desk.keep, desk.member.group_id) == (Keep(identity, alone=True), identity)
    again = Desk(desk.log, size=1, state=desk.state, group_id=identity)
    again.after(1000)
    assert again.log.end_index == 1
    assert opening_group_id(again.log.entry(1)) == identity


def test_a_leader_that_has_not_kept_the_identity_takes_that_of_the_log() -> None:
    desk = Desk(group_log(1, 1), size=1, state=HardState(1, None))
    desk.after(1000)
    assert desk.member.group_id == OWN
    assert opening_group_id(desk.log.entry(2)) == OWN


def test_a_member_adopts_the_identity_of_the_leader_once_an_entry_of_its_term_is_committed() -> None:
    source, desk = group_log(1, 1, 2, 2), Desk()
    stretch(desk, source, -1, 4)
    assert desk.member.group_id == ""
    # The log may end before committed entries, so the member's vote counts like that of an empty log.
    stretch(desk, source, 3, 0, commit=1)
    assert desk.keep == Keep(OWN, joining=True)
    assert vote_of(desk, source, OWN, PreVoteRequest).group_id is None
    answer = stretch(desk, source, 3, 0, commit=2)
    assert (desk.member.group_id, desk.keep) == (OWN, Keep(OWN))
    assert (answer.code, desk.log.raw) == (Code.SUCCESS, source.raw)


def test_a_folder_of_an_older_version_is_adopted_after_a_comparison_of_its_content() -> None:
    source = group_log(1, 1, 2, 2)
    desk = Desk(MemoryLog(source.raw[:2]), state=HardState(1, None), committed_index=1)
    assert stretch(desk, source, 1, 2, commit=3).code == Code.SUCCESS
    assert (desk.member.group_id, desk.log.raw, desk.member.halted) == (OWN, source.raw, "")


@pytest.mark.parametrize("identity", ["", OWN])
def test_other_committed_entries_of_the_same_terms_and_sizes_stop_a_member(identity: str) -> None:
    source, other = group_log(1, 1, 2, 2, 2, 3), group_log(1, 1, 2, 2, group_id=identity or OTHER, seed=2)
    assert [len(entry) for entry in other.raw] == [len(entry) for entry in source.raw[:4]]
    before = list(other.raw)
    desk = Desk(other, state=HardState(2, None), committed_index=3, group_id=identity)
    answer = stretch(desk, source, 3, 2, commit=5)
    assert answer.code == Code.INCONSISTENT_STATE
    assert (desk.log.raw, desk.member.committed.index) == (before, 3)
    assert FOLLOWS_NOT in desk.member.halted
    assert "entry 3" in desk.member.halted
    # The folder has no rights: no heart-beat, no vote, no candidacy; a restart does not change that.
    assert desk.beat("n1", 9) != Code.SUCCESS
    again = Desk(other, state=desk.state, committed_index=3, group_id=identity, halted=desk.keep.halted)
    assert vote_of(again, source, OWN).vote_result is VoteResult.UNKNOWN
    again.after(60_000, step=1000)
    assert again.sends == []
    assert again.member.halted == desk.member.halted


def test_other_entries_that_are_not_committed_are_cut_and_come_from_the_leader() -> None:
    source, desk = group_log(1, 1, 2, 2, 3), Desk(group_log(1, 1, 2, 2, seed=2), state=HardState(2, None))
    assert desk.log.raw[0] != source.raw[0]
    answer = stretch(desk, source, 3, 1)
    assert (answer.code, answer.conflict_index) == (Code.INCONSISTENT_STATE, 2)
    answer = stretch(desk, source, answer.conflict_index - 1, 0)
    assert answer.conflict_index == 0
    assert stretch(desk, source, -1, 5, commit=4).code == Code.SUCCESS
    assert (desk.log.raw, desk.member.halted, desk.member.group_id) == (source.raw, "", OWN)


def test_logs_that_part_in_a_term_are_cut_behind_the_last_committed_entry() -> None:
    source, log = group_log(1, 1, 1, 1, 1, 2), group_log(1, 1, 1)
    log.add(1, b"y3")
    log.add(1, b"y4")
    desk = Desk(log, state=HardState(1, None), committed_index=2)
    answer = stretch(desk, source, 4, 1)
    assert answer.conflict_index == 3
    assert stretch(desk, source, 2, 3, commit=5).code == Code.SUCCESS
    assert desk.log.raw == source.raw


def test_a_member_that_started_anew_asks_for_the_content_before_it_acknowledges() -> None:
    source = group_log(1, 1, 1, 1)
    desk = Desk(group_log(1, 1, 1, seed=2), state=HardState(1, None))
    answer = stretch(desk, source, 2, 1, looks=False)
    assert (answer.code, desk.log.end_index) == (Code.INCONSISTENT_STATE, 2)
    # An older version of ours sends no content, and is followed by index and term.
    assert stretch(Desk(MemoryLog(source.raw[:3])), source, 2, 1, looks=False, group_id=None).code == Code.SUCCESS


def test_an_entry_that_the_disk_has_changed_is_no_other_entry() -> None:
    source, log = group_log(1, 1, 1, 1), group_log(1, 1, 1)
    log.raw[2] = log.raw[2][:-1] + b"?"
    log.broken.add(2)
    desk = Desk(log, state=HardState(1, None), committed_index=2, group_id=OWN)
    assert stretch(desk, source, 2, 1, commit=3).code == Code.SUCCESS
    assert desk.member.halted == ""


def test_requests_of_another_identity_count_for_nothing_and_both_are_named_once() -> None:
    log = group_log(1, 1)
    desk = Desk(log, state=HardState(1, None), committed_index=1, group_id=OWN)
    foreign = group_log(1, 1, 2, 2, 2, 2, group_id=OTHER)
    for kind in (PreVoteRequest, VoteRequest, VoteRequest):
        answer = vote_of(desk, foreign, OTHER, kind)
        assert (answer.code, answer.vote_result) == (Code.UNKNOWN_GROUP, VoteResult.UNKNOWN)
    assert desk.state == HardState(1, None)
    (line,) = desk.complaints
    assert OWN in line
    assert OTHER in line
    assert desk.member.halted == ""


def test_a_longer_log_without_an_identity_gets_no_vote_of_a_member_with_one() -> None:
    desk = Desk(group_log(1, 1), state=HardState(1, None), group_id=OWN)
    assert vote_of(desk, log_of(1, 1, 1, 3), None).vote_result is VoteResult.UNKNOWN
    # Apache's nodes and older versions send no identity either, and are ordinary members.
    assert desk.vote("n2", 2, 3, 3) is VoteResult.ACCEPT


def test_a_longer_log_of_the_same_identity_that_lacks_committed_entries_gets_no_vote() -> None:
    log = group_log(1, 1, 1, 1)
    desk = Desk(log, state=HardState(1, None), committed_index=3, group_id=OWN)
    other = MemoryLog(log.raw[:2])
    other.open_term(Opening(4, OWN, OTHER), 5)
    assert vote_of(desk, other, OWN).vote_result is VoteResult.UNKNOWN
    for _ in range(9):
        other.add(4, b"other")
    assert vote_of(desk, other, OWN).vote_result is VoteResult.UNKNOWN
    assert "gets no vote" in desk.complaints[0]
    longer = MemoryLog(log.raw)
    longer.open_term(Opening(4, OWN, OTHER), 5)
    assert vote_of(desk, longer, OWN).vote_result is VoteResult.ACCEPT


def test_a_member_with_another_identity_than_the_leader_follows_no_further_until_it_hears_its_group() -> None:
    desk = Desk(group_log(1, 1, group_id=OTHER), state=HardState(1, None), committed_index=1, group_id=OTHER)
    beat = HeartBeatRequest(leader_id="n1", term=4, group_id=OWN, tianzhou=IDENTIFYING)
    assert desk.ask(beat).code == Code.UNKNOWN_GROUP
    assert OWN in desk.member.halted
    assert OTHER in desk.member.halted
    assert desk.member.standing.role is NodeRole.CANDIDATE
    assert desk.state.term == 1
    assert vote_of(desk, group_log(1, 1, 2), None).vote_result is VoteResult.UNKNOWN
    own = HeartBeatRequest(leader_id="n2", term=4, group_id=OTHER, tianzhou=IDENTIFYING)
    assert desk.ask(own).code == Code.SUCCESS
    assert desk.member.halted == ""
    # While it follows its own group, a foreign node cannot stop it.
    assert desk.ask(beat).code == Code.UNKNOWN_GROUP
    assert desk.member.halted == ""


def stood(desk: Desk) -> list[Any]:
    """Return the vote requests of the member since the last call."""
    desk.sends.clear()
    desk.after(3000)
    return [send for send in desk.sends if isinstance(send.request, VoteRequest)]


def test_a_member_that_most_others_refuse_follows_no_further() -> None:
    desk = Desk(group_log(1, 1, group_id=OTHER), state=HardState(1, None), committed_index=1, group_id=OTHER)
    for send in stood(desk)[:2]:
        desk.reply(send, VoteResponse(code=int(Code.UNKNOWN_GROUP), group_id=OWN, tianzhou=IDENTIFYING))
    assert OWN in desk.member.halted
    desk.sends.clear()
    desk.after(6000, step=100)
    assert desk.sends == []


@pytest.mark.parametrize(("of", "wins"), [(OWN, True), (None, False)])
def test_the_vote_of_a_member_that_has_lost_its_folder_counts_only_beside_all_others(of: str, wins: bool) -> None:
    desk = Desk(group_log(1, 1), state=HardState(1, None), committed_index=1, group_id=OWN)
    accept = {"vote_result": VoteResult.ACCEPT, "tianzhou": IDENTIFYING, "term": 1}
    asked = {send.peer: send for send in stood(desk)}
    desk.sends.clear()
    desk.reply(asked["n1"], VoteResponse(group_id=of, **accept))
    assert bool(desk.sent(VoteRequest)) is wins
    if not wins:
        desk.reply(asked["n2"], VoteResponse(group_id=OWN, **accept))
        assert desk.sent(VoteRequest)


def test_a_member_that_was_alone_is_elected_with_the_vote_of_an_empty_one_as_its_group_grows() -> None:
    desk = Desk(group_log(1, 1), state=HardState(1, None), committed_index=1, group_id=OWN, alone=True)
    asked = {send.peer: send for send in stood(desk)}
    desk.sends.clear()
    desk.reply(asked["n1"], VoteResponse(vote_result=VoteResult.ACCEPT, tianzhou=IDENTIFYING, term=1))
    assert desk.sent(VoteRequest)


def test_empty_members_found_no_other_group_while_one_that_knows_the_group_answers() -> None:
    desk = Desk()
    asked = {send.peer: send for send in stood(desk)}
    desk.sends.clear()
    refused = VoteResult.REJECT_EXPIRED_LEDGER_TERM
    desk.reply(asked["n1"], VoteResponse(vote_result=refused, group_id=OWN, tianzhou=IDENTIFYING))
    desk.reply(asked["n2"], VoteResponse(vote_result=VoteResult.ACCEPT, tianzhou=IDENTIFYING))
    assert desk.sent(VoteRequest) == []


def test_a_member_whose_log_is_gone_and_whose_identity_is_not_counts_as_impaired() -> None:
    assert Desk(group_id=OWN).member.impaired
    assert not Desk().member.impaired


def test_another_committed_entry_of_one_of_apaches_leaders_stops_a_member() -> None:
    source, log = log_of(1, 1, 1, body=b"theirs"), log_of(1, 1, body=b"others")
    desk = Desk(log, state=HardState(1, None), committed_index=1, group_id=OWN)
    assert desk.beat("n1", 1) == Code.SUCCESS
    assert desk.push(PushType.COMPARE, [source.entry(2)], term=1).code == Code.INCONSISTENT_STATE
    assert desk.member.halted == ""
    assert desk.push(PushType.COMPARE, [source.entry(1)], term=1).code == Code.INCONSISTENT_STATE
    assert FOLLOWS_NOT in desk.member.halted
    assert desk.push(PushType.TRUNCATE, [source.entry(0)], term=1).code == Code.INCONSISTENT_STATE
    assert terms(desk.log) == [1, 1]


def test_a_leader_names_the_member_that_does_not_follow_it() -> None:
    desk = Desk()
    desk.elect()
    desk.after(2500)
    beat = desk.sent(HeartBeatRequest, "n2")[0]
    desk.reply(beat, HeartBeatResponse(code=int(Code.UNKNOWN_GROUP), group_id=OTHER, tianzhou=IDENTIFYING))
    line = desk.complaints[-1]
    assert "n2 does not follow n0" in line
    assert OTHER in line
    assert desk.member.opening.group_id in line
    assert desk.member.lag("n2") is None


@pytest.mark.parametrize("life", ["another group", "an older version", "an earlier life"])
def test_a_running_group_goes_on_without_a_member_that_got_another_folder(life: str) -> None:
    network, checks = Network(Random(3)), Checks()
    names = ["n0", "n1", "n2"]
    nodes = [OurNode(name, names, network, checks, TIMINGS) for name in names]

    def pass_time(ms: int) -> None:
        for _ in range(ms // 20):
            network.run_until(network.now_ms + 20)
            for node in nodes:
                if node.role is NodeRole.LEADER:
                    node.propose(b"m%d" % network.now_ms)

    pass_time(3000)
    victim = next(node for node in nodes if node.role is NodeRole.FOLLOWER)
    others = [node for node in nodes if node is not victim]
    victim.crash(power=False)
    if life == "an earlier life":
        strange = folders.earlier_life(victim, network.rng, min(node.committed_index for node in others) - 5)
        victim.checkpoint = victim.log.end_index
    else:
        strange = folders.foreign(
            victim, network.rng, identified=life == "another group", checkpoint=True, more=40
        )  # fmt: skip
    checks.reached.pop(victim.name, None)
    before = list(victim.log.raw)
    victim.restart()
    pass_time(3000)
    assert FOLLOWS_NOT in victim.member.halted
    assert victim.log.raw == before
    # The others elect each other, and never the member with the replaced folder.
    leader = next(node for node in others if node.role is NodeRole.LEADER)
    leader.crash(power=False)
    pass_time(2000)
    assert all(node.role is not NodeRole.LEADER for node in nodes if node.alive)
    leader.restart()
    pass_time(3000)
    acknowledged = len(checks.answered)
    pass_time(1000)
    assert len(checks.answered) > acknowledged
    assert not any(strange & set(node.log.raw) for node in others)
    # The remedy: an empty folder.
    victim.crash(power=False)
    folders.wiped(victim)
    checks.reached.pop(victim.name, None)
    victim.restart()
    network.run_until(network.now_ms + 20_000)
    assert folders.is_joined(victim, checks.agreed, strange)
