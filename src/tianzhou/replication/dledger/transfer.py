"""The transfer of leadership to another node (broker.md §19.7)."""

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
"""Maximum ms that a leader without new entries waits for the commit of its last ones before it asks another node to
lead."""

_PAUSE_MS: Final = 1000
"""Pause in ms after all followers have several times failed to take over leadership."""
_TRIALS: Final = 3
"""Number of failed trials after which a follower counts as unable to take over leadership."""


@dataclass(slots=True)
class _Taking:
    """A request to lead.

    Attributes:
        ticket: of the request.
        request: the request.
        until_ms: time limit for the log to reach the requested index.
        term: of the election that this node starts for the request; 0 before that.
    """

    ticket: object
    request: TransferRequest
    until_ms: int
    term: int = 0


class Transfer:
    """Both sides of a leadership transfer.

    Args:
        node: the node.
        preferred: ids of nodes that shall lead when they can.
        stand: requests votes at once.
    """

    def __init__(self, node: Node, preferred: Collection[str], stand: Callable[[], None]) -> None:
        self._node = node
        self._preferred = tuple(peer for peer in preferred if peer == node.self_id or peer in node.others)
        self._stand = stand
        self._taking: _Taking | None = None
        self._looked_ms = node.now_ms
        self._drained_ms = self._again_ms = 0
        self._failed: Counter[str] = Counter()
        """Number of failures of each node to take over leadership in this term."""

    @property
    def taking(self) -> bool:
        """Whether this node started its election because a leader requested it."""
        return self._taking is not None and self._taking.term == self._node.term

    def forget_failures(self) -> None:
        """Ask every follower again at once, because the reason for the transfer is a new one."""
        self._failed.clear()
        self._again_ms = 0

    def can_leave(self, leading: Leading) -> bool:
        """Whether a live follower has not failed several times to take over leadership."""
        return any(self._failed[peer] < _TRIALS for _, peer in leading.live)

    def requested(self, ticket: object, request: TransferRequest, leading: Leading | None) -> None:
        """Reply to a request, at once or later."""
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
        """Start a transfer; return why it is refused."""
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
        # A node that stops cannot wait long for a follower that does not answer.
        limit_ms = times.leadership_transfer_wait_timeout_ms if node.unfit else times.request_limit_ms
        node.ask(transferee, request, limit_ms, answered)

    def tick(self, leading: Leading | None) -> None:
        """Check the transfer after time has passed, the log has grown, or the role has changed."""
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
        """Transfer leadership to the most advanced live node; nodes that failed to take it come last.

        A transferee wins its election only with all entries of this node. So this node refuses appends from now on, and
        asks the transferee once the last entry is committed. Then no append stays without a reply either.
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
