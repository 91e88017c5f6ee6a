"""The decisions of a group's member."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tianzhou.wire.bodies.dledger import Request, Response


class NodeRole(enum.Enum):
    """Role of a node (broker.md §19.1)."""

    CANDIDATE = "CANDIDATE"
    FOLLOWER = "FOLLOWER"
    LEADER = "LEADER"


@dataclass(frozen=True, slots=True)
class HardState:
    """The state that a node must persist (the file `currterm`).

    Attributes:
        term: the highest known term.
        vote: id of the node that got the vote in that term; None without a vote.
    """

    term: int = 0
    vote: str | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut of the end of the log.

    Attributes:
        index: of the first entry to remove; all later ones are removed too.
        position: log offset where the log ends after the cut.
        whole_log: whether the whole log is removed and the next entry may have any index and position, because the
            leader's log begins after this log's end.
    """

    index: int
    position: int
    whole_log: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Entries to append unchanged; they have been checked to fit.

    Attributes:
        index: of the first one.
        count: number of entries.
        position: log offset of the first one.
        entries: consecutive headers and bodies; every header has its own log offset.
    """

    index: int
    count: int
    position: int
    entries: bytes


@dataclass(frozen=True, slots=True)
class RequestToSend:
    """A request to send.

    Attributes:
        number: identifies the request; the response has it too. A member never uses a number twice.
        peer: id of the node.
        request: the request.
        limit_ms: time in ms after which the response is of no use.
    """

    number: int
    peer: str
    request: Request
    limit_ms: int


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """A reply to send.

    Attributes:
        ticket: of the request.
        response: the reply.
    """

    ticket: object
    response: Response


@dataclass(frozen=True, slots=True)
class Standing:
    """The role of a node at present.

    Attributes:
        role: its role.
        term: its term.
        leader: id of the leader; None while no leader is known.
        serving: whether it leads, has committed an entry of its term, and has heard from a quorum so recently that the
            nodes of that quorum cannot have elected another leader.
    """

    role: NodeRole
    term: int
    leader: str | None
    serving: bool


@dataclass(frozen=True, slots=True)
class CommittedEnd:
    """The committed part of the log, which no later leader changes.

    Attributes:
        index: of the last committed entry.
        position: log offset after it.
    """

    index: int
    position: int


@dataclass(frozen=True, slots=True)
class Keep:
    """A node's persistent state about its group beside the log (the file `group.json`).

    Attributes:
        group_id: identity of the group, 32 hexadecimal digits; empty without one.
        halted: the reason why the node follows no further until its folder is emptied; empty when it follows.
        joining: whether the node may still lack entries that the group has committed.
        alone: whether the node was the only one of its group, so that its log had all committed entries.
    """

    group_id: str
    halted: str = ""
    joining: bool = False
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Opening:
    """The record that opens a term.

    Attributes:
        term: number of the term.
        group_id: identity of the group.
        term_id: identity of the term, which no other opening record has.
    """

    term: int
    group_id: str
    term_id: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The decisions to execute, in the order of the attributes.

    `hard_state` and `keep` must be on the disk, and the cut and the entries in the log, before a request or a reply is
    sent, and before the member is called again. No decision can be undone. A shell that cannot execute one must stop.

    Attributes:
        hard_state: to persist.
        cut: of the log's end, before the append.
        append: to the log. With `sync_entries`, the member replies for these entries after `DLedgerMember.synced`.
        committed: the last committed entry now.
        standing: role, term and leader now; None without a change.
        open_term: the node began to lead: append the entry that opens the term (`DLedgerMember.opening`), then call
            `DLedgerMember.appended`.
        recovered: the log has its lost entries again. The node is no longer `impaired`, and its mark can be removed.
        sends: requests.
        answers: replies.
        complaints: messages for an operator, in whole sentences.
        keep: identity and reason to persist.
    """

    hard_state: HardState | None = None
    cut: Cut | None = None
    append: Append | None = None
    committed: CommittedEnd | None = None
    standing: Standing | None = None
    open_term: bool = False
    recovered: bool = False
    sends: tuple[RequestToSend, ...] = ()
    answers: tuple[NodeAnswer, ...] = ()
    complaints: tuple[str, ...] = ()
    keep: Keep | None = None
