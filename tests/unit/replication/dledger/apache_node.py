"""A node that behaves over the wire like Apache's DLedger 0.3.1.2 (broker.md §19), for mixed groups.

It has DLedger's gaps: it counts entries of older terms, compares without regard to the term, and serves without a
quorum. Its crash loses no entry, because no group can repair DLedger's losses after a power failure.
"""

from __future__ import annotations

from typing import Any

from apache_pusher import Pusher
from apache_round import Round
from group_checks import Checks
from group_network import Network
from memory_log import MemoryLog

from tianzhou.replication.dledger.asks import Unsupported
from tianzhou.replication.dledger.raw_entries import from_json, same_entry
from tianzhou.replication.dledger.ready import Cut, NodeRole
from tianzhou.replication.dledger.timings import Timings
from tianzhou.wire.bodies.dledger import (
    HeartBeatRequest,
    HeartBeatResponse,
    PreVoteRequest,
    PushRequest,
    PushResponse,
    PushType,
    StretchRequest,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from tianzhou.wire.codes import DLedgerResponseCode as Code


class ApacheNode:
    """A node of DLedger."""

    def __init__(self, name: str, peers: list[str], network: Network, checks: Checks, timings: Timings) -> None:
        self.name = name
        self.alive = False
        self.life = 0
        self.peers = peers
        self.others = [peer for peer in peers if peer != name]
        self.quorum = len(peers) // 2 + 1
        self.network = network
        self.checks = checks
        self.timings = timings
        self.term = 0
        self.vote: str | None = None
        self.log = MemoryLog()
        self.committed_index = -1
        self.complaints: list[str] = []
        network.hosts[name] = self
        self.restart()

    def restart(self) -> None:
        self.alive = True
        self.role = NodeRole.CANDIDATE
        self.leader: str | None = None
        self.known_term = -1
        self.raise_at_once = False
        self.vote_next = False
        self.voting = False
        self.vote_ms = 0
        self.heard_ms = self.beat_ms = self.answered_ms = -(10**9)
        self.transferee: str | None = None
        self.take_term = -1
        self.taken: Any = None
        self.writes: dict[int, tuple[PushRequest, Any, int]] = {}
        self.forward_ms = 0
        self.pusher: Pusher | None = None
        life = self.life

        def tick() -> None:
            if self.alive and self.life == life:
                self.network.at(10, tick)
                self.tick()

        self.network.at(self.network.rng.randint(1, 10), tick)

    def crash(self, *, power: bool) -> None:
        self.alive = False
        self.life += 1
        self.log = MemoryLog(self.log.raw)

    @property
    def current_term(self) -> int:
        return self.term

    def described(self) -> str:
        log = self.log
        return f"{self.role} {self.term} of {self.leader} log {log.begin_index}..{log.end_index} of {log.end_term}"

    def _between(self, least: int, most: int) -> int:
        return self.network.now_ms + self.network.rng.randrange(least, most)

    # Roles

    def become(self, role: NodeRole, term: int, leader: str | None) -> None:
        self.role, self.leader = role, leader
        if role is NodeRole.CANDIDATE:
            self.known_term = max(self.known_term, term)
        if role is not NodeRole.LEADER:
            self.transferee = None
            self.pusher = None
        if self.take_term >= 0 and self.taken is not None:
            code = None
            if term > self.take_term:
                code = Code.EXPIRED_TERM
            elif role is NodeRole.LEADER:
                code = Code.SUCCESS
            elif role is NodeRole.FOLLOWER:
                code = Code.TAKE_LEADERSHIP_FAILED
            if code is not None:
                self.taken(TransferResponse(code=int(code), term=term))
                self.take_term, self.taken = -1, None

    def tick(self) -> None:
        now_ms, times = self.network.now_ms, self.timings
        if self.role is NodeRole.LEADER:
            if now_ms - self.beat_ms > times.heartbeat_interval_ms:
                self.beat_ms = now_ms
                self._beat()
            if self.pusher is not None:
                self.pusher.tick()
        elif self.role is NodeRole.FOLLOWER:
            if now_ms - self.heard_ms > times.leader_wait_ms:
                self.become(NodeRole.CANDIDATE, self.term, None)
            self._write()
        else:
            self._stand()

    def _beat(self) -> None:
        term, answers = self.term, {"fine": 1, "later": 0, "term": -1, "all": 1, "other": 0}
        done = False

        def judge() -> None:
            nonlocal done
            if done or self.role is not NodeRole.LEADER or self.term != term:
                return
            done = True
            now_ms = self.network.now_ms
            if answers["fine"] >= self.quorum:
                self.answered_ms = now_ms
            elif answers["fine"] + answers["later"] >= self.quorum:
                self.beat_ms = -(10**9)
            elif answers["term"] > term or answers["other"]:
                self.become(NodeRole.CANDIDATE, max(answers["term"], term), None)
            elif now_ms - self.answered_ms > self.timings.leader_wait_ms:
                self.become(NodeRole.CANDIDATE, term, None)

        def answered(reply: HeartBeatResponse | None) -> None:
            answers["all"] += 1
            if reply is not None:
                if reply.code == Code.SUCCESS:
                    answers["fine"] += 1
                elif reply.code == Code.TERM_NOT_READY:
                    answers["later"] += 1
                elif reply.code == Code.EXPIRED_TERM:
                    answers["term"] = reply.term
                elif reply.code == Code.INCONSISTENT_LEADER:
                    answers["other"] = 1
            if answers["fine"] + answers["later"] >= self.quorum or answers["all"] == len(self.peers):
                judge()

        for peer in self.others:
            self.ask(peer, HeartBeatRequest(term=term), answered)
        life = self.life
        self.network.at(self.timings.heartbeat_interval_ms, lambda: self.life == life and judge())

    def ask(self, peer: str, request: Any, then: Any) -> None:
        request.group, request.remote_id = "group", peer
        request.local_id = request.leader_id = self.name
        self.network.ask(self.name, peer, request, self.timings.request_limit_ms, then)

    # Votes

    def _stand(self) -> None:
        if self.voting or (self.network.now_ms < self.vote_ms and not self.raise_at_once):
            return
        if self.vote_next or self.raise_at_once:
            self.term = self.known_term if self.known_term > self.term else self.term + 1
            self.vote = None
            self.vote_next = False
        if self.raise_at_once:
            self.vote_ms = self.vote_time()
            self.raise_at_once = False
            return
        self.voting = True
        Round(self)

    def vote_time(self) -> int:
        times = self.timings
        if self.take_term == self.term:
            return self._between(times.min_take_leadership_vote_interval_ms, times.max_take_leadership_vote_interval_ms)
        return self._between(times.min_vote_interval_ms, times.max_vote_interval_ms)

    def lead(self) -> None:
        # DLedger's code changes to leader from any role, as long as the term is the same.
        self.become(NodeRole.LEADER, self.term, self.name)
        self.beat_ms = -(10**9)
        self.answered_ms = self.network.now_ms
        self.pusher = Pusher(self)

    def vote_for(self, request: VoteRequest, *, own: bool) -> VoteResult:
        log = self.log
        if request.leader_id not in self.peers:
            return VoteResult.REJECT_UNKNOWN_LEADER
        if not own and request.leader_id == self.name:
            return VoteResult.REJECT_UNEXPECTED_LEADER
        if request.ledger_end_term < log.end_term:
            return VoteResult.REJECT_EXPIRED_LEDGER_TERM
        if request.ledger_end_term == log.end_term and request.ledger_end_index < log.end_index:
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
        if request.term < self.term:
            return VoteResult.REJECT_EXPIRED_VOTE_TERM
        if request.term == self.term:
            if self.vote not in (None, request.leader_id):
                return VoteResult.REJECT_ALREADY_HAS_LEADER if self.leader else VoteResult.REJECT_ALREADY_VOTED
        else:
            self.become(NodeRole.CANDIDATE, request.term, None)
            self.raise_at_once = True
            return VoteResult.REJECT_TERM_NOT_READY
        if request.term < log.end_term:
            return VoteResult.REJECT_TERM_SMALL_THAN_LEDGER
        self.vote = request.leader_id
        return VoteResult.ACCEPT

    # Requests of other nodes

    def requested(self, ticket: Any, request: Any) -> None:
        if isinstance(request, PreVoteRequest | StretchRequest):
            ticket(Unsupported())
        elif isinstance(request, VoteRequest):
            ticket(VoteResponse(vote_result=self.vote_for(request, own=False), term=self.term))
        elif isinstance(request, HeartBeatRequest):
            ticket(self._beaten(request))
        elif isinstance(request, TransferRequest):
            self._transfer(ticket, request)
        else:
            self._pushed(ticket, request)

    def _beaten(self, request: HeartBeatRequest) -> HeartBeatResponse:
        if request.term < self.term:
            return HeartBeatResponse(code=int(Code.EXPIRED_TERM), term=self.term)
        if request.term > self.term:
            self.become(NodeRole.CANDIDATE, request.term, None)
            self.raise_at_once = True
            return HeartBeatResponse(code=int(Code.TERM_NOT_READY))
        if self.leader is None:
            self.vote_next = False
            self.become(NodeRole.FOLLOWER, request.term, request.leader_id)
        elif self.leader != request.leader_id:
            return HeartBeatResponse(code=int(Code.INCONSISTENT_LEADER))
        self.heard_ms = self.network.now_ms
        return HeartBeatResponse()

    def _transfer(self, ticket: Any, request: TransferRequest) -> None:
        if request.transfer_id == self.name:
            if self.role is not NodeRole.LEADER or request.term != self.term or self.transferee or self.pusher is None:
                ticket(TransferResponse(code=int(Code.NOT_LEADER), term=self.term))
                return
            lag = self.log.end_index - self.pusher.marks.get(str(request.transferee_id), -1)
            if request.transferee_id not in self.others or lag >= self.timings.max_leadership_transfer_wait_index:
                ticket(TransferResponse(code=int(Code.FALL_BEHIND_TOO_MUCH), term=self.term))
                return
            self.transferee = request.transferee_id

            def answered(reply: TransferResponse | None) -> None:
                self.transferee = None
                ticket(reply or TransferResponse(code=int(Code.NETWORK_ERROR)))

            order = TransferRequest(
                take_leadership_ledger_index=self.log.end_index, term=self.term, transfer_id=self.name,
                transferee_id=self.transferee,
            )  # fmt: skip
            self.ask(str(self.transferee), order, answered)
        elif request.transfer_id != self.leader or request.term != self.term:
            ticket(TransferResponse(code=int(Code.INCONSISTENT_LEADER), term=self.term))
        elif self.log.end_index < request.take_leadership_ledger_index:
            ticket(TransferResponse(code=int(Code.TAKE_LEADERSHIP_FAILED), term=self.term))
        else:
            self.take_term, self.taken = request.term + 1, ticket
            self.become(NodeRole.CANDIDATE, request.term + 1, None)
            self.raise_at_once = True

    # A follower's log

    def _response(self, request: PushRequest, code: Code) -> PushResponse:
        entries = request.entries
        return PushResponse(
            code=int(code), term=request.term, begin_index=self.log.begin_index, end_index=self.log.end_index,
            index=entries[0].index if entries else None, count=len(entries),
        )  # fmt: skip

    def _pushed(self, ticket: Any, request: PushRequest) -> None:
        if request.type is PushType.APPEND:
            first = request.entries[0].index
            if first in self.writes:
                ticket(self._response(request, Code.REPEATED_PUSH))
            else:
                self.writes[first] = (request, ticket, self.network.now_ms)
                self._write()
            return
        if request.type is not PushType.COMMIT:
            self.writes.clear()
        if self.role is not NodeRole.FOLLOWER:
            ticket(self._response(request, Code.NOT_FOLLOWER))
        elif request.type is PushType.COMMIT:
            self.commit(request.term, request.commit_index)
            ticket(self._response(request, Code.SUCCESS))
        elif request.type is PushType.COMPARE:
            # The term is not checked.
            raw = from_json(request.entries[0])
            same = self._has(raw, request.entries[0].index)
            ticket(self._response(request, Code.SUCCESS if same else Code.INCONSISTENT_STATE))
        elif request.term != self.term or request.leader_id != self.leader:
            ticket(self._response(request, Code.INCONSISTENT_STATE))
        else:
            self._truncate(from_json(request.entries[0]), request.entries[0].index)
            ticket(self._response(request, Code.SUCCESS))
            self.commit(request.term, request.commit_index)

    def _has(self, raw: bytes, index: int) -> bool:
        log = self.log
        return log.begin_index <= index <= log.end_index and same_entry(log.entry(index), raw)

    def _truncate(self, raw: bytes, index: int) -> None:
        log = self.log
        if self._has(raw, index):
            if index < log.end_index:
                log.cut(Cut(index + 1, log.end_of(index)))
            return
        # DLedger's follower does not compare its entries before this one, because the leader no longer has them. Their
        # contents are irrelevant for these tests.
        self.log = MemoryLog([raw])

    def _write(self) -> None:
        while self.role is NodeRole.FOLLOWER and (item := self.writes.pop(self.log.end_index + 1, None)) is not None:
            request, ticket, _ = item
            if request.term != self.term or request.leader_id != self.leader:
                ticket(self._response(request, Code.INCONSISTENT_STATE))
                continue
            self.log = MemoryLog(self.log.raw + [from_json(entry) for entry in request.entries])
            ticket(self._response(request, Code.SUCCESS))
            self.commit(request.term, request.commit_index)
        if self.network.now_ms - self.forward_ms < self.timings.max_push_time_out_ms or not self.writes:
            return
        self.forward_ms = self.network.now_ms
        self._abnormal()

    def _abnormal(self) -> None:
        times = self.timings
        early: list[int] = []
        for first, (request, ticket, came_ms) in list(self.writes.items()):
            if request.entries[-1].index <= self.log.end_index:
                same = all(self._has(from_json(entry), entry.index) for entry in request.entries)
                del self.writes[first]
                ticket(self._response(request, Code.SUCCESS if same else Code.INCONSISTENT_STATE))
            elif self.network.now_ms - came_ms >= times.max_push_time_out_ms:
                early.append(first)
        if early:
            request, ticket, _ = self.writes[min(early)]
            ticket(self._response(request, Code.INCONSISTENT_STATE))

    def commit(self, term: int, index: int) -> None:
        if term >= self.term and self.log.raw:
            self.committed_index = max(self.committed_index, min(index, self.log.end_index))

    # Requests of clients and administrators

    def propose(self, body: bytes) -> bool:
        if not self.alive or self.role is not NodeRole.LEADER or self.transferee is not None:
            return False
        self.log.add(self.term, body)
        return True

    def expire(self, count: int) -> None:
        begin = min(self.log.begin_index + count, self.committed_index)
        if self.alive and self.log.raw and begin > self.log.begin_index:
            self.log.expire(begin)

    def hand_over(self, peer: str) -> None:
        if self.alive:
            request = TransferRequest(
                group="group", remote_id=self.name, term=self.term, transfer_id=self.name, transferee_id=peer
            )
            self._transfer(lambda _: None, request)
