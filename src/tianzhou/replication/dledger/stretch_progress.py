"""Replication to one of our own followers in stretches of raw entries (docs/adr/0015)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tianzhou.replication.dledger.asks import Reply, Unsupported
from tianzhou.replication.dledger.membership.joint import joint_at
from tianzhou.replication.dledger.node import Node
from tianzhou.replication.dledger.progress import Leader, Progress
from tianzhou.wire.bodies.dledger import StretchRequest, StretchResponse
from tianzhou.wire.codes import DLedgerResponseCode as Code


@dataclass(frozen=True, slots=True)
class _Sent:
    """A stretch in flight."""

    previous: int
    count: int
    size: int
    sent_ms: int


class StretchProgress(Progress):
    """Searches for the last equal entry, then sends all later ones.

    Args: as of `Progress`.
    """

    def __init__(self, node: Node, leader: Leader, peer: str) -> None:
        super().__init__(node, leader, peer)
        self._next = leader.opening
        self._looking = True
        self._sent: dict[int, _Sent] = {}
        self._bytes = 0
        # While the follower syncs one stretch, the next one is in flight.
        self._together = 1 if node.synced_index is None else 2

    def pump(self) -> None:
        """Send stretches, as far as the limits allow."""
        node, log, times = self._node, self._node.log, self._node.timings
        if self._next < log.begin_index:
            # The beginning of the log has expired since.
            self._look(self._next, 0)
        if self._looking:
            if not self._sent and node.now_ms >= self._retry_ms:
                self._send(b"", 0)
            return
        while (
            self._next <= log.end_index
            and len(self._sent) < times.max_pushes
            and self._bytes < times.max_push_bytes
            and (len(self._sent) < self._together or self._is_full)
            and self._may_send(self._next)
            and log.is_whole(self._next)
        ):
            entries, count = log.stretch(self._next, times.stretch_bytes)
            self._send(entries, count)
            self._next += count
        # A follower that has restarted since may lack entries that it had. Only the next stretch shows that.
        if not self._sent and node.now_ms - self._said_ms >= times.commit_interval_ms:
            self._send(b"", 0)

    @property
    def _is_full(self) -> bool:
        """Whether there are enough bytes for a whole stretch.

        A smaller stretch waits while another one is in flight (two with SYNC_FLUSH), and takes the entries that arrive
        until the reply. Each stretch costs both sides as much as dozens of entries do.
        """
        log = self._node.log
        return log.end_position - log.position_of(self._next) >= self._node.timings.stretch_bytes

    def _send(self, entries: bytes, count: int) -> None:
        node, log = self._node, self._node.log
        previous = self._next - 1
        begins = previous < log.begin_index
        if begins and previous >= 0 and not count:
            # The leader does not have the entry before, so the first entry decides.
            if not log.is_whole(self._next):
                return
            entries, count = log.stretch(self._next, 1)
        request = StretchRequest(
            commit_index=node.committed_index,
            count=count,
            end_index=log.end_index,
            entries=entries,
            previous_index=previous,
            previous_term=-1 if begins or previous < 0 else log.term_at(previous),
            settled=1 if node.identity.group_id else None,
        )
        if self._looking and log.begin_index <= previous <= log.end_index and previous >= 0:
            request.previous_digest, request.term_index, request.term_digest = joint_at(log, previous)
        sent = _Sent(previous, count, len(entries), node.now_ms)
        self._sent[node.asks.next_number] = sent
        then = partial(self._answered, node.asks.next_number, sent)
        node.ask(self.peer, request, node.timings.request_limit_ms, then)
        self._bytes += sent.size
        self._throttle.sent(node.now_ms, sent.size)
        self._said_ms = node.now_ms

    def _answered(self, number: int, sent: _Sent, reply: Reply) -> None:
        if self._leader.ended or number not in self._sent:
            return
        del self._sent[number]
        self._bytes -= sent.size
        if isinstance(reply, Unsupported):
            self._leader.is_foreign(self.peer)
            return
        if not isinstance(reply, StretchResponse):
            self._look(self.match + 1, self._pause_ms)
        elif reply.code == Code.SUCCESS:
            self._took(sent)
        elif reply.code == Code.INCONSISTENT_STATE:
            self._lost(reply.end_index)
            if reply.conflict_index < 0:
                self._look(self.match + 1, self._pause_ms)
            else:
                self._look(min(reply.conflict_index, sent.previous), 0)
        else:
            self._look(self.match + 1, self._pause_ms)
            self._expired(reply.term)
        if not self._leader.ended:
            self.pump()

    def _took(self, sent: _Sent) -> None:
        reached = sent.previous + sent.count
        self._leader.heard(self.peer, sent.sent_ms)
        if self._looking:
            self._looking = False
            self._next = reached + 1
        if reached > self.match:
            self.match = reached
            self._leader.advance()

    def _look(self, index: int, pause_ms: int) -> None:
        """Ask for the entry before an index; stretches in flight no longer count.

        Args:
            index: of the entry to send next, if the one before is equal.
            pause_ms: pause before the request.
        """
        log = self._node.log
        self._next = max(min(index, log.end_index + 1), log.begin_index, 0)
        self._looking = True
        self._retry_ms = self._node.now_ms + pause_ms
        self._sent.clear()
        self._bytes = 0
