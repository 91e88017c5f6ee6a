"""The identity of a group, as one of its nodes stores it (docs/adr/0024).

The first leader of a group without an identity draws one. The opening record of its term replicates the identity in the
log. A node stores the identity once the group has committed an entry of such a term, or once the leader has shown that
its log equals the node's whole log. From then on the node refuses requests with another identity.
"""

from __future__ import annotations

from collections.abc import Callable

from tianzhou.repeats import Repeats
from tianzhou.replication.dledger.entry_log import NodeEntryLog
from tianzhou.replication.dledger.membership.joint import logged_group_id, shares_entry
from tianzhou.wire.bodies.dledger import IDENTIFYING, Request, TransferRequest, VoteRequest

_REFUSAL_SPAN_S = 60.0


class NodeIdentity:
    """The identity of a node's group, and why the node follows no further.

    Args:
        log: of the node.
        group_id: stored identity; empty without one.
        halted: why the node follows no further since an earlier start; empty when it follows.
        joining: whether the node stored the identity before it had all committed entries of that time.
        alone: whether the node was the only one of its group.

    Attributes:
        group_id: stored identity.
        halted: why the node follows no further.
        joining: whether the node may still lack committed entries. It then sends no identity in replies, so that its
            vote counts as that of an empty node.
        alone: whether the node was the only one of its group, and has not led or followed others since. Nodes without
            an identity then have never had an entry of the group.
        lasting: whether only an empty folder ends the halt.
        quiet_until_ms: time before which the node starts no election, because a leader of another identity was heard.
        offered: identity of the group of the present leader; empty while no leader has sent one.
        drawn: identity that this node sends as the leader; empty while it does not lead.
    """

    def __init__(self, log: NodeEntryLog, group_id: str, halted: str, *, joining: bool, alone: bool) -> None:
        self._log = log
        self._read: dict[bool, tuple[tuple[int, int, int], str]] = {}
        self._refusals = Repeats(span_s=_REFUSAL_SPAN_S)
        self.group_id = group_id
        self.halted = halted
        self.joining = joining
        self.alone = alone
        self.lasting = bool(halted)
        self.offered = ""
        self.drawn = ""
        self.quiet_until_ms = 0
        self.cuts = 0

    @property
    def claim(self) -> str:
        """The identity to send to other nodes: the stored one, or else the newest one of the log."""
        return self.group_id or self.drawn or self._logged(self._log.end_index, committed=False)

    def committed_id(self, committed_index: int) -> str:
        """Return the newest identity of the committed entries in the log; empty without one."""
        return self._logged(min(committed_index, self._log.end_index), committed=True)

    def _logged(self, index: int, *, committed: bool) -> str:
        log = self._log
        if not 0 <= log.begin_index <= index:
            return ""
        # Only a new term, a cut or an expired beginning changes the identity in the log.
        state = (log.term_at(index), log.begin_index, self.cuts)
        if committed not in self._read or self._read[committed][0] != state:
            self._read[committed] = state, logged_group_id(log, index)
        return self._read[committed][1]

    def refuses(self, request: Request) -> bool:
        """Whether a request is from a node of another group, and must be refused.

        Requests of Apache's nodes and of older versions have no identity; they are accepted. A candidate of this
        version without an identity has no entries, entries of another group, or entries from one of Apache's leaders.
        An entry that both logs have tells these cases apart.
        """
        theirs = request.group_id or ""
        if not self.group_id or theirs == self.group_id:
            return False
        if theirs:
            return True
        if request.tianzhou < IDENTIFYING or isinstance(request, TransferRequest):
            return False
        if isinstance(request, VoteRequest):
            return request.ledger_end_index >= 0 and not shares_entry(self._log, request)
        return True

    def may_stand(self, now_ms: int) -> bool:
        """Whether the node may request votes."""
        return not self.halted or (not self.lasting and now_ms >= self.quiet_until_ms)

    def refusal_due(self, peer: str, now_ms: int) -> bool:
        """Whether the refusal of a node's request is due to be logged: once a minute for each node."""
        return self._refusals.due(peer, now_ms / 1000) is not None


def drawn_id(chance: Callable[[], float]) -> str:
    """Return 128 random bits as 32 hexadecimal digits.

    Args:
        chance: random numbers, at least 0 and below 1.
    """
    return "".join(f"{int(chance() * 65536):04x}" for _ in range(8))
