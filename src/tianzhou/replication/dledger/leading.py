"""A leader's state: heartbeats, the progress of its followers, and commits (broker.md §19.4, §19.6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tianzhou.replication.dledger.asks import Reply
from tianzhou.replication.dledger.node import MOST_TERM_STEP, Node
from tianzhou.replication.dledger.progress import Progress
from tianzhou.replication.dledger.push_progress import PushProgress
from tianzhou.replication.dledger.stretch_progress import StretchProgress
from tianzhou.wire.bodies.dledger import HeartBeatRequest, HeartBeatResponse
from tianzhou.wire.codes import DLedgerResponseCode as Code

STOPPED: Final = (Code.UNKNOWN_GROUP, Code.ILLEGAL_MEMBER_STATE)
"""Response codes of a node that follows no further."""


@dataclass(slots=True)
class _Follower:
    """A leader's view of another node.

    Attributes:
        heard_ms: send time of the last request that the node answered as a follower of this leader.
        beat_ms: when its next heartbeat is due.
        live: whether it answered the last heartbeat and follows.
        progress: its part of the log; None until it has answered the first heartbeat.
        codes: response codes with a complaint already.
    """

    heard_ms: int
    beat_ms: int
    live: bool = False
    progress: Progress | None = None
    codes: set[int] = field(default_factory=set)


class Leading:
    """The leadership of one term.

    Args:
        node: the leader.
        elected_ms: when the votes were requested.

    Attributes:
        ended: whether it is over.
        opening: index of the first entry of the term.
        transferee: id of the node that shall lead next, while a transfer runs.
        handing_over: whether appends are refused, so that the next leader can reach the end of the log.
    """

    def __init__(self, node: Node, elected_ms: int) -> None:
        self._node = node
        self.ended = False
        self.opening = node.log.end_index + 1
        self.transferee: str | None = None
        self.handing_over = False
        self._followers = {peer: _Follower(elected_ms, node.now_ms) for peer in node.others}

    @property
    def quorum_ms(self) -> int:
        """Send time of the oldest among the last heartbeats that a quorum has answered."""
        heard = sorted((follower.heard_ms for follower in self._followers.values()), reverse=True)
        needed = self._node.quorum - 1
        return heard[needed - 1] if needed else self._node.now_ms

    @property
    def in_time(self) -> bool:
        """Whether a quorum was heard so recently that its followers cannot have elected another leader."""
        return self._node.now_ms - self.quorum_ms < self._node.timings.leader_wait_ms

    @property
    def serving(self) -> bool:
        """Whether it may answer for the group."""
        return self._node.committed_index >= self.opening and self.in_time

    def lag(self, peer: str) -> int | None:
        """Return how many entries a follower lacks; None when it does not answer."""
        follower = self._followers[peer]
        if not follower.live or follower.progress is None:
            return None
        return self._node.log.end_index - follower.progress.match

    @property
    def live(self) -> list[tuple[int, str]]:
        """Live followers, as the number of entries that each lacks and its id; the most advanced one first."""
        return sorted((lag, peer) for peer in self._followers if (lag := self.lag(peer)) is not None)

    def tick(self) -> None:
        """Send due heartbeats and entries, or step down when too few nodes have answered."""
        node = self._node
        if not self.in_time:
            node.complain(
                f"this node leads the group {node.group} in term {node.term} no more: for "
                f"{node.timings.leader_wait_ms} ms too few nodes have answered"
            )
            node.end_term(node.term)
            return
        for peer, follower in self._followers.items():
            if node.now_ms >= follower.beat_ms:
                self.beat(peer)
        self.pump()

    def pump(self) -> None:
        """Send entries to all followers, as far as the limits allow."""
        for follower in self._followers.values():
            if follower.progress is not None and not self.ended:
                follower.progress.pump()

    def advance(self) -> None:
        """Commit the entries that a quorum has; entries of older terms only together with a later one of this term."""
        node = self._node
        marks = [follower.progress.match if follower.progress else -1 for follower in self._followers.values()]
        marks.append(node.stored_index)
        marks.sort(reverse=True)
        index = marks[node.quorum - 1]
        if index > node.committed_index and index >= self.opening:
            node.commit(index)

    def beat(self, peer: str) -> None:
        """Send a heartbeat now."""
        node = self._node
        self._followers[peer].beat_ms = node.now_ms + node.timings.heartbeat_interval_ms
        then = partial(self._beaten, peer, node.asks.next_number, node.now_ms)
        node.ask(peer, HeartBeatRequest(), node.timings.request_limit_ms, then)

    def heard(self, peer: str, sent_ms: int) -> None:
        """Note that a follower has answered, in this term, a request sent at a time."""
        follower = self._followers[peer]
        follower.heard_ms = max(follower.heard_ms, sent_ms)

    def is_foreign(self, peer: str) -> None:
        """Switch to pushes for a follower that does not support stretches."""
        self._speaks(peer, PushProgress)

    def _speaks(self, peer: str, kind: type[PushProgress | StretchProgress]) -> None:
        follower = self._followers[peer]
        if not isinstance(follower.progress, kind):
            match = -1 if follower.progress is None else follower.progress.match
            follower.progress = kind(self._node, self, peer)
            follower.progress.match = match
        follower.progress.pump()

    def _beaten(self, peer: str, number: int, sent_ms: int, reply: Reply) -> None:
        if self.ended:
            return
        node, follower = self._node, self._followers[peer]
        follower.live = isinstance(reply, HeartBeatResponse) and reply.code not in STOPPED
        if not isinstance(reply, HeartBeatResponse):
            return
        if reply.code == Code.SUCCESS:
            self.heard(peer, sent_ms)
            if follower.progress is not None:
                follower.progress.beaten(number)
            self._speaks(peer, StretchProgress if reply.tianzhou else PushProgress)
        elif reply.code == Code.TERM_NOT_READY:
            follower.beat_ms = min(follower.beat_ms, node.now_ms + node.timings.ask_again_ms)
        elif reply.code == Code.EXPIRED_TERM:
            if node.term < reply.term <= node.term + MOST_TERM_STEP:
                node.end_term(reply.term)
        elif reply.code not in follower.codes:
            follower.codes.add(reply.code)
            if reply.code in STOPPED:
                self._stopped(peer, reply)
                return
            node.complain(
                f"{peer} answers {reply.code} to the heart-beats of this node, the leader of term {node.term}"
            )

    def _stopped(self, peer: str, reply: HeartBeatResponse) -> None:
        """Complain that a node follows no further."""
        node = self._node
        mine, theirs = node.identity.claim, reply.group_id or ""
        reason = (
            f"its folder has the identity {theirs} and the group {node.group} the identity {mine}"
            if theirs and theirs != mine
            else "committed entries of its log differ from those of this node"
        )
        node.complain(
            f"{peer} does not follow {node.self_id}, which leads in term {node.term}: {reason}. Move the folder of "
            f"{peer} aside and start {peer} with an empty folder"
        )
