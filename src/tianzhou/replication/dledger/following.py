"""A node follows a leader: what it knows of the leader's log, and what may be cut and appended (broker.md §19.6).

An entry is `verified` when the leader of this term has shown that it has the same one: then all entries before are the
same too. Nothing is committed that is not verified, and nothing that is committed is ever cut.
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
    """An answer that goes out once the log is on the disk up to an entry."""

    index: int
    ticket: object
    response: Response
    members: dict[str, Any]


class TermFollowing:
    """What a node knows of the log of its leader in one term.

    Args:
        node: who follows.

    Attributes:
        verified: up to where the log is the leader's; -1 while nothing is known.
        heard_ms: when the leader was heard last.
        must_reach: what the leader's log had when it was first heard, for a node that lost entries; None as long as
            that is not known.
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
        """The leader has the same entry."""
        self.verified = max(self.verified, index)

    def stated(self, index: int) -> None:
        """The leader has so many entries."""
        if self.must_reach is None:
            self.must_reach = index

    def commit(self, index: int, *, counts_older_terms: bool) -> None:
        """The leader says what is committed.

        Args:
            index: up to where.
            counts_older_terms: whether the leader is one of Apache's, which count entries of older terms by
                themselves: such ones may be lost, so they wait here for one of the leader's term (docs/adr/0015).
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
        # An Apache leader that compares from an index below its end, as after an earlier answer of this node, states
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
        """Whether the log has an entry of the leader's; from then on it is in doubt no more.

        An entry of the same index and term can come from another group, so the bytes are compared. Those of an entry
        that the disk has changed say nothing, and its term decides.

        Args:
            header: of the leader's entry; the log has one of its index.
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
        """Say, once a term, that the leader wants entries gone that are committed.

        Args:
            index: of the first such entry that is known.
            differs: whether the leader has shown another entry of that index; this node halts then.
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
        """Append behind an entry; what stood there is cut.

        Args:
            headers: of the entries.
            entries: headers and bodies.
            keep: index of the last entry that stays; -1 when none does, and the log begins with the first of these.

        Returns:
            Why that cannot be; empty when it was done.
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
        """The log ends with an entry; -1 for a log without any."""
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
        """Answer that the log has an entry, once it is on the disk where that is asked for.

        Args:
            index: of the entry.
            ticket: of the request.
            response: the answer.
            members: of the answer.
        """
        node = self._node
        if node.synced_index is None or index <= node.synced_index:
            node.answer(ticket, response, **members)
        else:
            self._held.append(_Held(index, ticket, response, members))

    def synced(self) -> None:
        """The log is on the disk further than before."""
        node = self._node
        index = node.synced_index
        if index is None:
            return
        due = [held for held in self._held if held.index <= index]
        self._held = [held for held in self._held if held.index > index]
        for held in due:
            node.answer(held.ticket, held.response, **held.members)

    def end(self) -> None:
        """The leader is followed no more; who waits for an answer gets none that counts."""
        for held in self._held:
            self._node.answer(held.ticket, held.response, **{**held.members, "code": Code.TERM_CHANGED})
        self._held.clear()
