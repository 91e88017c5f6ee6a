"""A follower's replies to stretches of raw entries from our own leaders (docs/adr/0015).

The rule is Raft's. A follower accepts entries when it has the entry before them. It cuts an existing entry only when it
differs, together with all later ones. Term and content show whether the entry before is the same (`joint`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tianzhou.errors import ProtocolError
from tianzhou.records.entry import EntryHeader
from tianzhou.replication.dledger.following import TermFollowing
from tianzhou.replication.dledger.membership.joint import differs_from, first_of_term
from tianzhou.replication.dledger.node import Node
from tianzhou.replication.dledger.raw_entries import headers_of, same_entry
from tianzhou.wire.bodies.dledger import MOST_ENTRIES, StretchRequest, StretchResponse
from tianzhou.wire.codes import DLedgerResponseCode as Code


class StretchAnswers:
    """Replies to the stretches of one leader in one term.

    Args:
        node: the follower.
        following: the verified part of its log.
    """

    def __init__(self, node: Node, following: TermFollowing) -> None:
        self._node = node
        self._following = following

    def stretch(self, ticket: object, request: StretchRequest) -> None:
        """Reply to a stretch of the leader."""
        node, following = self._node, self._following
        previous = request.previous_index
        try:
            if request.count > MOST_ENTRIES:
                raise ProtocolError(f"{request.count} entries are more than {MOST_ENTRIES}")
            headers = headers_of(request.entries, request.count) if request.count else []
            if previous < -1 or (headers and headers[0].index != previous + 1):
                raise ProtocolError(f"its first entry does not follow entry {previous}")
            if request.previous_term < 0 <= previous and not headers:
                raise ProtocolError("it begins a log and has no entries")
        except ProtocolError as error:
            node.complain(f"a stretch of {request.leader_id} is refused: {error}")
            self._answer(ticket, Code.UNEXPECTED_ARGUMENT)
            return
        following.stated(max(request.end_index, previous + request.count))
        starts_over = False
        if request.previous_term < 0 <= previous:
            starts_over = not self._knows(headers[0], request.entries[: headers[0].size], previous)
            if starts_over and headers[0].index <= node.agreed_index:
                following.refuse_loss(headers[0].index)
                self._answer(ticket, Code.INCONSISTENT_STATE)
                return
        elif (conflict := self._conflict(request)) is not None:
            self._answer(ticket, Code.INCONSISTENT_STATE, conflict)
            return
        if not starts_over:
            following.verify(previous)
        if headers and not self._take(headers, request.entries, starts_over=starts_over):
            self._answer(ticket, Code.INCONSISTENT_STATE)
            return
        if request.settled and following.verified >= node.log.end_index >= 0:
            # All of the log equals the leader's, so it is of the leader's group.
            node.adopt(joining=True)
        following.acknowledge(previous + len(headers), ticket, self._response(previous + len(headers)))
        following.commit(request.commit_index, counts_older_terms=False)

    def _knows(self, first: EntryHeader, entry: bytes, previous: int) -> bool:
        """Whether the log has the leader's first remaining entry, or ends right before it."""
        node, log = self._node, self._node.log
        if previous >= node.doubted_from:
            return False
        if log.begin_index <= first.index <= log.end_index:
            if log.term_at(first.index) != first.term:
                return False
            return not log.is_whole(first.index) or same_entry(log.entry(first.index), entry)
        known = max(node.agreed_index, self._following.verified)
        if first.index < log.begin_index:
            return True
        # Without an identity, no evidence shows that the entries here are those of the leader's group.
        is_ours = bool(node.identity.group_id or not node.identity.offered)
        return previous == log.end_index and previous <= known and is_ours

    def _conflict(self, request: StretchRequest) -> int | None:
        """Return the index to try next when the entry before the leader's first one does not match, else None."""
        node, log, verified = self._node, self._node.log, self._following.verified
        previous = request.previous_index
        if previous <= verified or previous < log.begin_index:
            return None
        if previous > log.end_index:
            return log.end_index + 1
        if previous >= node.doubted_from:
            return node.doubted_from
        if log.term_at(previous) == request.previous_term:
            if request.group_id is not None and request.term_index is None:
                # The leader sent this before the node restarted, so it must show the content first.
                return previous
            if not differs_from(log, request):
                return None
        if previous <= node.agreed_index:
            self._following.refuse_loss(previous)
            return previous
        return max(first_of_term(log, previous), node.agreed_index + 1)

    def _take(self, headers: Sequence[EntryHeader], entries: bytes, *, starts_over: bool) -> bool:
        """Append the missing entries; return whether that was possible."""
        node, following, log = self._node, self._following, self._node.log
        at = new = 0
        if not starts_over and headers[0].index <= log.end_index:
            for header in headers:
                if header.index > log.end_index:
                    break
                is_here = header.index >= log.begin_index
                if is_here and not following.is_same(header, entries[at : at + header.size]):
                    if header.index <= max(node.agreed_index, following.verified):
                        following.refuse_loss(header.index)
                        return False
                    break
                at += header.size
                new += 1
        if new == len(headers):
            following.verify(headers[-1].index)
            return True
        keep = headers[new].index - 1
        if starts_over or keep < log.begin_index:
            keep = -1
        if why := following.replace(headers[new:] if new else headers, entries[at:] if at else entries, keep=keep):
            node.complain(f"entries of {node.leader} cannot be appended: {why}")
            return False
        return True

    def _response(self, index: int, conflict: int = -1) -> StretchResponse:
        log = self._node.log
        return StretchResponse(
            begin_index=log.begin_index, end_index=log.end_index, index=index, conflict_index=conflict
        )

    def _answer(self, ticket: object, code: Code, conflict: int = -1) -> None:
        self._node.answer(ticket, self._response(-1, conflict), code=code)
