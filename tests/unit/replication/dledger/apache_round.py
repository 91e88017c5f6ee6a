"""How DLedger's candidates count votes (broker.md §19.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tianzhou.replication.dledger.ready import NodeRole
from tianzhou.wire.bodies.dledger import VoteRequest, VoteResponse, VoteResult

if TYPE_CHECKING:
    from apache_node import ApacheNode

LONGER = (VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)
LARGER = (VoteResult.REJECT_EXPIRED_VOTE_TERM, VoteResult.REJECT_TERM_SMALL_THAN_LEDGER)


class Round:
    """One round of requests, sent by the constructor."""

    def __init__(self, node: ApacheNode) -> None:
        self.node = node
        self.term, self.life = node.term, node.life
        self.known_term = node.term
        self.results: list[VoteResult] = []
        self.answers = 0
        self.judged = False
        log, rng, times = node.log, node.network.rng, node.timings
        request = VoteRequest(ledger_end_index=log.end_index, ledger_end_term=log.end_term, term=self.term)
        for peer in node.others:
            copy = VoteRequest(ledger_end_index=log.end_index, ledger_end_term=log.end_term, term=self.term)
            node.ask(peer, copy, self.answered)
        request.leader_id = node.name
        self.answered(VoteResponse(vote_result=node.vote_for(request, own=True), term=node.term))
        node.network.at(times.vote_wait_ms + rng.randint(0, times.max_vote_interval_ms), self.judge)

    def count(self, *results: VoteResult) -> int:
        return sum(result in results for result in self.results)

    def answered(self, reply: VoteResponse | None) -> None:
        self.answers += 1
        if reply is not None:
            self.results.append(reply.vote_result)
            if reply.vote_result in LARGER:
                self.known_term = max(self.known_term, reply.term)
        agreed = self.count(VoteResult.ACCEPT, VoteResult.REJECT_TERM_NOT_READY)
        led = self.count(VoteResult.REJECT_ALREADY_HAS_LEADER)
        if led or agreed >= self.node.quorum or self.answers == len(self.node.peers):
            self.judge()

    def judge(self) -> None:
        node = self.node
        if self.judged or node.life != self.life:
            return
        self.judged = True
        node.voting = False
        node.vote_ms = node.vote_time()
        valid = len(self.results) - self.count(VoteResult.UNKNOWN)
        if self.known_term > self.term:
            node.vote_next = True
            if self.known_term >= node.term:
                node.become(NodeRole.CANDIDATE, self.known_term, None)
        elif self.count(VoteResult.REJECT_ALREADY_HAS_LEADER):
            node.vote_ms += node.timings.leader_wait_ms
        elif valid - self.count(*LONGER) < node.quorum:
            node.vote_ms += node.timings.max_vote_interval_ms if valid >= node.quorum else 0
        elif self.count(VoteResult.ACCEPT) >= node.quorum:
            if node.term == self.term and node.role is NodeRole.CANDIDATE:
                node.lead()
        elif self.count(VoteResult.ACCEPT, VoteResult.REJECT_TERM_NOT_READY) >= node.quorum:
            node.vote_ms = 0
        else:
            node.vote_next = True
