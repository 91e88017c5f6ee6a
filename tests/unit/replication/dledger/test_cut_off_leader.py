"""The time to the next election after our leader loses the connection to our node and an Apache node."""

from __future__ import annotations

from random import Random

import pytest
from apache_node import ApacheNode
from group_checks import Checks
from group_network import Network
from our_node import OurNode

from tianzhou.replication.dledger.ready import Role
from tianzhou.replication.dledger.timings import Timings

NAMES = ["n0", "n1", "n2"]
MOST_MS = 12_000
"""Maximum ms to a new leader: six seconds to miss the leader, at most three for a round of votes, and an election."""


def role(node: OurNode | ApacheNode) -> Role:
    return node.role if isinstance(node, ApacheNode) else node.member.standing.role


def until_next_leader_ms(seed: int) -> int:
    """Return the milliseconds from the cut to the next leader, with DLedger's own timeouts."""
    rng, checks = Random(seed), Checks()
    network, timings = Network(rng), Timings()
    ours = [OurNode(name, NAMES, network, checks, timings) for name in NAMES[:2]]
    apache = ApacheNode(NAMES[2], NAMES, network, checks, timings)
    nodes = [*ours, apache]
    apache.crash(power=False)  # our node must lead
    network.at(6000, apache.restart)
    sent = 0

    def send() -> None:
        nonlocal sent
        for node in nodes:
            if node.alive and role(node) is Role.LEADER:
                sent += 1
                node.propose(b"%d" % sent)
        network.at(20, send)

    network.at(1, send)
    network.run_until(12_000 + rng.randint(0, 7000))
    (leader,) = (node for node in nodes if role(node) is Role.LEADER)
    others = [node for node in nodes if node is not leader]
    for node in others:
        network.cuts |= {(leader.name, node.name), (node.name, leader.name)}
    cut_ms = network.now_ms
    while not any(role(node) is Role.LEADER for node in others):
        assert network.now_ms - cut_ms < 60_000
        network.run_until(network.now_ms + 20)
    return network.now_ms - cut_ms


@pytest.mark.parametrize("seed", range(30, 50))
def test_the_two_others_have_a_leader_soon_whosever_log_is_longer(seed: int) -> None:
    assert until_next_leader_ms(seed) <= MOST_MS
