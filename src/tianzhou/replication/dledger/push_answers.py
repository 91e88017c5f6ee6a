"""A follower's replies to the pushes of DLedger's leaders (broker.md §19.6)."""

from __future__ import annotations

from collections.abc import Sequence

from tianzhou.errors import ProtocolError
from tianzhou.records.entry import EntryHeader
from tianzhou.replication.dledger.following import TermFollowing
from tianzhou.replication.dledger.node import Node
from tianzhou.replication.dledger.raw_entries import from_json, headers_of, same_entry
from tianzhou.replication.dledger.waiting_pushes import WaitingPush, WaitingPushes
from tianzhou.wire.bodies.dledger import PushRequest, PushResponse, PushType
from tianzhou.wire.codes import DLedgerResponseCode as Code


class PushAnswers:
    """Replies to the pushes of one leader in one term.

    Args:
        node: the follower.
        following: the verified part of its log.
    """

    def __init__(self, node: Node, following: TermFollowing) -> None:
        self._node = node
        self._following = following
        self._waiting = WaitingPushes(node.timings)

    def push(self, ticket: object, request: PushRequest) -> None:
        """Reply to a push of the leader."""
        if request.type is PushType.COMMIT:
            self._commit(request.commit_index)
            self._answer(ticket, Code.SUCCESS, None, 0)
            return
        try:
            raw = [from_json(entry) for entry in request.entries]
            entries = b"".join(raw)
            headers: Sequence[EntryHeader] = headers_of(entries, len(raw))
        except ProtocolError as error:
            self._node.complain(f"a push of {request.leader_id} is refused: {error}")
            headers = []
        if not headers or (request.type is not PushType.APPEND and len(headers) > 1):
            self._answer(ticket, Code.UNEXPECTED_ARGUMENT, None, 0)
            return
        self._following.stated(headers[-1].index)
        if request.type is PushType.APPEND:
            self._append(ticket, headers, entries, request.commit_index)
            return
        self._drop_waiting()
        if request.type is PushType.COMPARE:
            self._compare(ticket, headers[0], entries)
        else:
            self._truncate(ticket, headers[0], entries)
        self._commit(request.commit_index)

    def _commit(self, index: int) -> None:
        self._following.commit(index, counts_older_terms=True)

    def _has(self, header: EntryHeader, entry: bytes) -> bool:
        node, log, index = self._node, self._node.log, header.index
        if not log.begin_index <= index <= log.end_index or index > node.doubted_from:
            # An equal entry proves nothing of earlier entries in doubt, so they are cut and sent again.
            return False
        if index == node.doubted_from:
            return self._following.is_same(header, entry)
        if not log.is_whole(index):
            # The entry was damaged on the disk; an equal term counts as equal.
            return log.term_at(index) == header.term
        return same_entry(log.entry(index), entry)

    def _compare(self, ticket: object, header: EntryHeader, entry: bytes) -> None:
        if self._has(header, entry):
            self._following.verify(header.index)
            self._acknowledge(ticket, header.index, 1)
        else:
            if self._differs(header, entry):
                self._following.refuse_loss(header.index)
            self._answer(ticket, Code.INCONSISTENT_STATE, header.index, 1)

    def _differs(self, header: EntryHeader, entry: bytes) -> bool:
        """Whether the log has another committed entry than the leader at this index."""
        node, log, index = self._node, self._node.log, header.index
        if not log.begin_index <= index <= min(log.end_index, node.committed_index) or index >= node.doubted_from:
            return False
        return not self._has(header, entry)

    def _truncate(self, ticket: object, header: EntryHeader, entry: bytes) -> None:
        following, node, log = self._following, self._node, self._node.log
        index = header.index
        if self._has(header, entry):
            # Verified entries are in the leader's log. A late request, sent before they were appended, must not cut
            # them.
            following.verify(index)
            keep = following.verified
            if keep < node.agreed_index:
                following.refuse_loss(keep + 1, differs=False)
                self._answer(ticket, Code.INCONSISTENT_STATE, index, 1)
                return
            if keep < log.end_index:
                following.cut(keep)
        elif index <= max(node.agreed_index, following.verified) and node.doubted_from > log.begin_index:
            following.refuse_loss(index, differs=self._differs(header, entry))
            self._answer(ticket, Code.INCONSISTENT_STATE, index, 1)
            return
        elif self._parted_before(header):
            following.refuse_loss(index - 1)
            self._answer(ticket, Code.INCONSISTENT_STATE, index, 1)
            return
        elif why := following.replace([header], entry, keep=self._last_to_stay(index)):
            node.complain(f"entry {index} of {node.leader} cannot be appended: {why}")
            self._answer(ticket, Code.INCONSISTENT_STATE, index, 1)
            return
        self._acknowledge(ticket, index, 1)

    def _last_to_stay(self, index: int) -> int:
        """Return the index of the entry that the leader's first entry follows; -1 when the log starts over with it."""
        node, log = self._node, self._node.log
        before = index - 1
        known = max(node.agreed_index, self._following.verified)
        return before if before == known and 0 <= log.begin_index <= before <= log.end_index else -1

    def _parted_before(self, header: EntryHeader) -> bool:
        """Whether the term of the committed entry before a leader's entry shows that the leader has another one.

        Terms never decrease in a log. So the leader's log diverged from this one, although its first entry cannot show
        the place.
        """
        node, before = self._node, header.index - 1
        return (
            0 <= node.log.begin_index <= before <= min(node.committed_index, node.log.end_index)
            and before < node.doubted_from
            and before == self._last_to_stay(header.index)
            and node.log.term_at(before) > header.term
        )

    def _append(self, ticket: object, headers: Sequence[EntryHeader], entries: bytes, commit_index: int) -> None:
        following, node, log = self._following, self._node, self._node.log
        first, last, count = headers[0].index, headers[-1].index, len(headers)
        if first <= log.end_index:
            if last <= following.verified:
                self._acknowledge(ticket, first, count)
                self._commit(commit_index)
                return
            if following.verified < log.end_index:
                self._answer(ticket, Code.INCONSISTENT_STATE, first, count)
                return
            new = log.end_index + 1 - first
            entries = entries[sum(header.size for header in headers[:new]) :]
            self._extend(ticket, first, count, headers[new:], entries, commit_index)
        elif following.verified < log.end_index or log.end_index < 0:
            self._answer(ticket, Code.INCONSISTENT_STATE, first, count)
        elif first == log.end_index + 1:
            self._extend(ticket, first, count, headers, entries, commit_index)
        elif first in self._waiting:
            self._answer(ticket, Code.REPEATED_PUSH, first, count)
        elif not self._waiting.has_room(len(entries)):
            self._answer(ticket, Code.PUSH_REQUEST_IS_FULL, first, count)
        else:
            until_ms = node.now_ms + node.timings.max_push_time_out_ms
            self._waiting.add(WaitingPush(ticket, first, count, entries, commit_index, until_ms))

    def _extend(
        self, ticket: object, first: int, count: int, headers: Sequence[EntryHeader], entries: bytes, commit_index: int
    ) -> None:
        """Append entries to the end, and then the waiting pushes that follow them."""
        node, log = self._node, self._node.log
        push: WaitingPush | None = WaitingPush(ticket, first, count, entries, commit_index, 0)
        while push is not None:
            if why := self._following.replace(headers, push.entries, keep=log.end_index):
                node.complain(f"entries of {node.leader} cannot be appended: {why}")
                self._answer(push.ticket, Code.INCONSISTENT_STATE, push.first, push.count)
                return
            self._acknowledge(push.ticket, push.first, push.count)
            self._commit(push.commit_index)
            push = self._waiting.pop(log.end_index + 1)
            headers = [] if push is None else headers_of(push.entries, push.count)

    def tick(self) -> None:
        """Reject waiting pushes after their time limit, so that the leader sends the missing entries again."""
        for push in self._waiting.pop_overdue(self._node.now_ms):
            self._answer(push.ticket, Code.INCONSISTENT_STATE, push.first, push.count)

    def end(self) -> None:
        """Drop waiting pushes, because this node no longer follows the leader."""
        self._drop_waiting()

    def _drop_waiting(self) -> None:
        for push in self._waiting.pop_all():
            self._answer(push.ticket, Code.INCONSISTENT_INDEX, push.first, push.count)

    def _response(self, index: int | None, count: int) -> PushResponse:
        log = self._node.log
        return PushResponse(begin_index=log.begin_index, end_index=log.end_index, index=index, count=count)

    def _answer(self, ticket: object, code: Code, index: int | None, count: int) -> None:
        self._node.answer(ticket, self._response(index, count), code=code)

    def _acknowledge(self, ticket: object, first: int, count: int) -> None:
        self._following.acknowledge(first + count - 1, ticket, self._response(first, count))
