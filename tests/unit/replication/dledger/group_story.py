"""A random history of a group: messages, crashes, cuts, and invariants checked throughout and at the end."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import folders
from apache_node import ApacheNode
from group_checks import Broken, Checks
from group_network import Network
from memory_log import MemoryLog
from our_node import OurNode

from tianzhou.replication.dledger.node import NO_DOUBT
from tianzhou.replication.dledger.ready import NodeRole
from tianzhou.replication.dledger.timings import Timings

TIMINGS = Timings(
    heartbeat_interval_ms=100, max_heartbeat_leak=3, min_vote_interval_ms=50, max_vote_interval_ms=250,
    vote_wait_ms=200, request_limit_ms=300, max_push_time_out_ms=150, commit_interval_ms=100, ask_again_ms=10,
    leadership_transfer_wait_timeout_ms=200, stretch_bytes=400, max_push_bytes=2000, max_pushes=20,
    waiting_pushes=10, waiting_push_bytes=2000, peer_push_throttle_bytes=3000, peer_push_quota_bytes=20_000,
    throttled_entries=20, max_leadership_transfer_wait_index=50,
)  # fmt: skip
"""Short times, and limits that the history reaches."""

KINDS = ((3, 0), (3, 1), (3, 0), (5, 0), (3, 0), (3, 2), (3, 0), (5, 2))
"""Sizes of groups, and their numbers of Apache nodes."""


@dataclass
class Figures:
    """Counters of events, so that a test detects a history without events."""

    committed: int = 0
    acknowledged: int = 0
    elections: int = 0
    crashes: int = 0
    complaints: int = 0
    folders: int = 0
    halted: int = 0


def story(seed: int) -> Story:
    """Return a story whose kind depends on the seed."""
    size, apache = KINDS[seed % len(KINDS)]
    row = seed // len(KINDS)
    return Story(seed, size, apache=apache, hasty=row % 4 == 3, torn=row % 3 == 1, replaces=row % 2 == 1)


class Story:
    """One group with one seed.

    Args:
        seed: seed of the random generator.
        size: nodes of the group.
        apache: number of Apache nodes.
        sync: whether our nodes acknowledge only entries on the disk; None for a random choice.
        power: whether nodes may lose power in addition to crashes.
        hasty: whether new leaders often crash before all nodes have heard of their election.
        torn: whether a single node loses its power, with its last entries half written.
        replaces: whether nodes restart with older, empty and foreign folders, one node at a time.
    """

    def __init__(
        self, seed: int, size: int = 3, *, apache: int = 0, sync: bool | None = None, power: bool = True,
        hasty: bool = False, torn: bool = False, replaces: bool = False, timings: Timings = TIMINGS,
    ) -> None:  # fmt: skip
        self.rng = Random(seed)
        self.network = Network(self.rng)
        self.checks = Checks()
        self.figures = Figures()
        self.power = power
        names = [f"n{n}" for n in range(size)]
        strangers = set(self.rng.sample(names, apache))
        sync = self.rng.random() < 0.5 and not torn if sync is None else sync
        self.nodes: list[OurNode | ApacheNode] = [
            ApacheNode(name, names, self.network, self.checks, timings)
            if name in strangers
            else OurNode(name, names, self.network, self.checks, timings, sync=sync)
            for name in names
        ]
        self._torn = next(node for node in self.nodes if isinstance(node, OurNode)) if torn else None
        if self._torn is not None:
            self._torn.tears = True
        self._body = 0
        self._replaces = replaces
        self._foreign: set[bytes] = set()
        self._majority_lost = False
        if hasty:
            self.checks.elected = self._elected
        self.checks.survivors = self._survivors

    def _survivors(self) -> list[MemoryLog] | None:
        lost = sum(isinstance(node, OurNode) and (node.was_impaired or node.replaced) for node in self.nodes)
        if lost <= (len(self.nodes) - 1) // 2:
            return None
        self._majority_lost = True
        # A folder with a diverged log may then win the election: only its log is certain to remain.
        strange = [node for node in self.nodes if isinstance(node, OurNode) and node.replaced]
        return [node.log for node in strange or self.nodes]

    def _elected(self, name: str) -> None:
        rng, network = self.rng, self.network
        node = next(node for node in self.nodes if node.name == name)
        if rng.random() < 0.4:
            return
        life = node.life
        for other in rng.sample(self.nodes, len(self.nodes) // 2):
            network.cuts.add((name, other.name))
        network.at(
            rng.randint(0, 30),
            lambda: node.life == life and node.alive and node.crash(power=self._may_lose_power(node)),
        )
        network.at(rng.randint(31, 90), lambda: node.alive or node.restart())
        network.at(rng.randint(31, 90), network.cuts.clear)

    def run(self, steps: int = 150) -> Figures:
        """Run random steps, heal all faults, and check that the group makes progress."""
        for _ in range(steps):
            self._step()
            self.network.run_until(self.network.now_ms + self.rng.choice((5, 20, 50, 150, 400)))
        self.heal()
        self._goes_on()
        figures = self.figures
        figures.committed = len(self.checks.agreed)
        figures.acknowledged = len(self.checks.answered)
        figures.elections = self.checks.elections
        figures.complaints = sum(len(node.complaints) for node in self.nodes)
        return figures

    def propose(self, count: int) -> int:
        """Send messages to every node; return the number of accepted ones."""
        accepted = 0
        for node in self.nodes:
            for _ in range(count):
                self._body += 1
                body = b"%d:" % self._body + bytes(self.rng.randint(0, 150))
                accepted += node.propose(body)
        return accepted

    def _step(self) -> None:
        rng, network = self.rng, self.network
        what = rng.random()
        node = rng.choice(self.nodes)
        self._note_joined()
        if self._replaces and what < 0.12:
            self._replace_folder()
        elif what < 0.45:
            self.propose(rng.choice((1, 1, 3, 20)))
        elif what < 0.58:
            down = [other for other in self.nodes if not other.alive]
            if down and rng.random() < 0.7:
                rng.choice(down).restart()
            else:
                self._crash(node)
        elif what < 0.66:
            other = rng.choice(self.nodes)
            network.cuts.add((node.name, other.name))
        elif what < 0.72:
            for other in self.nodes:
                if other is not node:
                    network.cuts |= {(node.name, other.name), (other.name, node.name)}
        elif what < 0.84:
            network.cuts.clear()
        elif what < 0.89:
            network.lossy = rng.choice((0.0, 0.0, 0.02, 0.2))
            network.slowest_ms = rng.choice((2, 20, 20, 120))
        elif what < 0.93:
            # A node whose log begins after the point of divergence cannot compare a diverged log with its own.
            if not any(isinstance(other, OurNode) and other.replaced for other in self.nodes):
                node.expire(rng.randint(1, 30))
        elif what < 0.96:
            node.hand_over(rng.choice(self.nodes).name)
        elif isinstance(node, OurNode) and self._may_lose_power(node):
            node.fragile = rng.choice((0.0, 0.0, 0.002, 0.02))
        self.checks.logs({node.name: node.log for node in self.nodes if not self._in_doubt(node)})

    def _may_lose_power(self, node: OurNode | ApacheNode) -> bool:
        # A node with half-written last entries and one with a lost folder at the same time are a majority.
        replaced = any(isinstance(other, OurNode) and other.replaced for other in self.nodes)
        return self.power and (self._torn is None or (self._torn is node and not replaced))

    def _in_doubt(self, node: OurNode | ApacheNode) -> bool:
        return isinstance(node, OurNode) and (node.doubted_from < NO_DOUBT or node.replaced)

    # Folders

    def _note_joined(self) -> None:
        if self._majority_lost:
            # When a majority has lost entries, a diverged log may be the only one left.
            self._foreign -= set(self.checks.agreed.values())
        for node in self.nodes:
            if isinstance(node, OurNode):
                ids = {one.keep.group_id for one in self.nodes if isinstance(one, OurNode) and one is not node}
                known = node.keep.group_id in ids or not ids
                joined = known and folders.is_joined(node, self.checks.agreed, self._foreign)
                node.replaced = node.replaced and not joined
                if node.alive and node.member.halted and not node.replaced:
                    raise Broken(f"{node.name} follows no further, and its folder is its own: {node.member.halted}")

    def _replace_folder(self) -> None:
        """Restart a node with another folder, when the others have and know all committed entries."""
        rng, ours = self.rng, [node for node in self.nodes if isinstance(node, OurNode)]
        if any(node.replaced or node.impaired or node.was_impaired for node in ours) or not self._is_settled():
            return
        node, network = rng.choice(ours), self.network
        others = [other for other in self.nodes if other is not node]
        self.figures.folders += 1
        if self._torn is not None:
            self._torn.fragile = 0.0
        if node.alive:
            node.crash(power=False)
        voted = node.hard_state
        kind = rng.choice(("older", "empty", "foreign", "foreign", "earlier life"))
        # Apache's nodes vote for a node with an equally long log, whatever its contents.
        mixed = len(ours) < len(self.nodes)
        if kind == "older":
            folders.older(node, rng)
        elif kind == "empty":
            folders.wiped(node)
        elif kind == "foreign":
            self._foreign |= folders.foreign(
                node, rng, identified=rng.random() < 0.5, checkpoint=rng.random() < 0.7,
                more=-rng.randint(1, 20) if mixed else rng.choice((-2, 0, rng.randint(5, 40))),
            )  # fmt: skip
        elif not mixed:
            committed = min(other.committed_index for other in others)
            for other in others:
                # Only a node with the commit index can refuse a longer log of the same identity.
                assert isinstance(other, OurNode)
                other.checkpoint = max(other.checkpoint, committed)
            self._foreign |= folders.earlier_life(
                node, rng, committed, max(other.log.begin_index for other in others)
            )  # fmt: skip
        if mixed:
            # Apache's nodes become candidates in a term in which they followed, and count a node's second vote.
            node.hard_state = voted
        node.reached = node.checkpoint
        self.checks.reached.pop(node.name, None)
        life = node.life
        network.at(rng.choice((1, 50, 1000)), lambda: node.alive or node.life != life or node.restart())

    def _is_settled(self) -> bool:
        """Whether all nodes follow one leader in one term, and know all committed entries."""
        last, leaders = max(self.checks.agreed, default=-1), {node.leader for node in self.nodes}
        return (
            last >= 0
            and all(node.alive and node.committed_index >= last for node in self.nodes)
            and len(leaders) == 1
            and None not in leaders
            and len({node.current_term for node in self.nodes}) == 1
            and all(
                not isinstance(node, OurNode) or (node.keep.group_id and not node.keep.joining) for node in self.nodes
            )
        )

    def _obey(self) -> None:
        """Act like an operator on the nodes' complaints: replace the folder of a halted node."""
        lines = [line for node in self.nodes for line in node.complaints]
        for node in self.nodes:
            if not isinstance(node, OurNode) or not node.alive:
                continue
            named = (f"{node.name} gets no vote", f"and {node.name} has the identity")
            refused = bool(self._foreign & set(node.log.raw)) and any(one in line for line in lines for one in named)
            if node.member.halted or refused:
                self.figures.halted += 1
                node.crash(power=False)
                folders.wiped(node)
                node.reached = -1
                self.checks.reached.pop(node.name, None)
                node.restart()

    def _crash(self, node: OurNode | ApacheNode) -> None:
        rng = self.rng
        # New leaders and candidates have the most state to lose.
        standing = [other for other in self.nodes if other.alive and other.role is not NodeRole.FOLLOWER]
        if standing and rng.random() < 0.5:
            node = rng.choice(standing)
        if not node.alive:
            return
        self.figures.crashes += 1
        node.crash(power=self._may_lose_power(node) and rng.random() < 0.5)
        if rng.random() < 0.4:
            life = node.life
            self.network.at(rng.randint(1, 60), lambda: node.alive or node.life != life or node.restart())

    def heal(self) -> None:
        """End all faults."""
        network = self.network
        self.checks.elected = lambda name: None
        network.run_until(network.now_ms + 100)  # scheduled events happen first
        network.cuts.clear()
        network.lossy = 0.0
        network.slowest_ms = 20
        for node in self.nodes:
            if isinstance(node, OurNode):
                node.fragile = 0.0
            if not node.alive:
                node.restart()

    def _goes_on(self) -> None:
        network = self.network
        lost = sum(isinstance(node, OurNode) and node.impaired for node in self.nodes)
        if lost > (len(self.nodes) - 1) // 2 and any(isinstance(node, ApacheNode) for node in self.nodes):
            return  # too many lost entries, and Apache's nodes do not vote for all: needs an operator
        # Apache's nodes compete in elections for many terms.
        until_ms = network.now_ms + (20_000 if all(isinstance(node, OurNode) for node in self.nodes) else 60_000)
        end = None
        while network.now_ms < until_ms:
            network.run_until(network.now_ms + 1000)
            self._note_joined()
            self._obey()
            if end is not None and self._all_have(end):
                break
            if self.propose(1):
                end = max(node.log.end_index for node in self.nodes)
        else:
            standings = [(node.name, node.described()) for node in self.nodes]
            raise Broken(f"a healed group does not go on: {standings}")
        for node in self.nodes:
            if self._foreign & set(node.log.raw):
                raise Broken(f"{node.name} has taken entries of another group")
            for index, body in self.checks.answered.items() if not self._stuck(node) else ():
                log = node.log
                if index >= log.begin_index and not log.entry(index).endswith(body):
                    raise Broken(f"{node.name} does not have entry {index}, which was acknowledged")

    def _all_have(self, end: int) -> bool:
        nodes = [node for node in self.nodes if not self._stuck(node)]
        ends = {node.log.end_index for node in nodes}
        return (
            len(ends) == 1
            and min(ends) >= end
            and len({node.log.raw[-1] for node in nodes}) == 1
            and all(node.committed_index >= end for node in nodes)
            and sum(node.role is NodeRole.LEADER for node in nodes) == 1
        )

    def _stuck(self, node: OurNode | ApacheNode) -> bool:
        """Whether an Apache node is in a later term than its leader, also an Apache node, which ignores the later term.

        Its log is shorter than the others', so it gets no vote. The leader still gets replies of the others and stays
        in its term.
        """
        led = any(isinstance(other, ApacheNode) and other.role is NodeRole.LEADER for other in self.nodes)
        return led and isinstance(node, ApacheNode) and node.role is NodeRole.CANDIDATE
