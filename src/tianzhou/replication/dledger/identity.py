"""The identity of a group, as one of its nodes has it (docs/adr/0024).

The first leader of a group without an identity draws one. The opening record of its term carries it through the log. A
node keeps the identity from the moment when the group has committed an entry of such a term, or when the leader has
shown that the whole log of the node is its own. From then on the node refuses requests with another identity.
"""

from __future__ import annotations

from collections.abc import Callable

from tianzhou.repeats import Repeats
from tianzhou.replication.dledger.entry_log import EntryLog
from tianzhou.replication.dledger.joint import logged_group_id
from tianzhou.wire.bodies.dledger import IDENTIFYING, Request, TransferRequest, VoteRequest

_REFUSAL_SPAN_S = 60.0


class Identity:
    """Identity of a node's group, and why the node follows no further.

    Args:
        log: of the node.
        group_id: identity that the node has kept; empty without one.
        halted: why the node follows no further since an earlier start; empty when it follows.
        joining: whether the node kept the identity before it had all committed entries of that time.
        alone: whether the node was the only one of its group.

    Attributes:
        group_id: identity that the node has kept.
        halted: why the node follows no further.
        joining: whether the node may still lack committed entries. It does not name the identity in answers then, so
            that its vote counts as that of an empty node.
        alone: whether the node was the only one of its group, and has not led or followed others since. Nodes without
            an identity have never had an entry of the group then.
        lasting: whether only an empty folder ends that.
        quiet_until_ms: the node does not stand for election before, because a leader of another identity was heard.
        offered: identity of the group of the present leader; empty while no leader has named one.
    """

    def __init__(self, log: EntryLog, group_id: str, halted: str, *, joining: bool, alone: bool) -> None:
        self._log = log
        self._read_for: tuple[int, int, int] | None = None
        self._logged = ""
        self._refusals = Repeats(span_s=_REFUSAL_SPAN_S)
        self.group_id = group_id
        self.halted = halted
        self.joining = joining
        self.alone = alone
        self.lasting = bool(halted)
        self.offered = ""
        self.quiet_until_ms = 0
        self.cuts = 0

    @property
    def claim(self) -> str:
        """The identity to name to other nodes: the kept one, or else the newest one of the log."""
        if self.group_id:
            return self.group_id
        log = self._log
        # Only a new term, a cut or an expired beginning changes the identity that the log has.
        state = (log.end_term, log.begin_index, self.cuts)
        if state != self._read_for:
            self._read_for, self._logged = state, logged_group_id(log)
        return self._logged

    def refuses(self, request: Request) -> bool:
        """Whether a request comes from a node of another group, so that it counts for nothing.

        Requests of Apache's nodes and of older versions name no identity; they are accepted. A node of this version
        without an identity has either no entries, or the entries of another group: whoever has the entries of this
        group has their identity, too.
        """
        theirs = request.group_id or ""
        if not self.group_id or theirs == self.group_id:
            return False
        if theirs:
            return True
        if request.tianzhou < IDENTIFYING or isinstance(request, TransferRequest):
            return False
        return not isinstance(request, VoteRequest) or request.ledger_end_index >= 0

    def may_stand(self, now_ms: int) -> bool:
        """Whether the node may ask for votes."""
        return not self.halted or (not self.lasting and now_ms >= self.quiet_until_ms)

    def refusal_due(self, peer: str, now_ms: int) -> bool:
        """Whether the refusal of a node's request is to be logged: once a minute for each node."""
        return self._refusals.due(peer, now_ms / 1000) is not None


def drawn_id(chance: Callable[[], float]) -> str:
    """Return 128 random bits as 32 hexadecimal digits.

    Args:
        chance: numbers by chance, at least 0 and below 1.
    """
    return "".join(f"{int(chance() * 65536):04x}" for _ in range(8))
