"""Replication by DLedger's leaders to their followers (broker.md §19.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tianzhou.replication.dledger.raw_entries import to_json
from tianzhou.replication.dledger.ready import NodeRole
from tianzhou.wire.bodies.dledger import PushRequest, PushResponse, PushType
from tianzhou.wire.codes import DLedgerResponseCode as Code

if TYPE_CHECKING:
    from apache_node import ApacheNode


class Pusher:
    """The dispatchers of one leadership, and its marks."""

    def __init__(self, node: ApacheNode) -> None:
        self.node = node
        self.term = node.term
        self.marks = dict.fromkeys(node.others, -1)
        self.dispatchers = [Dispatcher(self, peer) for peer in node.others]

    @property
    def active(self) -> bool:
        return self.node.alive and self.node.pusher is self and self.node.role is NodeRole.LEADER

    def tick(self) -> None:
        for dispatcher in self.dispatchers:
            dispatcher.work()
        node = self.node
        marks = sorted([*self.marks.values(), node.log.end_index], reverse=True)
        # Entries of older terms count by themselves.
        node.commit(self.term, marks[len(marks) // 2])


class Dispatcher:
    """One follower."""

    def __init__(self, pusher: Pusher, peer: str) -> None:
        self.pusher = pusher
        self.node = pusher.node
        self.peer = peer
        self.state = PushType.COMPARE
        self.compared = -1
        self.writes = 0
        self.busy = False
        self.rest_ms = 0
        self.said_ms = -(10**9)
        self.pending: dict[int, int] = {}

    def push(self, kind: PushType, index: int | None, then: Any) -> None:
        node = self.node
        request = PushRequest(type=kind, commit_index=node.committed_index, term=self.pusher.term)
        if index is not None:
            request.entry = to_json(node.log.entry(index))
        self.said_ms = node.network.now_ms
        node.ask(self.peer, request, then)

    def work(self) -> None:
        now_ms = self.node.network.now_ms
        if self.busy or now_ms < self.rest_ms:
            return
        if self.state is PushType.APPEND:
            self._append()
        else:
            self._compare()

    def _failed(self) -> None:
        self._to_compare()
        self.rest_ms = self.node.network.now_ms + 10 * self.node.timings.ask_again_ms

    def _to_compare(self) -> None:
        if self.state is PushType.APPEND:
            self.compared = -1
            self.pending.clear()
        self.state = PushType.COMPARE

    def _to_append(self, index: int) -> None:
        self.state = PushType.APPEND
        self.compared = -1
        self._mark(index)
        self.writes = index + 1

    def _mark(self, index: int) -> None:
        self.pusher.marks[self.peer] = max(self.pusher.marks[self.peer], index)

    def _compare(self) -> None:
        log = self.node.log
        if not log.raw:
            return
        if self.compared == -1 or not log.begin_index <= self.compared <= log.end_index:
            self.compared = log.end_index
        index = self.compared
        self.busy = True

        def answered(reply: PushResponse | None) -> None:
            self.busy = False
            if not self.pusher.active:
                return
            if reply is None or reply.code not in (Code.SUCCESS, Code.INCONSISTENT_STATE):
                self._failed()
                return
            cut = -1
            if reply.code == Code.SUCCESS:
                if index == reply.end_index:
                    self._to_append(index)
                    return
                cut = index
            elif reply.end_index < log.begin_index or reply.begin_index > log.end_index or index < reply.begin_index:
                cut = log.begin_index
            elif index > reply.end_index:
                self.compared = reply.end_index
            else:
                self.compared -= 1
            if self.compared < log.begin_index:
                cut = log.begin_index
            if cut >= log.begin_index:
                self._truncate(cut)

        self.push(PushType.COMPARE, index, answered)

    def _truncate(self, index: int) -> None:
        self.state = PushType.TRUNCATE
        self.compared = -1
        self.busy = True

        def answered(reply: PushResponse | None) -> None:
            self.busy = False
            if not self.pusher.active:
                return
            if reply is None or reply.code != Code.SUCCESS:
                self._failed()
            else:
                self._to_append(index)

        self.push(PushType.TRUNCATE, index, answered)

    def _append(self) -> None:
        node, log, now_ms = self.node, self.node.log, self.node.network.now_ms
        mark = self.pusher.marks[self.peer]
        while self.state is PushType.APPEND:
            if self.writes > log.end_index or len(self.pending) >= 20:
                self.pending = {index: ms for index, ms in self.pending.items() if index >= mark}
                if self.writes > log.end_index and now_ms - self.said_ms > node.timings.commit_interval_ms:
                    self.push(PushType.COMMIT, None, lambda _: None)
                sent_ms = self.pending.get(mark + 1)
                if sent_ms is not None and now_ms - sent_ms > node.timings.max_push_time_out_ms:
                    self._append_one(mark + 1)
                return
            self._append_one(self.writes)
            self.writes += 1

    def _append_one(self, index: int) -> None:
        if index < self.node.log.begin_index:
            self._to_compare()
            return
        self.pending[index] = self.node.network.now_ms

        def answered(reply: PushResponse | None) -> None:
            if reply is None or not self.pusher.active:
                return
            if reply.code == Code.SUCCESS and reply.index is not None:
                self.pending.pop(reply.index, None)
                self._mark(reply.index)
            elif reply.code == Code.INCONSISTENT_STATE:
                self._to_compare()

        self.push(PushType.APPEND, index, answered)
