"""A leader's view of one follower's log, for both protocols of followers."""

from __future__ import annotations

from typing import Protocol

from tianzhou.replication.dledger.node import MOST_TERM_STEP, Node
from tianzhou.replication.dledger.throttle import Throttle


class Leader(Protocol):
    """The leader's part as its followers' progress uses it.

    Attributes:
        ended: whether the leadership is over; replies no longer count then.
        opening: index of the first entry of its term.
    """

    ended: bool
    opening: int

    def advance(self) -> None:
        """Handle a follower whose log has grown."""

    def heard(self, peer: str, sent_ms: int) -> None:
        """Note that a follower has answered, in this term, a request sent at a time."""

    def is_foreign(self, peer: str) -> None:
        """Switch to pushes for a follower that does not support stretches."""

    def beat(self, peer: str) -> None:
        """Send a heartbeat now."""


class Progress:
    """One follower, as its leader sees it.

    Args:
        node: the leader.
        leader: the leader's part.
        peer: id of the follower.

    Attributes:
        peer: id of the follower.
        match: index up to which the follower has the leader's log.
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
        """Pause after a failure, ms."""
        return 10 * self._node.timings.ask_again_ms

    def _may_send(self, index: int) -> bool:
        """Whether the throttle allows an entry."""
        log = self._node.log
        behind = log.end_position - log.position_of(index)
        return self._throttle.allows(self._node.now_ms, behind, log.end_index - index)

    def _lost(self, end_index: int) -> None:
        """Note the end of the follower's log, which may be before entries that it had acknowledged."""
        self.match = max(min(self.match, end_index), -1)

    def _expired(self, term: int) -> None:
        """Step down for a follower in a later term."""
        if self._node.term < term <= self._node.term + MOST_TERM_STEP:
            self._node.end_term(term)

    def pump(self) -> None:
        """Send entries, as far as the limits allow."""
        raise NotImplementedError

    def beaten(self, number: int) -> None:
        """Handle the reply to a heartbeat; the follower is in the leader's term.

        Args:
            number: of the request.
        """
