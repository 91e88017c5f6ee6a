"""One member under test: its inputs, and its outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memory_log import MemoryLog

from tianzhou.records.entry import decode_header
from tianzhou.replication.dledger.member import DLedgerMember
from tianzhou.replication.dledger.raw_entries import to_json
from tianzhou.replication.dledger.ready import HardState, Keep, NodeRole, Ready, RequestToSend
from tianzhou.replication.dledger.timings import Timings
from tianzhou.wire.bodies.dledger import (
    OURS,
    HeartBeatRequest,
    HeartBeatResponse,
    PreVoteRequest,
    PushRequest,
    PushType,
    StretchRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)

TIMINGS = Timings()
FRESH = HardState()


def log_of(*terms: int, body: bytes = b"x") -> MemoryLog:
    """Return a log with one entry for each term."""
    log = MemoryLog()
    for n, term in enumerate(terms):
        log.add(term, body + b"%d" % n)
    return log


class Desk:
    """A member `n0` of a group, its log and its disk."""

    def __init__(
        self,
        log: MemoryLog | None = None,
        *,
        size: int = 3,
        state: HardState = FRESH,
        timings: Timings = TIMINGS,
        **others: Any,
    ) -> None:  # fmt: skip
        self.log = log or MemoryLog()
        self.now_ms = 1000
        self.state = state
        self.member = DLedgerMember(
            "group", "n0", [f"n{n}" for n in range(size)], self.log, state, chance=lambda: 0.5, now_ms=self.now_ms,
            timings=timings, **others,
        )  # fmt: skip
        self.sends: list[RequestToSend] = []
        self.answers: list[Any] = []
        self.order: list[str] = []
        self.last = Ready()
        self.keep = Keep("")
        self.complaints: list[str] = []
        self.carry_out()

    def carry_out(self) -> None:
        while self.member.has_ready:
            self.last = ready = self.member.ready()
            if ready.hard_state is not None:
                self.state = ready.hard_state
            self.keep = ready.keep or self.keep
            if ready.cut is not None:
                self.log.cut(ready.cut)
            if ready.append is not None:
                self.log.append(ready.append)
            self.complaints += ready.complaints
            self.sends += ready.sends
            self.answers += [answer.response for answer in ready.answers]
            if ready.open_term:
                self.log.open_term(self.member.opening)
                self.member.appended(self.now_ms)

    def after(self, ms: int, step: int = 10) -> None:
        """Let time pass."""
        for _ in range(0, ms, step):
            self.now_ms += step
            self.member.tick(self.now_ms)
            self.carry_out()

    def ask(self, request: Any, **members: Any) -> Any:
        """Send the member a request; return its reply, or None while there is none."""
        request.group, request.remote_id = "group", "n0"
        for name, value in members.items():
            setattr(request, name, value)
        self.answers.clear()
        self.member.requested("ticket", request, self.now_ms)
        self.carry_out()
        return self.answers[-1] if self.answers else None

    def vote(self, candidate: str, term: int, index: int = -1, of: int = -1, kind: Any = VoteRequest) -> VoteResult:
        result: VoteResult = self.ask(
            kind(leader_id=candidate, term=term, ledger_end_index=index, ledger_end_term=of)
        ).vote_result
        return result

    def would_vote(self, candidate: str, term: int, index: int = -1, of: int = -1) -> VoteResult:
        return self.vote(candidate, term, index, of, PreVoteRequest)

    def beat(self, leader: str = "n1", term: int = 1) -> int:
        return int(self.ask(HeartBeatRequest(leader_id=leader, term=term)).code)

    def push(self, kind: PushType, raw: list[bytes], *, term: int, commit: int = -1, leader: str = "n1") -> Any:
        request = PushRequest(type=kind, commit_index=commit, leader_id=leader, term=term)
        if len(raw) == 1:
            request.entry = to_json(raw[0])
        else:
            request.batch_entry = [to_json(entry) for entry in raw]
        return self.ask(request)

    def stretch(
        self, source: MemoryLog, previous: int, count: int, *, term: int, commit: int = -1, leader: str = "n1",
    ) -> Any:  # fmt: skip
        """Send the request of a leader with this log."""
        raw = [source.entry(previous + 1 + n) for n in range(count)]
        known = source.begin_index <= previous
        return self.ask(
            StretchRequest(
                leader_id=leader, term=term, commit_index=commit, count=count, end_index=source.end_index,
                entries=b"".join(raw), previous_index=previous,
                previous_term=source.term_at(previous) if known and previous >= 0 else -1,
            )
        )  # fmt: skip

    def sent(self, kind: type, peer: str | None = None) -> list[RequestToSend]:
        return [send for send in self.sends if type(send.request) is kind and peer in (None, send.peer)]

    def reply(self, send: RequestToSend, response: Any) -> None:
        self.member.answered(send.number, response, self.now_ms)
        self.carry_out()

    def elect(self, *, ours: bool = True) -> None:
        """Let the member become leader; the others reply to its first heart-beats."""
        for _ in range(200):
            if self.member.standing.role is NodeRole.LEADER:
                break
            self.after(50)
            for send in list(self.sends):
                if isinstance(send.request, VoteRequest):
                    self.reply(send, VoteResponse(vote_result=VoteResult.ACCEPT, term=send.request.term))
        self.beats(ours=ours)

    def beats(self, *, ours: bool = True) -> None:
        """Let the followers reply to all heart-beats."""
        beats, self.sends = self.sent(HeartBeatRequest), [s for s in self.sends if s not in self.sent(HeartBeatRequest)]
        for send in beats:
            self.reply(send, HeartBeatResponse(tianzhou=OURS if ours else 0))


def quick(**others: Any) -> Timings:
    """Return DLedger's times with changes."""
    return replace(TIMINGS, **others)


def terms(log: MemoryLog) -> list[int]:
    return [decode_header(entry).term for entry in log.raw]
