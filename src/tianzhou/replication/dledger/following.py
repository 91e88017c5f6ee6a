"""A follower's state: the agreed part of the log, and the rules for cuts and appends (broker.md §19.6).

An entry is `verified` when the leader of this term has shown that it has the same entry. Then all entries before it are
equal too. A node commits verified entries only, and never cuts committed entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tianzhou.records.entry import EntryHeader
from tianzhou.replication.dledger.node import NO_DOUBT, Node
from tianzhou.replication.dledger.raw_entries import Fit, misfit, same_entry, spoiled
from tianzhou.wire.bodies.dledger import Response
from tianzhou.wire.codes import DLedgerResponseCode as Code


@dataclass(frozen=True, slots=True)
class _Held:
    """A reply that waits until the log is synced up to an entry."""

    index: int
    ticket: object
    response: Response
    members: dict[str, Any]


class TermFollowing:
    """The part of the leader's log that a follower has verified in one term.

    Args:
        node: the follower.

    Attributes:
        verified: index up to which the log equals the leader's; -1 while unknown.
        heard_ms: when the leader was last heard.
        must_reach: last index of the leader's log at the first contact, for a node that lost entries; None while
            unknown.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.verified = -1
        self.heard_ms = node.now_ms
        self.must_reach: int | None = None
        self._leader_committed = -1
        self._held: list[_Held] = []
        self._refused = False

    def verify(self, index: int) -> None:
        """Note that the leader has the same entry."""
        self.verified = max(self.verified, index)

    def stated(self, index: int) -> None:
        """Note the leader's last index, once."""
        if self.must_reach is None:
            self.must_reach = index

    def commit(self, index: int, *, counts_older_terms: bool) -> None:
        """Commit up to the index that the leader has sent.

        Args:
            index: last committed index of the leader.
            counts_older_terms: whether the leader is one of Apache's nodes, which commit entries of older terms alone.
                Such entries may be lost, so this node waits for a committed entry of the leader's term (docs/adr/0015).
        """
        node = self._node
        if node.identity.halted:
            return
        self._leader_committed = max(self._leader_committed, index)
        index = min(index, self.verified)
        if index > node.agreed_index and (not counts_older_terms or node.log.term_at(index) == node.term):
            node.commit(index)
        elif node.committed_index <= self.verified:
            node.joined = node.joined or self.verified >= 0
            node.adopt_committed()
        self._recover()

    def _recover(self) -> None:
        # An Apache leader that compares from an index below its end, as after an earlier answer of this node, sends
        # fewer entries than it has. It may have counted entries as committed that this node had before its loss.
        node = self._node
        reached = node.committed_index
        if (
            node.impaired
            and self.must_reach is not None
            and self.verified >= max(self.must_reach, self._leader_committed)
            and 0 <= node.log.begin_index <= reached
            and node.log.term_at(reached) == node.term
        ):
            node.impaired = False
            node.out.recovered = True

    def is_same(self, header: EntryHeader, entry: bytes) -> bool:
        """Whether the log has an entry of the leader's; an equal entry is in doubt no more.

        An entry of the same index and term can be from another group, so the bytes are compared. The bytes of a damaged
        entry prove nothing, so its term decides.

        Args:
            header: of the leader's entry; the log has an entry of its index.
            entry: header and body.
        """
        node, log = self._node, self._node.log
        index = header.index
        if log.term_at(index) != header.term:
            return False
        if index < node.doubted_from:
            return index <= self.verified or not log.is_whole(index) or same_entry(log.entry(index), entry)
        if not (log.is_whole(index) and same_entry(log.entry(index), entry)):
            return False
        node.doubted_from = index + 1 if index < log.end_index else NO_DOUBT
        return True

    def refuse_loss(self, index: int, *, differs: bool = True) -> None:
        """Complain, once a term, that the leader asks to cut committed entries.

        Args:
            index: of the first known entry of this kind.
            differs: whether the leader has shown another entry of that index; then this node halts.
        """
        node = self._node
        if self._refused or node.identity.halted:
            return
        self._refused = True
        reason = (
            f"{node.leader}, which leads in term {node.term}, has no entry {index} as this node has it, where entries "
            f"up to {node.committed_index} are committed: one of them lost what the group had acknowledged; this node "
            "keeps its log and follows no further. If the leader's log is the one to keep, empty this node's store"
        )
        node.complain(reason)
        if differs and index <= node.committed_index:
            node.halt(reason, lasting=True)

    def replace(self, headers: Sequence[EntryHeader], entries: bytes, *, keep: int) -> str:
        """Append entries after an entry; the entries that followed it are cut.

        Args:
            headers: of the entries.
            entries: headers and bodies.
            keep: index of the last entry that stays; -1 when none stays, and the log begins with the new entries.

        Returns:
            Why the entries cannot be appended; empty when they were.
        """
        node, log = self._node, self._node.log
        if keep < 0:
            end = Fit(headers[0].index - 1, -1, None)
        elif keep == log.end_index:
            end = Fit(keep, log.end_term, log.end_position)
        else:
            end = Fit(keep, log.term_at(keep), log.end_of(keep))
        if why := misfit(log, end, headers, node.term) or spoiled(entries):
            return why
        if keep < log.end_index:
            self.cut(keep)
        log.append(headers, entries)
        self.verified = headers[-1].index
        return ""

    def cut(self, keep: int) -> None:
        """Cut the log after an entry; -1 clears the log."""
        node = self._node
        node.log.cut(keep, whole_log=keep < 0)
        node.identity.cuts += 1
        if keep < node.doubted_from:
            node.doubted_from = NO_DOUBT
        if node.synced_index is not None:
            node.synced_index = min(node.synced_index, keep)
        gone = [held for held in self._held if held.index > keep]
        self._held = [held for held in self._held if held.index <= keep]
        for held in gone:
            node.answer(held.ticket, held.response, **{**held.members, "code": Code.INCONSISTENT_STATE})

    def acknowledge(self, index: int, ticket: object, response: Response, **members: Any) -> None:
        """Reply that the log has an entry; with synchronous flush, once the entry is synced.

        Args:
            index: of the entry.
            ticket: of the request.
            response: the reply.
            members: fields of the reply.
        """
        node = self._node
        if node.synced_index is None or index <= node.synced_index:
            node.answer(ticket, response, **members)
        else:
            self._held.append(_Held(index, ticket, response, members))

    def synced(self) -> None:
        """Send the replies that waited for the sync of their entries."""
        node = self._node
        index = node.synced_index
        if index is None:
            return
        due = [held for held in self._held if held.index <= index]
        self._held = [held for held in self._held if held.index > index]
        for held in due:
            node.answer(held.ticket, held.response, **held.members)

    def end(self) -> None:
        """Reply TERM_CHANGED to the waiting requests, because this node no longer follows the leader."""
        for held in self._held:
            self._node.answer(held.ticket, held.response, **{**held.members, "code": Code.TERM_CHANGED})
        self._held.clear()
