"""A node's replies to requests for its vote (broker.md §19.2, docs/adr/0015)."""

from __future__ import annotations

from tianzhou.replication.dledger.membership.joint import lacks_committed
from tianzhou.replication.dledger.node import MOST_TERM_STEP, Node
from tianzhou.wire.bodies.dledger import PreVoteRequest, VoteRequest, VoteResponse, VoteResult


def vote(node: Node, ticket: object, request: VoteRequest) -> bool:
    """Reply to a candidate after the term is raised and the vote is persisted.

    Args:
        node: the voter.
        ticket: of the request.
        request: the vote request.

    Returns:
        Whether the candidate got the vote.
    """
    result = _unfit(node, request)
    if result is None:
        if request.term > node.term:
            node.end_term(request.term)
        result = _of_term(node, request)
    if result is VoteResult.ACCEPT:
        node.persist(node.term, request.leader_id)
    _answer(node, ticket, result)
    return result is VoteResult.ACCEPT


def would_vote(node: Node, ticket: object, request: PreVoteRequest, *, leader_lives: bool) -> None:
    """Reply to a pre-vote request; the voter's state does not change.

    Args:
        node: the voter.
        ticket: of the request.
        request: the pre-vote request.
        leader_lives: whether the node leads, or has heard from its leader recently.
    """
    result = _unfit(node, request)
    if result is None:
        if leader_lives:
            result = VoteResult.REJECT_ALREADY_HAS_LEADER
        elif request.term > node.term:
            result = VoteResult.ACCEPT
        else:
            result = _of_term(node, request)
    _answer(node, ticket, result)


def _answer(node: Node, ticket: object, result: VoteResult) -> None:
    impaired = node.impaired and result is VoteResult.ACCEPT
    doubted = node.doubted_from <= node.log.end_index
    node.answer(ticket, VoteResponse(vote_result=result, impaired=impaired, doubted=doubted))


def _unfit(node: Node, request: VoteRequest) -> VoteResult | None:
    candidate = request.leader_id
    if candidate == node.self_id:
        return VoteResult.REJECT_UNEXPECTED_LEADER
    if candidate not in node.others:
        return VoteResult.REJECT_UNKNOWN_LEADER
    log = node.log
    if request.ledger_end_term < log.end_term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if request.ledger_end_term == log.end_term and request.ledger_end_index < log.end_index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    if request.term > node.term + MOST_TERM_STEP:
        return VoteResult.UNKNOWN
    if request.marks and lacks_committed(log, min(node.committed_index, log.end_index), request):
        if node.identity.refusal_due(str(candidate), node.now_ms):
            node.complain(
                f"{candidate} gets no vote of this node, which has committed entries of the group {node.group} up to "
                f"{node.committed_index}: the log of {candidate} differs from them. Check which of both has a folder "
                "of another group or an older one, move it aside and start with an empty folder"
            )
        return VoteResult.UNKNOWN
    if node.impaired and not request.tianzhou:
        # DLedger's candidates would count the vote as any other. They read this code as "not now", and ask again.
        return VoteResult.REJECT_TAKING_LEADERSHIP
    return None


def _of_term(node: Node, request: VoteRequest) -> VoteResult:
    if request.term < node.term:
        return VoteResult.REJECT_EXPIRED_VOTE_TERM
    if node.leader not in (None, request.leader_id):
        return VoteResult.REJECT_ALREADY_HAS_LEADER
    if node.vote not in (None, request.leader_id):
        return VoteResult.REJECT_ALREADY_VOTED
    return VoteResult.ACCEPT
