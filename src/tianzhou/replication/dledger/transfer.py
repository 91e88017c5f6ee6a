"""Leadership goes over to another node (broker.md §19.7)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from tianzhou.replication.dledger.asks import Reply
from tianzhou.replication.dledger.leading import Leading
from tianzhou.replication.dledger.node import Node
from tianzhou.replication.dledger.ready import Role
from tianzhou.wire.bodies.dledger import TransferRequest, TransferResponse
from tianzhou.wire.codes import DLedgerResponseCode as Code


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

    @property
    def taking(self) -> bool:
        """Whether this node stands for election because a leader wants that."""
        return self._taking is not None and self._taking.term == self._node.term

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

        def answered(reply: Reply) -> None:
            leading.transferee = None
            if ticket is not None:
                code = reply.code if isinstance(reply, TransferResponse) else Code.NETWORK_ERROR
                node.answer(ticket, TransferResponse(), code=code)

        request = TransferRequest(
            take_leadership_ledger_index=node.log.end_index, transfer_id=node.self_id, transferee_id=transferee
        )
        node.ask(transferee, request, node.timings.request_limit_ms, answered)

    def tick(self, leading: Leading | None) -> None:
        """Time has passed, or the log grew, or the role changed."""
        self._take()
        node = self._node
        times = node.timings
        if leading is None or not self._preferred or node.self_id in self._preferred or leading.transferee:
            return
        if node.now_ms - self._looked_ms < times.preferred_leader_interval_ms:
            return
        self._looked_ms = node.now_ms
        lags = [(lag, peer) for peer in self._preferred if (lag := leading.lag(peer)) is not None]
        if lags and leading.serving:
            self.begin(min(lags)[1], leading)

    def _take(self) -> None:
        node, taking = self._node, self._taking
        if taking is None:
            return
        if not taking.term:
            if node.term != taking.request.term or node.leader != taking.request.transfer_id:
                self._give_up(Code.INCONSISTENT_TERM)
            elif node.impaired:
                self._give_up(Code.TAKE_LEADERSHIP_FAILED)
            elif node.log.end_index >= taking.request.take_leadership_ledger_index:
                taking.term = node.term + 1
                self._stand()
            elif node.now_ms >= taking.until_ms:
                self._give_up(Code.TAKE_LEADERSHIP_FAILED)
        elif node.term > taking.term:
            self._give_up(Code.EXPIRED_TERM)
        elif node.role is Role.LEADER:
            self._give_up(Code.SUCCESS)
        elif node.role is Role.FOLLOWER:
            self._give_up(Code.TAKE_LEADERSHIP_FAILED)

    def _give_up(self, code: Code) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            self._node.answer(taking.ticket, TransferResponse(), code=code)
