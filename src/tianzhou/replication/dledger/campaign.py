"""An election from the candidate's side: a pre-vote, then the request for votes (broker.md §19.3, docs/adr/0015)."""

from __future__ import annotations

from functools import partial

from tianzhou.replication.dledger.asks import Reply, Unsupported
from tianzhou.replication.dledger.membership.joint import marks_of
from tianzhou.replication.dledger.node import MOST_TERM_STEP, Node
from tianzhou.wire.bodies.dledger import (
    IDENTIFYING,
    HeartBeatRequest,
    PreVoteRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from tianzhou.wire.codes import DLedgerResponseCode as Code

_LONGER_LOG = (VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)
_NO_LEADER = (VoteResult.REJECT_ALREADY_VOTED, VoteResult.REJECT_TERM_NOT_READY)


class Campaign:
    """One round of vote requests.

    The votes of a quorum that has lost no entries win, because one of its members has every committed entry. The votes
    of all nodes win too, impaired or not, because then no longer log exists. A node with entries in doubt wins only
    with all votes, and only where too few nodes have lost nothing. A node of this version that does not send the
    identity of the candidate's group counts as impaired: its folder is empty, or was replaced by another one, and may
    lack entries that the node acknowledged. Its vote counts in full only when all nodes answer and the others refuse
    because of entries in doubt.

    Args:
        node: the candidate.
        earnest: whether this is the vote; False for the pre-vote.
        again: whether the round repeats the present term, in which this node voted for itself and no node won.

    Attributes:
        won: whether enough nodes agreed.
        ended: whether the round is over without a win.
        pause_ms: pause before the next round, in addition to the random time.
        split: whether a quorum answered and no node can win any more, so that the next round needs another term.
        earnest: the argument.
        strangers: identities of the nodes that refused the request because of another identity, by node id.
        named: identity that another node has sent, for a candidate without one.
        began_ms: start of the round.
    """

    def __init__(self, node: Node, *, earnest: bool, again: bool = False) -> None:
        self._node = node
        self.earnest = earnest
        self.began_ms = node.now_ms
        self.won = node.quorum == 1
        self.ended = False
        self.pause_ms = 0
        self.split = False
        self._agreed = {node.self_id}
        self._sound = set() if node.impaired or node.identity.joining else {node.self_id}
        # Nodes that agreed and have no identity: they may have lost their folders, or may never have had an entry.
        self._new: set[str] = set()
        # Nodes with a longer log that has entries in doubt.
        self._doubted_longer: set[str] = set()
        self._asked = set(node.others)
        self._longer: set[str] = set()
        self._replied: set[str] = set()
        # Terms of Apache's nodes with a longer log, by node id.
        self._foreign: dict[str, int] = {}
        self.strangers: dict[str, str] = {}
        self.named = ""
        self._valid = 1
        self._marks = marks_of(node.log)
        self._again: list[tuple[int, str]] = []
        times = node.timings
        self._until_ms = node.now_ms + times.vote_wait_ms + node.between(0, times.max_vote_interval_ms)
        if earnest and not again:
            node.persist(node.term + 1, node.self_id)
        for peer in node.others:
            self._ask(peer)

    def tick(self) -> None:
        """Repeat due requests, and end the round after its time limit."""
        now_ms = self._node.now_ms
        if now_ms >= self._until_ms:
            self._end()
            return
        due = [peer for at_ms, peer in self._again if at_ms <= now_ms]
        self._again = [(at_ms, peer) for at_ms, peer in self._again if at_ms > now_ms]
        for peer in due:
            self._ask(peer)

    def _ask(self, peer: str) -> None:
        node = self._node
        kind = VoteRequest if self.earnest else PreVoteRequest
        request = kind(
            ledger_end_index=node.log.end_index,
            ledger_end_term=node.log.end_term,
            marks=self._marks,
            term=node.term if self.earnest else node.term + 1,
        )
        node.ask(peer, request, node.timings.request_limit_ms, partial(self._answered, peer))

    def _ask_foreign(self, peer: str) -> None:
        """Ask one of Apache's nodes, which do not support the pre-vote, for a vote of the present term.

        Its answer shows whether it has a leader or a longer log, and a vote of this term does no harm.
        """
        node = self._node
        request = VoteRequest(ledger_end_index=node.log.end_index, ledger_end_term=node.log.end_term, term=node.term)
        node.ask(peer, request, node.timings.request_limit_ms, partial(self._answered, peer))

    def _answered(self, peer: str, reply: Reply) -> None:
        if self.won or self.ended:
            return
        if isinstance(reply, Unsupported):
            self._ask_foreign(peer)
            return
        if isinstance(reply, VoteResponse):
            self._replied.add(peer)
            if self._is_of_group(peer, reply):
                self._counted(peer, reply)
        self._asked.discard(peer)
        node = self._node
        if self._is_enough():
            self.won = True
        elif len(node.others) + 1 - len(self._longer) < node.quorum:
            self.ended = True
            self.pause_ms = max(self.pause_ms, node.timings.max_vote_interval_ms)
        elif not self._asked and not self._again:
            self._end()

    def _end(self) -> None:
        self.ended = True
        self.split = self._valid >= self._node.quorum
        if self._foreign and not self.earnest and len(self._replied) < len(self._node.others):
            self._have_stand(*min(self._foreign.items()))

    def _have_stand(self, peer: str, term: int) -> None:
        """Make an Apache node start an election now, because its log is longer than the log of this node.

        No node knows a leader, and a node that does not answer may be the former leader. Apache's node may wait for
        eight seconds before its next vote request. It then requests votes in the old term first, in which all nodes
        have voted. A heartbeat of a later term makes it request votes in that term within a second, and does not make
        it a follower (broker.md §19.4).

        Args:
            peer: id of the node.
            term: term of the node's answer.
        """
        node = self._node
        # Send one term more than necessary. The node may have raised its term by one since its answer, and a heartbeat
        # of its own term would make it a follower.
        request = HeartBeatRequest(term=max(term, node.term) + 2)
        node.ask(peer, request, node.timings.request_limit_ms, lambda reply: None)

    def _is_of_group(self, peer: str, response: VoteResponse) -> bool:
        """Whether a node's answer counts for this node's group."""
        identity, theirs = self._node.identity, response.group_id or ""
        mine = identity.group_id
        if theirs and not identity.claim:
            self.named = theirs
        if response.code != Code.UNKNOWN_GROUP:
            return True
        if theirs and mine and theirs != mine:
            self.strangers[peer] = theirs
        return False

    def _is_enough(self) -> bool:
        node = self._node
        if self.named and node.log.end_index < 0:
            # The group exists, so a node without entries must not found another group with nodes like itself.
            return False
        soundly, by_all = len(self._sound) >= node.quorum, len(self._agreed) > len(node.others)
        if node.doubted_from <= node.log.end_index:
            # A quorum that has lost nothing has all committed entries in their original form, so one of its nodes must
            # lead.
            return by_all and len(self._sound) + len(self._new) < node.quorum
        if soundly or by_all:
            return True
        # All nodes answer, and the refusing nodes have entries in doubt. They cannot win while this node can.
        all_there = len(self._agreed | self._doubted_longer) > len(node.others)
        return all_there and len(self._sound) + len(self._new) >= node.quorum

    def _counted(self, peer: str, response: VoteResponse) -> None:
        node = self._node
        result = response.vote_result
        # A node that is not ready yet may still vote in this term.
        self._valid += result not in (VoteResult.UNKNOWN, VoteResult.REJECT_TERM_NOT_READY)
        if result is VoteResult.ACCEPT or (not self.earnest and result in _NO_LEADER and response.term <= node.term):
            self._agreed.add(peer)
            mine = node.identity.group_id
            is_new = (
                bool(mine)
                and not node.identity.alone
                and response.tianzhou >= IDENTIFYING
                and response.group_id != mine
            )
            if not response.impaired:
                (self._new if is_new else self._sound).add(peer)
        elif result is VoteResult.REJECT_TERM_NOT_READY:
            self._again.append((node.now_ms + node.timings.ask_again_ms, peer))
        elif result is VoteResult.REJECT_ALREADY_HAS_LEADER:
            self.ended = True
            # In the vote, that leader is one of this term and will send heartbeats.
            self.pause_ms = node.timings.leader_wait_ms if self.earnest else 0
        elif node.term < response.term <= node.term + MOST_TERM_STEP:
            self.ended = True
            node.end_term(response.term)
        elif self.earnest and result is VoteResult.REJECT_ALREADY_VOTED:
            # Another node is a candidate too, so do not wait the full time for nodes that do not answer.
            times = node.timings
            until_ms = node.now_ms + node.between(times.min_vote_interval_ms, times.max_vote_interval_ms)
            self._until_ms = min(self._until_ms, until_ms)
        elif result in _LONGER_LOG:
            self._longer.add(peer)
            if response.doubted:
                self._doubted_longer.add(peer)
            if not response.tianzhou:
                self._foreign[peer] = response.term
