"""What the parts of a member share: term, vote, role, log, and how to ask and to answer."""

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
"""A term that is further above the own one than this is nobody's: no group has so many elections."""
NO_DOUBT: Final = 1 << 62
"""`Node.doubted_from` of a log that is what was written."""


class Node:
    """State of a member that more than one of its parts needs.

    Args:
        group: name of the group.
        self_id: id of this node.
        peers: ids of all nodes.
        log: the node's log.
        hard_state: term and vote as persisted.
        timings: times and bounds.
        chance: numbers by chance, at least 0 and below 1.
        now_ms: the time.
        group_id: identity of the group as persisted; empty without one.
        halted: why the node follows no further since an earlier start; empty when it follows.
        joining: whether the node may lack entries that were committed when it kept the identity.
        alone: whether the node was the only one of its group.

    Attributes:
        others: ids of the other nodes.
        quorum: how many nodes decide.
        role: see `NodeRole`.
        leader: who leads in `term`, if known.
        committed_index: the log is the group's up to here.
        synced_index: it is on the disk up to here; None when that is not asked for.
        impaired: whether this node may have lost entries that it acknowledged.
        doubted_from: index from which on entries may not be what was written, although they look whole: each has to be
            compared with the leader's, byte by byte. `NO_DOUBT` where none is in doubt.
        unfit: why this node shall not lead while another node can; empty when it may. It then does not stand for
            election, does not take leadership over, and hands leadership over when it leads.
        barred: why this node must not lead, whoever else can; empty when it may.
        term_ended: called when a term or a leadership ends, before the next begins.
        out: what is to be done.
        asks: requests that wait for an answer.
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
            # The vote of the log's term is lost; a vote for itself is one that it gives to nobody else.
            self.persist(log.end_term, self_id)

    @property
    def stored_index(self) -> int:
        """Up to where this node counts as having the log."""
        end = self.log.end_index
        return end if self.synced_index is None else min(end, self.synced_index)

    @property
    def agreed_index(self) -> int:
        """Up to where nothing may ever be cut: what is committed, and what was before the log's begin."""
        return max(self.committed_index, self.log.begin_index - 1)

    def between(self, least: int, most: int) -> int:
        """A number by chance, at least one and below the other."""
        return least + int(self.chance() * (most - least))

    def persist(self, term: int, vote: str | None) -> None:
        """Term and vote from now on."""
        self.term = term
        self.vote = vote
        self.out.hard_state = HardState(term, vote)

    def end_term(self, term: int) -> None:
        """A term ends: nobody is known to lead, and this node asks for votes later.

        Args:
            term: the one that begins; the same when only the leadership ends.
        """
        self.role = NodeRole.CANDIDATE
        self.leader = None
        self.identity.offered = self.identity.drawn = ""
        if term > self.term:
            self.persist(term, None)
        self.term_ended()

    def commit(self, index: int) -> None:
        """The log is the group's up to an entry that is in it."""
        if index > self.committed_index:
            self.committed_index, self.joined = index, True
            self.out.committed = CommittedEnd(index, self.log.end_of(index))
        self.adopt_committed()

    def adopt_committed(self) -> None:
        """Keep the identity that a committed opening record carries, or that the leader of the term names.

        Once an entry of the leader's term is committed here, the node has all that was committed before that term.
        """
        log, index, identity = self.log, self.committed_index, self.identity
        if not identity.group_id and (found := identity.committed_id(index)):
            # A leader of Apache's names no identity, and its log may have one.
            identity.group_id, identity.joining = found, True
            self._keep()
        if not 0 <= log.begin_index <= index <= log.end_index or log.term_at(index) != self.term:
            return
        self.adopt(joining=False)
        if identity.group_id and (identity.joining or identity.alone == bool(self.others)):
            identity.joining, identity.alone = False, not self.others
            self._keep()

    def adopt(self, *, joining: bool) -> None:
        """Keep the identity that the leader names, where the node has none: the group has committed it.

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
        """Follow no further: the node keeps its log, does not vote and does not stand for election.

        Args:
            reason: why, with the remedy.
            lasting: whether that survives a restart. Otherwise the next request of the own group ends it, or a round of
                questions in which fewer nodes have another identity.
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
            request: without the members that all requests have.
            limit_ms: time after which `then` gets None.
            then: gets the answer.

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
        """Answer a request.

        Args:
            ticket: of the request.
            response: without the members that all answers have.
            members: further ones, such as `code`.
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
        """Say something to the operator."""
        self.out.complaints.append(text)
