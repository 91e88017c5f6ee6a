"""A simulated group of two nodes of ours and a third one, under load, with DLedger's own timeouts."""

from __future__ import annotations

from random import Random

from apache_node import ApacheNode
from group_checks import Checks
from group_network import Network
from our_node import OurNode

from tianzhou.replication.dledger.ready import NodeRole
from tianzhou.replication.dledger.timings import Timings

NAMES = ["n0", "n1", "n2"]
SEND_EVERY_MS = 20
APACHE_STARTS_MS = 6_000
"""Apache's node starts late, so that a node of ours leads first."""


class LoadedGroup:
    """A group whose leader gets an entry every `SEND_EVERY_MS`.

    Args:
        rng: decides the times of the network.
        apache: whether the third node is one of Apache's.
        slowest_ms: maximum ms of a packet; None for the network's default.

    Attributes:
        network: connects the nodes.
        ours: the first two nodes.
        nodes: all nodes.
    """

    def __init__(self, rng: Random, *, apache: bool = True, slowest_ms: int | None = None) -> None:
        self._checks, timings = Checks(), Timings()
        self.network = network = Network(rng)
        if slowest_ms is not None:
            network.slowest_ms = slowest_ms
        self.ours = [OurNode(name, NAMES, network, self._checks, timings) for name in NAMES[:2]]
        last: OurNode | ApacheNode
        if apache:
            last = ApacheNode(NAMES[2], NAMES, network, self._checks, timings)
            last.crash(power=False)
            network.at(APACHE_STARTS_MS, last.restart)
        else:
            last = OurNode(NAMES[2], NAMES, network, self._checks, timings)
        self.nodes: list[OurNode | ApacheNode] = [*self.ours, last]
        self._sent = 0
        network.at(1, self._send)

    def _send(self) -> None:
        for node in self.nodes:
            if node.alive and leads(node):
                self._sent += 1
                node.propose(b"%d" % self._sent)
        self.network.at(SEND_EVERY_MS, self._send)

    def leader(self) -> OurNode | ApacheNode:
        """Return the only leader."""
        (found,) = (node for node in self.nodes if leads(node))
        return found

    def next_leader_ms(self, old: OurNode | ApacheNode, limit_ms: int) -> int:
        """Run the group until another node than `old` leads, and return the duration in ms.

        Args:
            old: the former leader.
            limit_ms: maximum ms to wait.
        """
        began_ms = self.network.now_ms
        while not any(leads(node) for node in self.nodes if node is not old):
            assert self.network.now_ms - began_ms < limit_ms
            self.network.run_until(self.network.now_ms + 10)
        return self.network.now_ms - began_ms

    def check_logs(self) -> None:
        """Fail when an acknowledged entry is lost."""
        self._checks.logs({node.name: node.log for node in self.nodes})


def leads(node: OurNode | ApacheNode) -> bool:
    """Whether a node is a leader."""
    role = node.role if isinstance(node, ApacheNode) else node.member.standing.role
    return role is NodeRole.LEADER
