"""Replication to one of Apache's nodes in DLedger's protocol: compare, truncate, append, commit (§19.6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tianzhou.replication.dledger.asks import Reply
from tianzhou.replication.dledger.node import Node
from tianzhou.replication.dledger.progress import Leader, Progress
from tianzhou.replication.dledger.raw_entries import to_json
from tianzhou.wire.bodies.dledger import Entry, PushRequest, PushResponse, PushType
from tianzhou.wire.codes import DLedgerResponseCode as Code


@dataclass(slots=True)
class _EntriesSent:
    """Entries in flight.

    Attributes:
        count: number of entries.
        size: their bytes.
        sent_ms: time of the last send.
        repeated: whether they were sent more than once.
    """

    count: int
    size: int
    sent_ms: int
    repeated: bool = False


class PushProgress(Progress):
    """Compares entry by entry from the end, then appends.

    Some replies of Apache's nodes do not show that the follower was in this term: that an entry is equal, or was there
    already. Such a reply counts once the follower has answered a heartbeat sent after it.

    Args: as of `Progress`.
    """

    def __init__(self, node: Node, leader: Leader, peer: str) -> None:
        super().__init__(node, leader, peer)
        self._state = PushType.COMPARE
        self._compared: int | None = None
        self._next = 0
        self._asked = 0
        self._sent: dict[int, _EntriesSent] = {}
        self._bytes = 0
        self._claimed = -1
        self._claim_number = 0

    def pump(self) -> None:
        """Send requests, as far as the limits allow."""
        if self._node.log.end_index < 0:
            return
        if self._state is PushType.APPEND:
            self._append()
        elif not self._asked and self._node.now_ms >= self._retry_ms:
            self._compare()

    def _push(self, kind: PushType, entries: list[Entry], then: object = None) -> int:
        node = self._node
        request = PushRequest(type=kind, commit_index=node.committed_index)
        if len(entries) == 1:
            request.entry = entries[0]
        else:
            request.batch_entry = entries
        self._said_ms = node.now_ms
        return node.ask(self.peer, request, node.timings.request_limit_ms, then or (lambda reply: None))  # type: ignore[arg-type]

    def _compare(self) -> None:
        log = self._node.log
        if self._compared is None or not log.begin_index <= self._compared <= log.end_index:
            self._compared = log.end_index
        if log.is_whole(self._compared):
            self._question(PushType.COMPARE, self._compared)

    def _question(self, kind: PushType, index: int) -> None:
        """Ask a follower to compare or to cut at an entry; no other request is sent meanwhile."""
        self._state = kind
        number = self._node.asks.next_number
        self._asked = number
        then = partial(self._compare_answered if kind is PushType.COMPARE else self._cut_answered, number, index)
        self._push(kind, [to_json(self._node.log.entry(index))], then)

    def _begin_append(self, index: int) -> None:
        self._state = PushType.APPEND
        self._compared = None
        self._next = index + 1
        self._sent.clear()
        self._bytes = 0

    def _begin_compare(self, pause_ms: int) -> None:
        self._state = PushType.COMPARE
        self._compared = None
        self._asked = 0
        self._sent.clear()
        self._bytes = 0
        self._claimed = -1
        self._retry_ms = self._node.now_ms + pause_ms

    def _compare_answered(self, number: int, index: int, reply: Reply) -> None:
        if self._leader.ended or number != self._asked:
            return
        self._asked = 0
        log = self._node.log
        if not isinstance(reply, PushResponse) or reply.code not in (Code.SUCCESS, Code.INCONSISTENT_STATE):
            self._retry_ms = self._node.now_ms + self._pause_ms
            if isinstance(reply, PushResponse) and reply.code == Code.EXPIRED_TERM:
                self._expired(reply.term)
            return
        self._lost(reply.end_index)
        if index < log.begin_index:
            self._compared = None
        elif reply.code == Code.SUCCESS:
            if reply.end_index > index:
                self._question(PushType.TRUNCATE, index)
            else:
                self._begin_append(index)
                self._claim(index)
        elif (
            reply.end_index < log.begin_index
            or reply.begin_index > log.end_index
            or index < reply.begin_index
            or index == log.begin_index
        ):
            self._question(PushType.TRUNCATE, log.begin_index)
        else:
            self._compared = max(min(reply.end_index, index - 1), log.begin_index)
        if not self._leader.ended:
            self.pump()

    def _cut_answered(self, number: int, index: int, reply: Reply) -> None:
        if self._leader.ended or number != self._asked:
            return
        self._asked = 0
        if isinstance(reply, PushResponse) and reply.code == Code.SUCCESS:
            self._begin_append(index)
            self._reached(index)
        else:
            self._begin_compare(self._pause_ms)
        self.pump()

    def _append(self) -> None:
        node, log, times = self._node, self._node.log, self._node.timings
        if self._next < log.begin_index:
            self._begin_compare(0)
            return
        while (
            self._next <= log.end_index
            and len(self._sent) < times.max_pushes
            and self._bytes < times.max_push_bytes
            and self._may_send(self._next)
            and log.is_whole(self._next)
        ):
            sent = _EntriesSent(0, 0, node.now_ms)
            self._sent[self._next] = sent
            self._next = self._send(self._next, sent)
        first = self._sent.get(self.match + 1) or (next(iter(self._sent.values())) if self._sent else None)
        if first is not None and node.now_ms - first.sent_ms >= times.max_push_time_out_ms:
            index = next(index for index, sent in self._sent.items() if sent is first)
            first.repeated = True
            first.sent_ms = node.now_ms
            self._bytes -= first.size
            if index < log.begin_index:
                self._begin_compare(0)
                return
            self._send(index, first)
        if node.now_ms - self._said_ms >= times.commit_interval_ms:
            self._push(PushType.COMMIT, [])

    def _send(self, index: int, sent: _EntriesSent) -> int:
        """Send entries from an index; for a repeated send, as many as `sent` has.

        Returns:
            Index of the entry after them.
        """
        node, log, times = self._node, self._node.log, self._node.timings
        first, at, size = index, index, 0
        entries: list[Entry] = []
        while not entries or (
            len(entries) < sent.count
            if sent.count
            else at <= log.end_index and size < times.max_batch_push_bytes and log.is_whole(at)
        ):
            entries.append(to_json(log.entry(at)))
            size += entries[-1].size
            at += 1
        sent.count, sent.size = len(entries), size
        self._bytes += size
        self._throttle.sent(node.now_ms, size)
        self._push(PushType.APPEND, entries, partial(self._append_answered, first, sent))
        return at

    def _append_answered(self, first: int, sent: _EntriesSent, reply: Reply) -> None:
        if self._leader.ended or self._sent.get(first) is not sent or not isinstance(reply, PushResponse):
            return
        if reply.code == Code.SUCCESS:
            last = first + sent.count - 1
            for index in [index for index in self._sent if index <= first]:
                self._bytes -= self._sent.pop(index).size
            if sent.repeated:
                self._claim(last)
            else:
                self._reached(last)
        elif reply.code == Code.INCONSISTENT_STATE:
            self._lost(reply.end_index)
            self._begin_compare(0)
        elif reply.code == Code.EXPIRED_TERM:
            self._expired(reply.term)
        if not self._leader.ended:
            self.pump()

    def _reached(self, index: int) -> None:
        if index > self.match:
            self.match = index
            self._leader.advance()

    def _claim(self, index: int) -> None:
        """Note that the follower reports an entry, in an unknown term."""
        if index > self.match:
            self._claimed = max(self._claimed, index)
            self._claim_number = self._node.asks.next_number
            self._leader.beat(self.peer)

    def beaten(self, number: int) -> None:
        """Handle the reply to a heartbeat: reports from before that heartbeat are of this term.

        Args:
            number: of the request.
        """
        if number >= self._claim_number and self._claimed > self.match:
            self._reached(self._claimed)
