"""Leadership goes over to another node (broker.md §19.7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from tianzhou.replication.dledger.asks import Reply
from tianzhou.replication.dledger.leading import Leading
from tianzhou.replication.dledger.node import Node
from tianzhou.replication.dledger.ready import NodeRole
from tianzhou.wire.bodies.dledger import TransferRequest, TransferResponse
from tianzhou.wire.codes import DLedgerResponseCode as Code

_DRAIN_MS: Final = 500
"""Maximum ms that a leader without new entries waits for the commit of its last ones before it asks another to lead."""

_PAUSE_MS: Final = 1000
"""Pause in ms after all followers have failed to take leadership over several times."""
_TRIALS: Final = 3
"""Number of failed trials after which a follower counts as one that does not take leadership over."""


@dataclass(slots=True)
class _Taking:
    """A request to lead.

    Attributes:
        ticket: of the request.
        request: the request.
        until_ms: when the log has to have what is needed.
        term: in which this node stands for election because of it; 0 before that.
    """

    ticket: object
    request: TransferRequest
    until_ms: int
    term: int = 0


class Transfer:
    """Both sides of a transfer.

    Args:
        node: the node.
        preferred: ids of nodes that shall lead when they can.
        stand: asks for votes at once.

    """

    def __init__(self, node: Node, preferred: Collection[str], stand: Callable[[], None]) -> None:
        self._node = node
        self._preferred = tuple(peer for peer in preferred if peer == node.self_id or peer in node.others)
        self._stand = stand
        self._taking: _Taking | None = None
        self._looked_ms = node.now_ms
        self._drained_ms = self._again_ms = 0
        self._failed: Counter[str] = Counter()
        """How often each node did not take leadership over in this term."""

    @property
    def taking(self) -> bool:
        """Whether this node stands for election because a leader wants that."""
        return self._taking is not None and self._taking.term == self._node.term

    def forget_failures(self) -> None:
        """Ask every follower again at once, because the reason to hand over is a new one."""
        self._failed.clear()
        self._again_ms = 0

    def can_leave(self, leading: Leading) -> bool:
        """Whether a follower answers that has not failed to take leadership over several times."""
        return any(self._failed[peer] < _TRIALS for _, peer in leading.live)

    def requested(self, ticket: object, request: TransferRequest, leading: Leading | None) -> None:
        """Answer a request, at once or later."""
        node = self._node
        if request.transfer_id == node.self_id:
            transferee = request.transferee_id or ""
            code = self._refusal(transferee, request.term, leading)
            if code is None and leading is not None:
                self._hand_over(transferee, leading, ticket)
            else:
                node.answer(ticket, TransferResponse(), code=code or Code.NOT_LEADER)
        elif request.transferee_id == node.self_id:
            if request.transfer_id != node.leader:
                node.answer(ticket, TransferResponse(), code=Code.INCONSISTENT_LEADER)
                return
            self._give_up(Code.TAKE_LEADERSHIP_FAILED)
            until_ms = node.now_ms + node.timings.leadership_transfer_wait_timeout_ms
            self._taking = _Taking(ticket, request, until_ms)
            self.tick(None)
        else:
            node.answer(ticket, TransferResponse(), code=Code.UNEXPECTED_ARGUMENT)

    def begin(self, transferee: str, leading: Leading | None) -> Code | None:
        """Hand leadership over; returns why not."""
        code = self._refusal(transferee, self._node.term, leading)
        if code is None and leading is not None:
            self._hand_over(transferee, leading, None)
        return code

    def _refusal(self, transferee: str, term: int, leading: Leading | None) -> Code | None:
        node = self._node
        if transferee not in node.others:
            return Code.UNKNOWN_MEMBER
        if term != node.term:
            return Code.INCONSISTENT_TERM
        if leading is None:
            return Code.NOT_LEADER
        lag = leading.lag(transferee)
        if lag is None or lag >= node.timings.max_leadership_transfer_wait_index:
            return Code.FALL_BEHIND_TOO_MUCH
        return None if leading.transferee is None else Code.LEADER_TRANSFERRING

    def _hand_over(self, transferee: str, leading: Leading, ticket: object) -> None:
        node = self._node
        leading.transferee = transferee
        leading.handing_over = True

        def answered(reply: Reply) -> None:
            self._note_failure(transferee, leading)
            if ticket is not None:
                code = reply.code if isinstance(reply, TransferResponse) else Code.NETWORK_ERROR
                node.answer(ticket, TransferResponse(), code=code)

        request = TransferRequest(
            take_leadership_ledger_index=node.log.end_index, transfer_id=node.self_id, transferee_id=transferee
        )
        times = node.timings
        # A node that stops has no time for a follower that does not answer.
        limit_ms = times.leadership_transfer_wait_timeout_ms if node.unfit else times.request_limit_ms
        node.ask(transferee, request, limit_ms, answered)

    def tick(self, leading: Leading | None) -> None:
        """Time has passed, or the log grew, or the role changed."""
        self._take()
        node = self._node
        times = node.timings
        if leading is None or leading.ended:
            self._failed.clear()
            return
        if node.unfit:
            self._leave(leading)
            return
        if not self._preferred or node.self_id in self._preferred or leading.transferee:
            return
        if node.now_ms - self._looked_ms < times.preferred_leader_interval_ms:
            return
        self._looked_ms = node.now_ms
        lags = [(lag, peer) for peer in self._preferred if (lag := leading.lag(peer)) is not None]
        if lags and leading.serving:
            self.begin(min(lags)[1], leading)

    def _leave(self, leading: Leading) -> None:
        """Hand leadership over to the most advanced node that answers; those that failed to take it come last.

        A transferee wins its election only with all entries of this node. So nothing is appended from now on, and the
        transferee is asked when the last entry is committed: then no append is left without an answer, either.
        """
        node = self._node
        if leading.transferee or node.now_ms < self._again_ms:
            return
        live = sorted((self._failed[peer], lag, peer) for lag, peer in leading.live)
        if not live:
            leading.handing_over = False
            return
        if not leading.handing_over:
            leading.handing_over = True
            self._drained_ms = node.now_ms + _DRAIN_MS
        if node.committed_index < node.log.end_index and node.now_ms < self._drained_ms:
            return
        transferee = live[0][2]
        if self.begin(transferee, leading) is not None:
            self._note_failure(transferee, leading)

    def _note_failure(self, transferee: str, leading: Leading) -> None:
        node = self._node
        leading.transferee = None
        leading.handing_over = False
        self._failed[transferee] += 1
        self._again_ms = node.now_ms + (node.timings.ask_again_ms if self.can_leave(leading) else _PAUSE_MS)

    def _take(self) -> None:
        node, taking = self._node, self._taking
        if taking is None:
            return
        if not taking.term:
            if node.term != taking.request.term or node.leader != taking.request.transfer_id:
                self._give_up(Code.INCONSISTENT_TERM)
            elif node.impaired or node.unfit or node.barred:
                self._give_up(Code.TAKE_LEADERSHIP_FAILED)
            elif node.log.end_index >= taking.request.take_leadership_ledger_index:
                taking.term = node.term + 1
                self._stand()
            elif node.now_ms >= taking.until_ms:
                self._give_up(Code.TAKE_LEADERSHIP_FAILED)
        elif node.term > taking.term:
            self._give_up(Code.EXPIRED_TERM)
        elif node.role is NodeRole.LEADER:
            self._give_up(Code.SUCCESS)
        elif node.role is NodeRole.FOLLOWER:
            self._give_up(Code.TAKE_LEADERSHIP_FAILED)

    def _give_up(self, code: Code) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            self._node.answer(taking.ticket, TransferResponse(), code=code)
