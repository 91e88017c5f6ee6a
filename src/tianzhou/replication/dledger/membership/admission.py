"""The requests that a node of a DLedger group accepts, and the evidence that bars it from leading. Pure."""

from __future__ import annotations

from typing import Final

from tianzhou.replication.dledger.campaign import Campaign
from tianzhou.replication.dledger.membership.outsiders import Outsiders, may_be_disjoint, outside_ids
from tianzhou.replication.dledger.node import MOST_TERM_STEP, Node
from tianzhou.wire.bodies.dledger import (
    HeartBeatRequest,
    HeartBeatResponse,
    PreVoteRequest,
    PushRequest,
    PushResponse,
    Request,
    Response,
    StretchRequest,
    StretchResponse,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
)
from tianzhou.wire.codes import DLedgerResponseCode as Code

ANSWERS: Final[dict[type[Request], type[Response]]] = {
    VoteRequest: VoteResponse,
    PreVoteRequest: VoteResponse,
    HeartBeatRequest: HeartBeatResponse,
    PushRequest: PushResponse,
    StretchRequest: StretchResponse,
    TransferRequest: TransferResponse,
}
"""Type of the response to each request that nodes send each other."""


class PeerAdmission:
    """The requests that a node refuses, and members outside of its list.

    Args:
        node: the node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._members = frozenset((*node.others, node.self_id))
        self._outsiders = Outsiders(node.timings.heartbeat_interval_ms, 2 * node.timings.leader_wait_ms)
        self._bar = ""

    def refuse(self, ticket: object, request: Request) -> bool:
        """Reply to a request that does not count; return whether the request is refused.

        Args:
            ticket: of the request.
            request: of the types in `ANSWERS`.
        """
        node = self._node
        self._note_outsiders(request)
        code = self._stranger_code(request)
        if code is not None:
            node.answer(ticket, ANSWERS[type(request)](), code=code)
            return True
        if self._is_refused(request):
            self._answer_refused(ticket, request)
            return True
        return False

    def _note_outsiders(self, request: Request) -> None:
        node = self._node
        # Members of another group of this name do not count. A node that is alone has drawn its own identity, so the
        # others have another one.
        is_foreign = bool(node.others and request.group_id) and request.group_id != node.identity.claim
        names = outside_ids(
            request, group=node.group, self_id=node.self_id, members=self._members, is_foreign=is_foreign
        )
        if names:
            self._outsiders.heard(names, node.now_ms, leads=not isinstance(request, VoteRequest))

    def _stranger_code(self, request: Request) -> Code | None:
        """Return why a request is not for this node; None when it is."""
        node = self._node
        if request.remote_id != node.self_id:
            return Code.UNKNOWN_MEMBER
        if request.group != node.group:
            return Code.UNKNOWN_GROUP
        if isinstance(request, VoteRequest | TransferRequest):
            return None
        if request.leader_id == node.self_id:
            return Code.UNEXPECTED_MEMBER
        if request.leader_id not in node.others:
            return Code.UNKNOWN_MEMBER
        return None if request.term <= node.term + MOST_TERM_STEP else Code.UNEXPECTED_ARGUMENT

    def _is_refused(self, request: Request) -> bool:
        """Whether a request is refused, because it is from another group or this node follows no further."""
        node, identity = self._node, self._node.identity
        if not identity.refuses(request):
            is_own = request.group_id == identity.group_id or not identity.group_id
            if identity.halted and not identity.lasting and is_own:
                identity.halted = ""
            return bool(identity.halted)
        peer, theirs = str(request.leader_id), request.group_id or "none"
        reason = (
            f"this node has the identity {identity.group_id} of the group {node.group}, and {peer} has the identity "
            f"{theirs}"
        )
        if identity.refusal_due(peer, node.now_ms):
            node.complain(f"{reason}: its requests are refused. Check which of both has a folder of another group")
        leads = not isinstance(request, VoteRequest | TransferRequest)
        if leads and node.leader is None and not identity.lasting:
            text = (
                f"{reason}, and {peer} leads the other members: this node keeps its log and follows no further. Move "
                f"the folder of {node.self_id} aside and start it with an empty folder"
            )
            node.halt(text, lasting=False)
        return True

    def _answer_refused(self, ticket: object, request: Request) -> None:
        node, log = self._node, self._node.log
        code = Code.UNKNOWN_GROUP if node.identity.refuses(request) else Code.ILLEGAL_MEMBER_STATE
        response = ANSWERS[type(request)]()
        if isinstance(response, PushResponse | StretchResponse):
            # Apache's leaders understand no other code for a log that differs.
            code = Code.INCONSISTENT_STATE
            response.begin_index, response.end_index = log.begin_index, log.end_index
        if isinstance(response, PushResponse) and isinstance(request, PushRequest) and request.entries:
            response.index, response.count = request.entries[0].index, len(request.entries)
        node.answer(ticket, response, code=code)

    def note_strangers(self, campaign: Campaign) -> None:
        """Follow no further while most nodes have another identity; follow again when they do not.

        Args:
            campaign: an election that has ended.
        """
        node, identity = self._node, self._node.identity
        if len(campaign.strangers) >= node.quorum:
            others = ", ".join(f"{peer} has {theirs}" for peer, theirs in sorted(campaign.strangers.items()))
            node.halt(
                f"this node has the identity {identity.group_id} of the group {node.group}, and {others}: it "
                f"keeps its log and follows no further. Move the folder of {node.self_id} aside and start it with an "
                "empty folder, unless the other members have the folders of another group",
                lasting=False,
            )
        elif identity.halted and not identity.lasting:
            identity.halted = ""

    def bar(self, why: str) -> None:
        """Set why the shell bars this node from leading; empty when it may lead."""
        self._bar = why

    def judge(self, *, leads: bool) -> None:
        """Decide whether this node must not lead, and step down with the reason.

        Args:
            leads: whether the node leads.
        """
        node = self._node
        why, outsiders = self._bar, self._outsiders.present(node.now_ms)
        if not why and may_be_disjoint(len(self._members), len(outsiders), leads=any(outsiders.values())):
            why = (
                f"dLegerPeers of this node names {', '.join(sorted(self._members))}, and members of the group that it "
                f"does not name speak to this node: {', '.join(sorted(outsiders))}; give all members one list"
            )
        if why and not node.barred:
            node.complain(f"{node.self_id} does not lead: {why}")
        node.barred = why
        if why and leads:
            node.end_term(node.term)
