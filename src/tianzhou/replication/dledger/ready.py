"""What a member of a group wants done."""

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
    """What a node may not forget (the file `currterm`).

    Attributes:
        term: the highest one it knows of.
        vote: for whom it voted in that term; None for nobody.
    """

    term: int = 0
    vote: str | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of the log goes.

    Attributes:
        index: of the first entry that goes; all behind it go too.
        position: where the log ends then.
        whole_log: whether all of the log goes, and the next entry may have any index and position: what the leader has
            begins behind this log's end.
    """

    index: int
    position: int
    whole_log: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Entries to append as they are; they have been checked to fit.

    Attributes:
        index: of the first one.
        count: how many.
        position: log offset of the first one.
        entries: headers and bodies, one behind the other; every header has its own log offset.
    """

    index: int
    count: int
    position: int
    entries: bytes


@dataclass(frozen=True, slots=True)
class RequestToSend:
    """A request to send.

    Attributes:
        number: comes back with the answer; never used twice by a member.
        peer: id of the node.
        request: what to send.
        limit_ms: time after which the answer is no longer of use.
    """

    number: int
    peer: str
    request: Request
    limit_ms: int


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """An answer to give.

    Attributes:
        ticket: what the request came with.
        response: the answer.
    """

    ticket: object
    response: Response


@dataclass(frozen=True, slots=True)
class Standing:
    """What a node is at present.

    Attributes:
        role: its role.
        term: in which.
        leader: id of the leader; None while nobody is known to lead.
        serving: whether it leads, has committed an entry of its term, and heard from a quorum lately enough that no
            other one can have been chosen by nodes that waited for it.
    """

    role: NodeRole
    term: int
    leader: str | None
    serving: bool


@dataclass(frozen=True, slots=True)
class CommittedEnd:
    """Up to where the log is the group's, whoever leads.

    Attributes:
        index: of the last committed entry.
        position: log offset behind it.
    """

    index: int
    position: int


@dataclass(frozen=True, slots=True)
class Keep:
    """What a node keeps of its group beside the log (the file `group.json`).

    Attributes:
        group_id: identity of the group, 32 hexadecimal digits; empty without one.
        halted: why the node follows no further until its folder is emptied, in words; empty when it follows.
        joining: whether the node may still lack entries that the group has committed.
        alone: whether the node was the only one of its group, so that its log had all that was committed.
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
    """What to do, in the order of the attributes.

    `hard_state` and `keep` have to be on the disk, the cut and the entries in the log, before anything is sent or
    answered, and before the member is called again. Nothing is to be undone: a shell that cannot carry something out
    has to stop.

    Attributes:
        hard_state: to persist.
        cut: of the log's end, before anything is appended.
        append: to the log. With `sync_entries`, the member waits for `DLedgerMember.synced` before it answers for them.
        committed: the log is committed up to here now.
        standing: what the node is now; None when that did not change.
        open_term: the node began to lead: append the entry that opens the term (`DLedgerMember.opening`), then call
            `DLedgerMember.appended`.
        recovered: the log has got back what it lost; the node is no longer `impaired`, and the mark of that can go.
        sends: requests.
        answers: answers.
        complaints: what an operator needs to know, whole sentences.
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
