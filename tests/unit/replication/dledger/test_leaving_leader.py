"""A leader that must step down transfers its leadership, also to Apache's nodes (broker.md §19.7)."""

from __future__ import annotations

from random import Random

import pytest
from loaded_group import LoadedGroup
from member_desk import Desk
from our_node import OurNode
from test_leading_entries import leader, took

from seeds import seeds
from tianzhou.replication.dledger.ready import NodeRole
from tianzhou.wire.bodies.dledger import (
    PreVoteRequest,
    StretchRequest,
    TransferRequest,
    TransferResponse,
    VoteRequest,
)
from tianzhou.wire.codes import DLedgerResponseCode as Code


def unfit(desk: Desk, why: str = "this broker is being stopped") -> None:
    desk.member.unfit(why, desk.now_ms)
    desk.carry_out()


def orders(desk: Desk) -> list[str]:
    """Return the ids of the nodes that were asked to take the leadership."""
    return [send.peer for send in desk.sent(TransferRequest)]


def test_the_most_advanced_follower_is_asked_once_everything_is_committed() -> None:
    desk = leader(1)
    took(desk, "n2")
    desk.log.add(desk.state.term, b"more")
    desk.member.appended(desk.now_ms)
    desk.carry_out()
    unfit(desk)
    assert desk.member.refusal() is Code.LEADER_TRANSFERRING
    assert orders(desk) == []
    took(desk, "n2")
    assert orders(desk) == ["n2"]
    (order,) = desk.sent(TransferRequest)
    assert isinstance(order.request, TransferRequest)
    assert order.request.take_leadership_ledger_index == 2


def test_a_commit_that_does_not_come_delays_the_request_by_half_a_second_only() -> None:
    desk = leader(1)
    unfit(desk)
    assert orders(desk) == []
    desk.after(510)
    assert len(orders(desk)) == 1


def test_a_follower_that_does_not_take_the_lead_is_asked_behind_the_other_one() -> None:
    desk = leader(1)
    took(desk, "n1")
    unfit(desk)
    assert orders(desk) == ["n1"]
    for _ in range(5):
        desk.reply(desk.sent(TransferRequest)[-1], TransferResponse(code=Code.TAKE_LEADERSHIP_FAILED))
        assert desk.member.can_hand_over
        desk.after(100)
    assert orders(desk) == ["n1", "n2", "n1", "n2", "n1", "n2"]
    desk.reply(desk.sent(TransferRequest)[-1], TransferResponse(code=Code.TAKE_LEADERSHIP_FAILED))
    assert not desk.member.can_hand_over


def test_without_a_follower_that_answers_a_leader_goes_on() -> None:
    desk = Desk(size=1)
    desk.after(3000)
    unfit(desk)
    assert desk.member.standing.role is NodeRole.LEADER
    assert desk.member.refusal() is None
    assert not desk.member.can_hand_over


def test_a_leader_that_may_lead_again_takes_entries_again() -> None:
    desk = leader(1)
    took(desk)
    unfit(desk)
    desk.reply(desk.sent(TransferRequest)[-1], TransferResponse(code=Code.TAKE_LEADERSHIP_FAILED))
    unfit(desk, "")
    desk.after(200)
    assert len(orders(desk)) == 1
    assert desk.member.refusal() is None


def test_who_shall_not_lead_neither_stands_for_election_nor_takes_leadership_over() -> None:
    desk = Desk()
    desk.beat("n1", 1)
    unfit(desk)
    order = TransferRequest(term=1, transfer_id="n1", transferee_id="n0", take_leadership_ledger_index=-1)
    assert desk.ask(order).code == Code.TAKE_LEADERSHIP_FAILED
    desk.after(12_000)
    assert not desk.sent(PreVoteRequest)
    assert not desk.sent(VoteRequest)
    unfit(desk, "")
    desk.after(2000)
    assert desk.sent(PreVoteRequest)


def test_who_shall_not_lead_stands_when_no_other_node_was_elected_for_long() -> None:
    desk = Desk()
    unfit(desk, "its disk refuses writes")
    desk.after(17_000)
    assert not desk.sent(PreVoteRequest)
    desk.after(3000)
    assert desk.sent(PreVoteRequest)


def test_a_leader_whom_nobody_replaces_takes_entries_between_its_trials() -> None:
    desk = leader(1)
    took(desk)
    unfit(desk)
    for _ in range(6):
        desk.reply(desk.sent(TransferRequest)[-1], TransferResponse(code=Code.TAKE_LEADERSHIP_FAILED))
        desk.after(60)
    assert not desk.member.can_hand_over
    assert desk.member.refusal() is None
    assert len(orders(desk)) == 6
    desk.after(1000)
    assert len(orders(desk)) == 7


def test_entries_still_go_to_followers_while_the_lead_is_handed_over() -> None:
    desk = leader(1)
    unfit(desk)
    assert desk.sent(StretchRequest, "n1")


@pytest.mark.parametrize("seed", seeds(2, 6))
@pytest.mark.parametrize("successor", ["ours", "ours-or-apaches", "apaches"])
def test_another_node_leads_within_a_second_under_load(seed: int, successor: str) -> None:
    """With DLedger's own times, in groups of any kind; no acknowledged entry is lost."""
    group = LoadedGroup(Random(seed), apache=successor != "ours", slowest_ms=10)
    group.network.run_until(12_000)
    old = group.leader()
    assert isinstance(old, OurNode)
    if successor == "apaches":
        next(node for node in group.ours if node is not old).crash(power=False)
        group.network.run_until(15_000)  # the leader has noticed it
    old.member.unfit("stops", group.network.now_ms)
    old.tick()
    assert group.next_leader_ms(old, limit_ms=10_000) <= 1000
    group.check_logs()
