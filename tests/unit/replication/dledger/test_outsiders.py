"""A node does not lead while members of its group live that its own list does not name (docs/adr/0024)."""

from __future__ import annotations

from random import Random

import pytest
from group_checks import Checks
from group_network import Network
from member_desk import TIMINGS, Desk
from our_node import OurNode
from test_leading_entries import leader, took

from tianzhou.replication.dledger.membership.outsiders import MOST, Outsiders, may_be_disjoint, outside_ids
from tianzhou.replication.dledger.ready import NodeRole
from tianzhou.wire.bodies.dledger import HeartBeatRequest, PreVoteRequest, Request, TransferRequest, VoteRequest
from tianzhou.wire.codes import DLedgerResponseCode as Code

QUIET_MS = 2 * TIMINGS.leader_wait_ms
ALONE = {"group": "g", "self_id": "n0", "members": {"n0"}}


def beats(desk: Desk, sender: str, count: int = 3) -> None:
    """Send the heart-beats of a leader that has this node in its list, one every two seconds."""
    for _ in range(count):
        desk.ask(HeartBeatRequest(leader_id=sender, local_id=sender, term=9))
        desk.after(2000)


def lone_leader() -> Desk:
    desk = Desk(size=1)
    desk.after(1000)
    assert desk.member.standing.role is NodeRole.LEADER
    return desk


def test_a_leader_that_is_alone_in_its_list_steps_down_when_another_member_speaks() -> None:
    desk = lone_leader()
    beats(desk, "n1", 2)
    assert desk.member.standing.role is NodeRole.LEADER
    beats(desk, "n1")
    assert desk.member.standing.role is NodeRole.CANDIDATE
    (line,) = desk.complaints
    assert "dLegerPeers of this node names n0, and members of the group that it does not name" in line
    assert "n1" in line
    assert desk.member.barred
    beats(desk, "n1")
    assert len(desk.complaints) == 1
    desk.after(QUIET_MS + 2000)
    assert desk.member.barred == ""
    assert desk.member.standing.role is NodeRole.LEADER


def test_one_forged_packet_or_many_at_once_take_no_leader_down() -> None:
    desk = lone_leader()
    for _ in range(50):
        desk.ask(VoteRequest(leader_id="n1", local_id="n1", term=99))
    desk.after(5000)
    assert desk.member.standing.role is NodeRole.LEADER


@pytest.mark.parametrize("request_", [PreVoteRequest, VoteRequest, HeartBeatRequest])
def test_requests_of_members_count_whatever_they_ask(request_: type[Request]) -> None:
    desk = lone_leader()
    for _ in range(3):
        desk.ask(request_(leader_id="n1", local_id="n1", term=9))  # type: ignore[arg-type]
        desk.after(2000)
    assert desk.member.standing.role is NodeRole.CANDIDATE


def test_a_leader_of_three_stays_beside_one_outsider_and_steps_down_beside_two() -> None:
    desk = leader(1)
    took(desk)
    for _ in range(4):
        desk.ask(VoteRequest(leader_id="n7", local_id="n7", term=9))
        desk.after(1000)
        desk.beats()
    assert desk.member.standing.role is NodeRole.LEADER
    for _ in range(5):
        for sender in ("n7", "n8"):
            desk.ask(VoteRequest(leader_id=sender, local_id=sender, term=9))
        desk.after(1000)
        desk.beats()
    assert desk.member.standing.role is not NodeRole.LEADER
    assert "n7, n8" in desk.complaints[-1]


@pytest.mark.parametrize(
    ("members", "outsiders", "disjoint"),
    [
        (1, 0, False), (1, 1, True), (1, 2, True), (2, 1, False), (2, 2, False), (2, 3, True),
        (3, 0, False), (3, 1, False), (3, 2, True), (5, 1, False), (5, 2, True),
    ],
)  # fmt: skip
def test_majorities_that_may_have_no_member_in_common(members: int, outsiders: int, disjoint: bool) -> None:
    assert may_be_disjoint(members, outsiders, leads=False) is disjoint
    assert may_be_disjoint(members, outsiders, leads=True) is bool(outsiders)


@pytest.mark.parametrize(
    ("request_", "ids"),
    [
        (VoteRequest(group="g", remote_id="n0", local_id="n1"), {"n1"}),
        (VoteRequest(group="g", remote_id="n2", local_id="n1"), {"n1", "n2"}),  # others know this node as n2
        (HeartBeatRequest(group="g", remote_id="n0", leader_id="n1"), {"n1"}),
        (HeartBeatRequest(group="h", remote_id="n0", local_id="n1"), set()),
        (HeartBeatRequest(group="g", remote_id="n0", local_id="n0"), set()),
        (HeartBeatRequest(group="g", remote_id="n0"), set()),
        (TransferRequest(group="g", remote_id="n0", local_id="n1"), set()),
    ],
)
def test_ids_that_a_request_names_and_the_list_does_not_have(request_: Request, ids: set[str]) -> None:
    assert outside_ids(request_, **ALONE) == ids  # type: ignore[arg-type]
    assert outside_ids(request_, is_foreign=True, **ALONE) == set()  # type: ignore[arg-type]


def test_names_of_strangers_are_bounded() -> None:
    outsiders = Outsiders(span_ms=10, quiet_ms=1000)
    for number in range(10_000):
        outsiders.heard([f"x{number}"], number, leads=False)
    for now_ms in (20_000, 20_010, 20_020):
        for number in range(2 * MOST):
            outsiders.heard([f"y{number}"], now_ms, leads=False)
    assert outsiders.present(20_020) == {}


def test_what_the_shell_says_bars_a_node_too() -> None:
    desk = Desk(size=1)
    desk.member.bar("another master is alive", desk.now_ms)
    desk.after(10_000)
    assert desk.member.standing.role is NodeRole.CANDIDATE
    assert desk.complaints == ["n0 does not lead: another master is alive"]
    desk.member.bar("", desk.now_ms)
    desk.after(1000)
    assert desk.member.standing.role is NodeRole.LEADER
    desk.member.bar("another master is alive", desk.now_ms)
    desk.carry_out()
    assert desk.member.standing.role is NodeRole.CANDIDATE
    assert desk.member.refusal() is Code.NOT_LEADER


@pytest.mark.parametrize("seed", range(4))
def test_a_member_that_restarts_alone_in_its_list_leads_beside_nobody_for_long(seed: int) -> None:
    """Two of three have a leader, and speak to the third; that one ends to lead, and its entries are few."""
    rng = Random(seed)
    network = Network(rng)
    names = ["n0", "n1", "n2"]
    checks, lone_checks = Checks(), Checks()
    others = [OurNode(name, names, network, checks, TIMINGS) for name in names[1:]]
    lone = OurNode("n0", ["n0"], network, lone_checks, TIMINGS)
    network.run_until(30_000)
    assert lone.role is not NodeRole.LEADER
    assert lone.member.barred
    assert sum(node.role is NodeRole.LEADER for node in others) == 1
