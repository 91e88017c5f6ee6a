"""One node of a DLedger group, which votes, leads and follows (broker.md §19, docs/adr/0015). Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from tianzhou.replication.dledger import ballots
from tianzhou.replication.dledger.asks import Reply, Unsupported
from tianzhou.replication.dledger.campaign import Campaign
from tianzhou.replication.dledger.entry_log import NodeEntryLog
from tianzhou.replication.dledger.following import TermFollowing
from tianzhou.replication.dledger.leading import Leading
from tianzhou.replication.dledger.membership.admission import ANSWERS, PeerAdmission
from tianzhou.replication.dledger.membership.identity import drawn_id
from tianzhou.replication.dledger.node import NO_DOUBT, Node
from tianzhou.replication.dledger.push_answers import PushAnswers
from tianzhou.replication.dledger.ready import CommittedEnd, HardState, NodeRole, Opening, Ready, Standing
from tianzhou.replication.dledger.stretch_answers import StretchAnswers
from tianzhou.replication.dledger.timings import Timings
from tianzhou.replication.dledger.transfer import Transfer
from tianzhou.wire.bodies.dledger import (
    HeartBeatRequest,
    HeartBeatResponse,
    PreVoteRequest,
    PushRequest,
    Request,
    StretchRequest,
    TransferRequest,
    VoteRequest,
)
from tianzhou.wire.codes import DLedgerResponseCode as Code

__all__ = ["DLedgerMember", "Unsupported"]

_DEFAULTS: Final = Timings()
_UNFIT_ROUNDS: Final = 3
"""Number of leader waits during which an unfit follower leaves the election to other nodes."""


class DLedgerMember:
    """A node of a group.

    After each call that leaves `has_ready` true, the caller must execute `ready()` before the next call, up to and with
    the append. Times are monotonic milliseconds of one clock.

    Args:
        group: name of the group.
        self_id: id of this node, `n0`.
        peers: ids of all nodes of the group, with this one.
        log: the node's log.
        hard_state: last persisted term and vote.
        committed_index: index up to which the last checkpoint has the log as committed; -1 if unknown.
        impaired: whether the log may have lost entries that this node acknowledged. Until a leader has restored them
            (`Ready.recovered`), its vote counts only in an election in which all nodes vote.
        doubted_from: index from which entries may differ from the written ones although they look whole; none when it
            is after the log's end. `committed_index` is below it.
        sync_entries: whether entries count as stored only when they are synced (`synced`).
        synced_index: last synced index at the start.
        preferred_leaders: ids of the nodes that shall lead when they can.
        timings: time limits and bounds.
        chance: random numbers, at least 0 and below 1.
        now_ms: the time.
        group_id: persisted identity of the group (`Ready.keep`); empty without one.
        halted: persisted reason why the node follows no further; empty when it follows.
        joining: persisted; whether the node may lack entries that were committed when it stored the identity.
        alone: persisted; whether the node was the only one of its group.

    Attributes:
        opening: the record that opens the last term in which this node was elected.

    Raises:
        ConfigError: `self_id` is not among the peers.
    """

    def __init__(
        self,
        group: str,
        self_id: str,
        peers: Collection[str],
        log: NodeEntryLog,
        hard_state: HardState,
        *,
        chance: Callable[[], float],
        now_ms: int,
        timings: Timings = _DEFAULTS,
        committed_index: int = -1,
        impaired: bool = False,
        doubted_from: int = NO_DOUBT,
        sync_entries: bool = False,
        synced_index: int = -1,
        preferred_leaders: Collection[str] = (),
        group_id: str = "",
        halted: str = "",
        joining: bool = False,
        alone: bool = False,
    ) -> None:
        self._node = node = Node(
            group,
            self_id,
            peers,
            log,
            hard_state,
            timings,
            chance,
            now_ms,
            group_id=group_id,
            halted=halted,
            joining=joining,
            alone=alone,
        )
        node.term_ended = self._term_ended
        node.synced_index = min(synced_index, log.end_index) if sync_entries else None
        # A node that is alone has no peer that could restore entries. An identity is persisted with a committed entry,
        # so a node with an identity and without entries has lost some.
        emptied = bool(group_id) and log.end_index < 0
        node.impaired = (impaired or emptied or committed_index > log.end_index) and bool(node.others)
        if node.others and doubted_from <= log.end_index:
            # Expired entries were committed, so they were compared before.
            node.doubted_from = max(doubted_from, log.begin_index)
        if log.begin_index <= min(committed_index, log.end_index) and log.begin_index >= 0:
            node.committed_index = min(committed_index, log.end_index)
        self._campaign: Campaign | None = None
        self._leading: Leading | None = None
        self._following: TermFollowing | None = None
        self._pushes: PushAnswers | None = None
        self._stretches: StretchAnswers | None = None
        self._transfer = Transfer(node, preferred_leaders, self._stand_at_once)
        self._admission = PeerAdmission(node)
        self._vote_ms = self._raised_ms = 0
        self._candidate_ms = now_ms
        self._again = False
        """Whether the next round may repeat the term; never a term in which this node has led, nor an older one."""
        self._wait(0)
        self._stood = self.standing
        self.opening = Opening(0, "", "")

    def tick(self, now_ms: int) -> None:
        """Handle the passage of time; the caller calls this every 10 to 50 ms."""
        self._begin(now_ms)
        node = self._node
        for then in node.asks.overdue(now_ms):
            then(None)
        self._admission.judge(leads=self._leading is not None)
        if self._leading is not None:
            self._leading.tick()
        elif self._following is not None and self._pushes is not None:
            self._pushes.tick()
            if now_ms - self._following.heard_ms >= node.timings.leader_wait_ms:
                node.complain(f"{node.leader}, the leader of term {node.term}, was not heard for too long")
                node.end_term(node.term)
                # A random delay prevents all nodes from starting at once.
                self._vote_ms = now_ms + node.between(0, node.timings.min_vote_interval_ms)
        if self._campaign is not None:
            self._campaign.tick()
        elif node.role is NodeRole.CANDIDATE and now_ms >= self._vote_ms and node.identity.may_stand(now_ms):
            # When no other node has been elected for long, the others are unfit too.
            waits = node.unfit and now_ms - self._candidate_ms < _UNFIT_ROUNDS * node.timings.leader_wait_ms
            if waits or node.barred:
                self._wait(0)
            else:
                self._stand(earnest=False)
        self._settle()

    def requested(self, ticket: object, request: Request, now_ms: int) -> None:
        """Handle a request of another node.

        Args:
            ticket: identifies the caller; returned in a `NodeAnswer`, at once or later.
            request: of the types that nodes send each other: votes, heartbeats, pushes, stretches, transfers.
            now_ms: the time.
        """
        self._begin(now_ms)
        node = self._node
        if self._admission.refuse(ticket, request):
            self._settle()
            return
        if isinstance(request, PreVoteRequest):
            following = self._following
            lives = self._leading is not None or (
                following is not None and now_ms - following.heard_ms < node.timings.leader_wait_ms
            )
            ballots.would_vote(node, ticket, request, leader_lives=lives)
        elif isinstance(request, VoteRequest):
            if ballots.vote(node, ticket, request):
                self._campaign = None
                self._wait(0)
        elif isinstance(request, TransferRequest):
            self._transfer.requested(ticket, request, self._leading)
        elif (refused := self._not_leader(request)) is not None:
            node.answer(ticket, ANSWERS[type(request)](), code=refused)
            if refused is Code.EXPIRED_TERM and isinstance(request, HeartBeatRequest) and not request.tianzhou:
                self._raise_term_of(str(request.leader_id))
        else:
            self._led(ticket, request)
        self._settle()

    def _raise_term_of(self, leader: str) -> None:
        """Announce a later term to one of Apache's leaders.

        Such a leader ignores EXPIRED_TERM while other nodes answer, and it ignores vote requests from a shorter log. So
        this node would stay without a leader. A heartbeat of a later term makes the leader request votes in that term,
        and does not make it a follower (broker.md §19.4).
        """
        node = self._node
        if node.role is NodeRole.CANDIDATE and node.now_ms >= self._raised_ms:
            self._raised_ms = node.now_ms + node.timings.leader_wait_ms
            node.ask(leader, HeartBeatRequest(), node.timings.request_limit_ms, lambda reply: None)

    def _not_leader(self, request: Request) -> Code | None:
        """Return why the sender does not lead this node; None when it does.

        A node without a leader starts to follow it.
        """
        node = self._node
        if request.term < node.term:
            return Code.EXPIRED_TERM
        if request.term > node.term:
            node.end_term(request.term)
        if node.leader is None:
            self._follow(str(request.leader_id))
        return None if node.leader == request.leader_id else Code.INCONSISTENT_LEADER

    def _follow(self, leader: str) -> None:
        node = self._node
        node.role, node.leader = NodeRole.FOLLOWER, leader
        node.identity.offered = ""
        self._again = False
        self._campaign = None
        self._following = following = TermFollowing(node)
        self._pushes = PushAnswers(node, following)
        self._stretches = StretchAnswers(node, following)

    def _led(self, ticket: object, request: Request) -> None:
        """Reply to the leader's request."""
        if self._following is None or self._pushes is None or self._stretches is None:
            return
        self._following.heard_ms = self._node.now_ms
        self._node.identity.offered = request.group_id or ""
        if isinstance(request, PushRequest):
            self._pushes.push(ticket, request)
        elif isinstance(request, StretchRequest):
            self._stretches.stretch(ticket, request)
        else:
            self._node.answer(ticket, HeartBeatResponse())

    def answered(self, number: int, response: Reply, now_ms: int) -> None:
        """Handle the response to a request of this node.

        Args:
            number: of the `RequestToSend`.
            response: the response; None when none will arrive (`limit_ms` is over, or the connection failed).
            now_ms: the time.
        """
        self._begin(now_ms)
        then = self._node.asks.pop(number)
        if then is not None:
            then(response)
        self._settle()

    def refusal(self) -> Code | None:
        """Return why appends are refused now; None when they are accepted.

        Returns:
            NOT_LEADER, LEADER_NOT_READY, LEADER_TRANSFERRING or LEADER_PENDING_FULL. The entry that opens a term is
            appended regardless of this code.
        """
        node, leading = self._node, self._leading
        if leading is None:
            return Code.NOT_LEADER
        if not leading.serving:
            return Code.LEADER_NOT_READY
        if leading.handing_over:
            return Code.LEADER_TRANSFERRING
        if node.log.end_index - node.committed_index > node.timings.max_pending_requests:
            return Code.LEADER_PENDING_FULL
        return None

    def appended(self, now_ms: int) -> None:
        """Handle entries of the leader's term that the leader's shell has appended."""
        self._begin(now_ms)
        if self._leading is not None:
            self._leading.advance()
            self._leading.pump()
        self._settle()

    def synced(self, index: int, now_ms: int) -> None:
        """Note that the log is synced up to an entry; needed with `sync_entries` only.

        Args:
            index: of an entry of the present log, not of one that was cut since.
            now_ms: the time.
        """
        self._begin(now_ms)
        node = self._node
        if node.synced_index is not None:
            node.synced_index = max(node.synced_index, min(index, node.log.end_index))
            if self._following is not None:
                self._following.synced()
            if self._leading is not None:
                self._leading.advance()
        self._settle()

    def transfer(self, transferee: str, now_ms: int) -> Code | None:
        """Transfer leadership, as the request LEADERSHIP_TRANSFER does (broker.md §19.7).

        Returns:
            Why the transfer is refused; None when it has begun.
        """
        self._begin(now_ms)
        code = self._transfer.begin(transferee, self._leading)
        self._settle()
        return code

    def unfit(self, why: str, now_ms: int) -> None:
        """Set why this node shall not lead while another node can.

        Args:
            why: the reason; empty when the node may lead again.
            now_ms: the time.
        """
        self._begin(now_ms)
        if why != self._node.unfit:
            self._transfer.forget_failures()
        self._node.unfit = why
        if self._leading is not None and not why:
            self._leading.handing_over = self._leading.transferee is not None
        self._settle()

    def bar(self, why: str, now_ms: int) -> None:
        """Set why this node must not lead, even when no other node can.

        Args:
            why: the reason; empty when the node may lead.
            now_ms: the time.
        """
        self._begin(now_ms)
        self._admission.bar(why)
        self._admission.judge(leads=self._leading is not None)
        self._settle()

    @property
    def barred(self) -> str:
        """Why this node must not lead; empty when it may."""
        return self._node.barred

    @property
    def handing_over(self) -> bool:
        """Whether this node leads and refuses appends, because another node is about to lead."""
        return self._leading is not None and self._leading.handing_over

    @property
    def can_hand_over(self) -> bool:
        """Whether this node leads and another node may take over leadership."""
        return self._leading is not None and self._transfer.can_leave(self._leading)

    def lag(self, peer: str) -> int | None:
        """Return how many entries a follower lacks; None when it does not answer, or this node does not lead."""
        return None if self._leading is None else self._leading.lag(peer)

    @property
    def has_ready(self) -> bool:
        """Whether there are decisions to execute."""
        return self._node.out.filled

    def ready(self) -> Ready:
        """Return the decisions to execute, each one once."""
        return self._node.out.take()

    @property
    def standing(self) -> Standing:
        """Role, term and leader at present."""
        node, leading = self._node, self._leading
        return Standing(node.role, node.term, node.leader, leading is not None and leading.serving)

    @property
    def committed(self) -> CommittedEnd:
        """The last committed entry; index -1 when it is unknown."""
        node = self._node
        index = node.committed_index
        if not 0 <= node.log.begin_index <= index:
            return CommittedEnd(index, 0)
        return CommittedEnd(index, node.log.end_of(index))

    @property
    def group_id(self) -> str:
        """Identity of the group that this node has stored; empty without one."""
        return self._node.identity.group_id

    @property
    def joined(self) -> bool:
        """Whether this node's log has equalled a leader's since its start; before, it may be of another group."""
        return self._node.joined

    @property
    def halted(self) -> str:
        """Why this node follows no further, with the remedy; empty when it follows."""
        return self._node.identity.halted

    @property
    def impaired(self) -> bool:
        """Whether the node may have lost entries, so that its vote counts only together with those of all others."""
        return self._node.impaired

    def _begin(self, now_ms: int) -> None:
        node = self._node
        node.log.settle()
        node.now_ms = max(node.now_ms, now_ms)

    def _settle(self) -> None:
        """Draw the consequences of a call: the end of a campaign, a transfer, and a change of the standing."""
        node, campaign = self._node, self._campaign
        if campaign is not None and campaign.won:
            self._campaign = None
            self._admission.note_strangers(campaign)
            if campaign.earnest:
                self._lead(campaign)
            else:
                self._stand(earnest=True)
                self._settle()
                return
        elif campaign is not None and campaign.ended:
            self._campaign = None
            self._admission.note_strangers(campaign)
            if campaign.earnest:
                self._again = not campaign.split
            self._wait(campaign.pause_ms)
        self._transfer.tick(self._leading)
        if self._campaign is not None and self._campaign.won:
            self._settle()
            return
        if self.standing != self._stood:
            self._stood = node.out.standing = self.standing

    def _lead(self, campaign: Campaign) -> None:
        node = self._node
        node.role, node.leader = NodeRole.LEADER, node.self_id
        node.identity.drawn = node.identity.claim or campaign.named or drawn_id(node.chance)
        node.identity.offered = node.identity.drawn
        self.opening = Opening(node.term, node.identity.drawn, drawn_id(node.chance))
        if node.impaired:
            # The voters have no entry that this node lacks, so this log is the group's.
            node.impaired, node.out.recovered = False, True
            node.doubted_from = NO_DOUBT
        self._again = False
        self._leading = Leading(node, campaign.began_ms)
        node.out.open_term = True
        self._leading.tick()

    def _stand(self, *, earnest: bool) -> None:
        self._campaign = Campaign(self._node, earnest=earnest, again=self._again)

    def _stand_at_once(self) -> None:
        node = self._node
        node.end_term(node.term)
        self._stand(earnest=True)

    def _wait(self, pause_ms: int) -> None:
        """Set when this node requests votes, unless it hears from a leader before.

        Args:
            pause_ms: additional pause in ms.
        """
        node, times = self._node, self._node.timings
        least, most = times.min_vote_interval_ms, times.max_vote_interval_ms
        if self._transfer.taking:
            least, most = times.min_take_leadership_vote_interval_ms, times.max_take_leadership_vote_interval_ms
        self._vote_ms = node.now_ms + node.between(least, most) + pause_ms

    def _term_ended(self) -> None:
        if self._pushes is not None:
            self._pushes.end()
        if self._following is not None:
            self._following.end()
        if self._leading is not None:
            self._leading.ended = True
        self._following = self._pushes = self._stretches = self._leading = self._campaign = None
        self._again = False
        self._node.out.open_term = False
        self._candidate_ms = self._node.now_ms
        self._wait(0)
