"""The state that the parts of a member share: term, vote, role, log, requests and replies."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from tianzhou.errors import ConfigError
from tianzhou.replication.dledger.asks import Asks, Then
from tianzhou.replication.dledger.entry_log import NodeEntryLog
from tianzhou.replication.dledger.log_view import LogView
from tianzhou.replication.dledger.membership.identity import NodeIdentity
from tianzhou.replication.dledger.outbox import ReadyBuilder
from tianzhou.replication.dledger.ready import CommittedEnd, HardState, Keep, NodeAnswer, NodeRole, RequestToSend
from tianzhou.replication.dledger.timings import Timings
from tianzhou.wire.bodies.dledger import IDENTIFYING, Request, Response

MOST_TERM_STEP: Final = 1 << 32
"""Maximum difference between a received term and the own one. No group has so many elections, so a larger term is
invalid."""
NO_DOUBT: Final = 1 << 62
"""`Node.doubted_from` of a log without entries in doubt."""


class Node:
    """The state of a member that several of its parts use.

    Args:
        group: name of the group.
        self_id: id of this node.
        peers: ids of all nodes.
        log: the node's log.
        hard_state: persisted term and vote.
        timings: time limits and bounds.
        chance: random numbers, at least 0 and below 1.
        now_ms: the time.
        group_id: persisted identity of the group; empty without one.
        halted: why the node follows no further since an earlier start; empty when it follows.
        joining: whether the node may lack entries that were committed when it stored the identity.
        alone: whether the node was the only one of its group.

    Attributes:
        others: ids of the other nodes.
        quorum: number of nodes that decide.
        role: see `NodeRole`.
        leader: id of the leader in `term`, if known.
        committed_index: last committed index.
        synced_index: last synced index; None without synchronous flush.
        impaired: whether this node may have lost entries that it acknowledged.
        doubted_from: index from which entries may differ from the written ones although they look whole. Each must be
            compared with the leader's, byte by byte. `NO_DOUBT` without such entries.
        unfit: why this node shall not lead while another node can; empty when it may. An unfit node starts no election,
            does not take over leadership, and transfers its leadership.
        barred: why this node must not lead, whether or not another node can; empty when it may.
        term_ended: called when a term or a leadership ends, before the next begins.
        out: pending decisions.
        asks: requests that wait for a reply.
        identity: of the group.
    """

    def __init__(
        self,
        group: str,
        self_id: str,
        peers: Collection[str],
        log: NodeEntryLog,
        hard_state: HardState,
        timings: Timings,
        chance: Callable[[], float],
        now_ms: int,
        group_id: str = "",
        halted: str = "",
        joining: bool = False,
        alone: bool = False,
    ) -> None:
        if self_id not in peers:
            raise ConfigError(f"{self_id!r} is not among the peers of the group {group!r}: {', '.join(sorted(peers))}")
        self.group = group
        self.self_id = self_id
        self.others = tuple(sorted(set(peers) - {self_id}))
        self.quorum = (len(self.others) + 1) // 2 + 1
        self.out = ReadyBuilder()
        self.log = LogView(log, self.out)
        self.timings = timings
        self.chance = chance
        self.now_ms = now_ms
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.role = NodeRole.CANDIDATE
        self.leader: str | None = None
        self.committed_index = -1
        self.synced_index: int | None = None
        self.impaired = self.joined = False
        self.doubted_from = NO_DOUBT
        self.unfit = self.barred = ""
        self.asks = Asks()
        self.identity = NodeIdentity(self.log, group_id, halted, joining=joining, alone=alone)
        self.term_ended: Callable[[], None] = lambda: None
        if log.end_term > self.term:
            # The vote of the log's term is lost. A vote for itself prevents a second vote for another node.
            self.persist(log.end_term, self_id)

    @property
    def stored_index(self) -> int:
        """Last index that counts as stored at this node."""
        end = self.log.end_index
        return end if self.synced_index is None else min(end, self.synced_index)

    @property
    def agreed_index(self) -> int:
        """Last index that must never be cut: the last committed entry, or the entry before the log's begin."""
        return max(self.committed_index, self.log.begin_index - 1)

    def between(self, least: int, most: int) -> int:
        """Return a random number, at least `least` and below `most`."""
        return least + int(self.chance() * (most - least))

    def persist(self, term: int, vote: str | None) -> None:
        """Set and persist term and vote."""
        self.term = term
        self.vote = vote
        self.out.hard_state = HardState(term, vote)

    def end_term(self, term: int) -> None:
        """End a term: the leader is unknown, and this node requests votes later.

        Args:
            term: the term that begins; the present one when only the leadership ends.
        """
        self.role = NodeRole.CANDIDATE
        self.leader = None
        self.identity.offered = self.identity.drawn = ""
        if term > self.term:
            self.persist(term, None)
        self.term_ended()

    def commit(self, index: int) -> None:
        """Commit the log up to one of its entries."""
        if index > self.committed_index:
            self.committed_index, self.joined = index, True
            self.out.committed = CommittedEnd(index, self.log.end_of(index))
        self.adopt_committed()

    def adopt_committed(self) -> None:
        """Store the identity of a committed opening record, or the one that the leader of the term has sent.

        Once an entry of the leader's term is committed here, the node has all entries committed before that term.
        """
        log, index, identity = self.log, self.committed_index, self.identity
        if not identity.group_id and (found := identity.committed_id(index)):
            # An Apache leader sends no identity, and its log may have one.
            identity.group_id, identity.joining = found, True
            self._keep()
        if not 0 <= log.begin_index <= index <= log.end_index or log.term_at(index) != self.term:
            return
        self.adopt(joining=False)
        if identity.group_id and (identity.joining or identity.alone == bool(self.others)):
            identity.joining, identity.alone = False, not self.others
            self._keep()

    def adopt(self, *, joining: bool) -> None:
        """Store the identity that the leader has sent, when the node has none: the group has committed it.

        Args:
            joining: whether the node may still lack entries that the group has committed.
        """
        identity = self.identity
        if not identity.offered or (identity.group_id and identity.joining <= joining):
            return
        identity.group_id = identity.group_id or identity.offered
        identity.joining = joining
        self._keep()

    def _keep(self) -> None:
        identity = self.identity
        halted = identity.halted if identity.lasting else ""
        self.out.keep = Keep(identity.group_id, halted, identity.joining, identity.alone)

    def halt(self, reason: str, *, lasting: bool) -> None:
        """Follow no further: the node does not change its log, does not vote and starts no election.

        Args:
            reason: why, with the remedy.
            lasting: whether the halt survives a restart. Otherwise it ends with the next request of the own group, or
                with a campaign in which fewer nodes have another identity.
        """
        identity = self.identity
        is_new = reason != identity.halted
        identity.halted, identity.lasting = reason, lasting
        identity.quiet_until_ms = self.now_ms + 2 * self.timings.leader_wait_ms
        if lasting:
            self._keep()
        if is_new:
            self.end_term(self.term)

    def ask(self, peer: str, request: Request, limit_ms: int, then: Then) -> int:
        """Send a request.

        Args:
            peer: id of the node.
            request: without the fields that all requests have.
            limit_ms: time in ms after which `then` gets None.
            then: gets the reply.

        Returns:
            The request's number.
        """
        request.group = self.group
        request.leader_id = request.local_id = self.self_id
        request.remote_id = peer
        if request.term < 0:
            request.term = self.term
        request.group_id = self.identity.claim or None
        request.tianzhou = IDENTIFYING
        number = self.asks.add(self.now_ms + limit_ms, then)
        self.out.sends.append(RequestToSend(number, peer, request, limit_ms))
        return number

    def answer(self, ticket: object, response: Response, **members: Any) -> None:
        """Reply to a request.

        Args:
            ticket: of the request.
            response: without the fields that all responses have.
            members: further fields, such as `code`.
        """
        response.group = self.group
        response.local_id = self.self_id
        response.leader_id = self.leader
        response.term = self.term
        response.group_id = None if self.identity.joining else self.identity.claim or None
        response.tianzhou = IDENTIFYING
        for name, value in members.items():
            setattr(response, name, int(value) if name == "code" else value)
        self.out.answers.append(NodeAnswer(ticket, response))

    def complain(self, text: str) -> None:
        """Report a complaint to the operator."""
        self.out.complaints.append(text)
