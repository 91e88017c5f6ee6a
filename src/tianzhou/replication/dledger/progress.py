"""What a leader knows of one follower's log, whatever language the follower speaks."""

from __future__ import annotations

from typing import Protocol

from tianzhou.replication.dledger.node import MOST_TERM_STEP, Node
from tianzhou.replication.dledger.throttle import Throttle


class Leader(Protocol):
    """What progress needs of the leader's part.

    Attributes:
        ended: whether it leads no more; answers count no more then.
        opening: index of the first entry of its term.
    """

    ended: bool
    opening: int

    def advance(self) -> None:
        """A follower has more of the log than before."""

    def heard(self, peer: str, sent_ms: int) -> None:
        """A follower answered in this term to what was sent at a time."""

    def is_foreign(self, peer: str) -> None:
        """A follower does not take stretches."""

    def beat(self, peer: str) -> None:
        """Send a heart-beat now."""


class Progress:
    """One follower, as its leader sees it.

    Args:
        node: the leader.
        leader: the leader's part.
        peer: id of the follower.

    Attributes:
        peer: id of the follower.
        match: the follower has the leader's log up to here.
    """

    def __init__(self, node: Node, leader: Leader, peer: str) -> None:
        self._node = node
        self._leader = leader
        self.peer = peer
        self.match = -1
        self._throttle = Throttle(node.timings)
        self._retry_ms = 0
        self._said_ms = node.now_ms

    @property
    def _pause_ms(self) -> int:
        """So long to wait behind something that failed."""
        return 10 * self._node.timings.ask_again_ms

    def _may_send(self, index: int) -> bool:
        """Whether the throttle lets an entry go."""
        log = self._node.log
        behind = log.end_position - log.position_of(index)
        return self._throttle.allows(self._node.now_ms, behind, log.end_index - index)

    def _lost(self, end_index: int) -> None:
        """The follower's log ends with an entry now, maybe before what it had said that it has."""
        self.match = max(min(self.match, end_index), -1)

    def _expired(self, term: int) -> None:
        """The follower is in a later term."""
        if self._node.term < term <= self._node.term + MOST_TERM_STEP:
            self._node.end_term(term)

    def pump(self) -> None:
        """Send what can be sent."""
        raise NotImplementedError

    def beaten(self, number: int) -> None:
        """A heart-beat was answered; the follower is in the leader's term.

        Args:
            number: of the request.
        """
