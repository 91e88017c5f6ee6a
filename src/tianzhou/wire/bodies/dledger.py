"""What the nodes of a DLedger group say to each other, in JSON as fastjson has it (broker.md §19.8).

Members stand in alphabetical order, those that are null are left out, `byte[]` is base64 text, enums are names, and
members that nobody knows are passed over. Apache's brokers 4.9.7 and 5.3.3 have DLedger 0.3.1.2; the bodies of 0.2.7
are the same. The member `tianzhou` is ours: it says that a node knows the question before a vote and takes entries in
stretches (docs/adr/0015), and from 2 on that it knows the identity of its group (docs/adr/0024), which the member
`groupId` has. Apache's nodes pass over both.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from tianzhou.errors import ProtocolError
from tianzhou.records.checksum import Octets
from tianzhou.wire.codes import DLedgerRequestCode

OURS: Final = 1
"""Value of the member `tianzhou` of nodes that know nothing of identities: versions before 0024, and later ones too."""
IDENTIFYING: Final = 2
"""Value of the member `tianzhou` of this version: the node has an identity of its group, or none yet."""
MOST_ENTRIES: Final = 10_000
"""Entries of one body or stretch; Apache's batches have as many as fit into a few KiB."""

MAX_MARKS: Final = 64
"""Maximum marks in one request for a vote."""

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(max_length=255)]


# fastjson writes numbers and arrays whatever they are; a factory keeps `omit_defaults` from leaving them out.
def _number(value: int) -> int:
    made: int = msgspec.field(default_factory=lambda: value)
    return made


class _Message(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """What every request and answer has; `code` is that of an answer (`DLedgerResponseCode`).

    Attributes:
        group: name of the group.
        group_id: identity of the group, 32 hexadecimal digits; None from nodes that know none.
        leader_id: who asks: a leader, or the candidate for whom votes are asked.
        local_id: who sends it.
        remote_id: to whom.
        term: of the sender.
        tianzhou: `OURS` or `IDENTIFYING` from our own nodes.
    """

    code: Int32 = _number(200)
    group: Name | None = None
    group_id: Name | None = None
    leader_id: Name | None = None
    local_id: Name | None = None
    remote_id: Name | None = None
    term: Int64 = _number(-1)
    tianzhou: Int32 = 0


class Entry(msgspec.Struct, kw_only=True, rename="camel"):
    """One entry of the log; the fields are those of `records.entry.EntryHeader`."""

    body: bytes
    body_crc: Int32 = 0
    chain_crc: Int32 = 0
    channel: Int32 = 0
    index: Int64
    magic: Int32
    pos: Int64
    size: Int32
    term: Int64


Entries = Annotated[list[Entry], msgspec.Meta(max_length=MOST_ENTRIES)]


def _no_entries() -> list[Entry]:
    return []


class VoteResult(enum.Enum):
    """What a node answers to a candidate (broker.md §19.2)."""

    UNKNOWN = "UNKNOWN"
    ACCEPT = "ACCEPT"
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    REJECT_UNEXPECTED_LEADER = "REJECT_UNEXPECTED_LEADER"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_TERM_NOT_READY = "REJECT_TERM_NOT_READY"
    REJECT_TERM_SMALL_THAN_LEDGER = "REJECT_TERM_SMALL_THAN_LEDGER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    REJECT_TAKING_LEADERSHIP = "REJECT_TAKING_LEADERSHIP"


class PushType(enum.Enum):
    """What a leader wants of a follower (broker.md §19.6)."""

    APPEND = "APPEND"
    COMMIT = "COMMIT"
    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"


class TermMark(msgspec.Struct, array_like=True, frozen=True):
    """The first entry that a log has of a term, or its last entry.

    Attributes:
        index: of the entry.
        term: of the entry.
        digest: checksum of the entry (`joint.digest`).
    """

    index: Int64
    term: Int64
    digest: Name


class VoteRequest(_Message):
    """A candidate asks for a vote (51001).

    Attributes:
        marks: entries of its log that a node can compare with its own ones; None from nodes that are not ours.
        ledger_end_index: index of the last entry of its log, -1 when that is empty.
        ledger_end_term: term of that entry, likewise.
    """

    ledger_end_index: Int64 = _number(-1)
    ledger_end_term: Int64 = _number(-1)
    marks: Annotated[list[TermMark], msgspec.Meta(max_length=MAX_MARKS)] | None = None


class PreVoteRequest(VoteRequest):
    """A node asks whether it would get a vote, with the term it would ask in (31101, our own)."""


class VoteResponse(_Message):
    """The answer to a candidate; `term` is the answering node's.

    Attributes:
        doubted: whether entries of the node's log may not be what was written, although they look whole; likewise.
        impaired: whether the node may have lost entries, so that its vote counts only beside those of all others; from
            our own nodes to each other.
        vote_result: the answer.
    """

    doubted: bool = False
    impaired: bool = False
    vote_result: VoteResult = msgspec.field(default_factory=lambda: VoteResult.UNKNOWN)


class HeartBeatRequest(_Message):
    """A leader is there (51002)."""


class HeartBeatResponse(_Message):
    """The answer to a leader."""


class MetadataRequest(_Message):
    """Who is in the group (50000)."""


class MetadataResponse(_Message):
    """The nodes of a group.

    Attributes:
        peers: addresses by id.
    """

    peers: dict[Name, Name] | None = None


class AppendRequest(_Message):
    """Something to append (50001)."""

    body: bytes | None = None


class AppendResponse(_Message):
    """Where it was appended."""

    index: Int64 = _number(-1)
    pos: Int64 = _number(-1)


class GetRequest(_Message):
    """A question for an entry (50002); DLedger looks at `begin_index` alone."""

    begin_index: Int64 | None = None
    index_list: Annotated[list[Int64], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None
    max_size: Int32 = _number(0)


class GetResponse(_Message):
    """The entries asked for."""

    entries: Entries = msgspec.field(default_factory=_no_entries)


class PullRequest(_Message):
    """Declared by DLedger and served by nobody (51003)."""

    begin_index: Int64 | None = None
    node_id: Name | None = None


class PullResponse(_Message):
    """Likewise."""

    entries: Entries = msgspec.field(default_factory=_no_entries)


class PushRequest(_Message):
    """A leader compares, cuts, appends or commits at a follower (51004).

    What fastjson writes of DLedger's getters beside these is written by `encode`, and not read.

    Attributes:
        batch_entry: entries to append, several at once.
        commit_index: index up to which the leader has committed.
        entry: the one entry to compare, to cut at or to append.
        type: what is wanted.
    """

    batch_entry: Entries = msgspec.field(default_factory=_no_entries)
    commit_index: Int64 = _number(-1)
    entry: Entry | None = None
    type: PushType = msgspec.field(default_factory=lambda: PushType.APPEND)

    @property
    def entries(self) -> list[Entry]:
        """The entries, whichever way they are written."""
        return self.batch_entry or ([] if self.entry is None else [self.entry])


class _WrittenPush(_Message, kw_only=True):
    batch: bool
    batch_entry: list[Entry]
    commit_index: int
    count: int
    entry: Entry | None = None
    first_entry_index: int
    last_entry_index: int
    total_size: int
    type: PushType


class PushResponse(_Message):
    """A follower's answer to a push.

    Attributes:
        begin_index: of its log.
        count: entries of the request.
        end_index: of its log.
        index: of the request's first entry; none for COMMIT.
    """

    begin_index: Int64 = _number(0)
    count: Int32 = _number(0)
    end_index: Int64 = _number(0)
    index: Int64 | None = None


class TransferRequest(_Message):
    """Leadership is to go over to another node (51005).

    Attributes:
        take_leadership_ledger_index: end of the leader's log, which the other one needs first.
        transfer_id: the leader.
        transferee_id: who shall lead.
    """

    take_leadership_ledger_index: Int64 = _number(0)
    transfer_id: Name | None = None
    transferee_id: Name | None = None


class TransferResponse(_Message):
    """Whether it did."""


class StretchRequest(_Message, kw_only=True):
    """Entries as they stand in the log, for a node of ours (31102, our own).

    On the wire all but `entries` are header fields of the command, and `entries` is the body.

    Attributes:
        commit_index: index up to which the leader has committed.
        count: how many entries there are; 0 asks only whether the entry before is the same.
        end_index: of the leader's log.
        entries: headers and bodies, one entry behind the other.
        previous_digest: checksum of that entry (`joint.digest`), where the leader looks for the last equal entry; None
            elsewhere, and when the entry is damaged.
        previous_index: index of the entry before the first one.
        previous_term: its term; -1 when the leader has it no more, so that the follower's log starts over.
        settled: 1 when the group has committed the identity that the leader names; None when that is not known.
        term_digest: checksum of the first entry that the leader has of that term, likewise.
        term_index: index of that entry; None where the leader does not look for the last equal entry.
    """

    commit_index: Int64
    count: Int32
    end_index: Int64
    entries: bytes = b""
    previous_digest: Name | None = None
    previous_index: Int64
    previous_term: Int64
    settled: Int32 | None = None
    term_digest: Name | None = None
    term_index: Int64 | None = None


class StretchResponse(_Message):
    """A node's answer to a stretch.

    Attributes:
        begin_index: of its log.
        conflict_index: where the leader may try next, when the entry before the first one is another.
        end_index: of its log.
        index: up to where its log is the leader's.
    """

    begin_index: Int64 = -1
    conflict_index: Int64 = -1
    end_index: Int64 = -1
    index: Int64 = -1


Request: TypeAlias = (
    VoteRequest | HeartBeatRequest | PushRequest | TransferRequest | StretchRequest | MetadataRequest | AppendRequest
    | GetRequest | PullRequest
)  # fmt: skip
Response: TypeAlias = (
    VoteResponse | HeartBeatResponse | PushResponse | TransferResponse | StretchResponse | MetadataResponse
    | AppendResponse | GetResponse | PullResponse
)  # fmt: skip

REQUESTS: Final[dict[DLedgerRequestCode, type[Request]]] = {
    DLedgerRequestCode.METADATA: MetadataRequest,
    DLedgerRequestCode.APPEND: AppendRequest,
    DLedgerRequestCode.GET: GetRequest,
    DLedgerRequestCode.VOTE: VoteRequest,
    DLedgerRequestCode.HEART_BEAT: HeartBeatRequest,
    DLedgerRequestCode.PULL: PullRequest,
    DLedgerRequestCode.PUSH: PushRequest,
    DLedgerRequestCode.LEADERSHIP_TRANSFER: TransferRequest,
    DLedgerRequestCode.PRE_VOTE: PreVoteRequest,
    DLedgerRequestCode.STRETCH: StretchRequest,
}
"""Type of the request of each code."""
RESPONSES: Final[dict[DLedgerRequestCode, type[Response]]] = {
    DLedgerRequestCode.METADATA: MetadataResponse,
    DLedgerRequestCode.APPEND: AppendResponse,
    DLedgerRequestCode.GET: GetResponse,
    DLedgerRequestCode.VOTE: VoteResponse,
    DLedgerRequestCode.HEART_BEAT: HeartBeatResponse,
    DLedgerRequestCode.PULL: PullResponse,
    DLedgerRequestCode.PUSH: PushResponse,
    DLedgerRequestCode.LEADERSHIP_TRANSFER: TransferResponse,
    DLedgerRequestCode.PRE_VOTE: VoteResponse,
    DLedgerRequestCode.STRETCH: StretchResponse,
}
"""Type of the answer to each."""
CODES: Final = {kind: code for code, kind in REQUESTS.items()}
"""Code of each type of request."""

M = TypeVar("M", bound=_Message)
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_DECODERS: Final = {
    kind: msgspec.json.Decoder(kind, strict=False) for kind in {*REQUESTS.values(), *RESPONSES.values()}
}
_HEADER: Final = tuple(
    (name, field.encode_name)
    for name, field in zip(StretchRequest.__struct_fields__, msgspec.structs.fields(StretchRequest), strict=True)
    if name != "entries"
)


def encode(message: Request | Response) -> bytes:
    """A request or an answer as a body; a `StretchRequest` has header fields beside it, see `stretch_fields`."""
    if isinstance(message, StretchRequest):
        return message.entries
    return _ENCODER.encode(_with_getters(message) if isinstance(message, PushRequest) else message)


def _with_getters(push: PushRequest) -> _WrittenPush:
    entries = push.entries
    return _WrittenPush(
        batch=bool(push.batch_entry),
        batch_entry=push.batch_entry,
        code=push.code,
        commit_index=push.commit_index,
        count=len(entries),
        entry=push.entry,
        first_entry_index=entries[0].index if entries else -1,
        group=push.group,
        group_id=push.group_id,
        last_entry_index=entries[-1].index if entries else -1,
        leader_id=push.leader_id,
        local_id=push.local_id,
        remote_id=push.remote_id,
        term=push.term,
        tianzhou=push.tianzhou,
        total_size=sum(entry.size for entry in push.batch_entry),
        type=push.type,
    )


def decode(kind: type[M], body: Octets) -> M:
    """The request or answer a body holds.

    Args:
        kind: what it is, of `REQUESTS` or `RESPONSES`; not `StretchRequest`, which `read_stretch` reads.
        body: the bytes.

    Raises:
        ProtocolError: it is none; the text names the member.
    """
    try:
        read: M = _DECODERS[kind].decode(body)  # type: ignore[index, assignment]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{kind.__name__}: {error}") from error
    return read


def stretch_fields(request: StretchRequest) -> dict[str, str]:
    """The header fields of a stretch."""
    values = ((wire_name, getattr(request, name)) for name, wire_name in _HEADER)
    return {name: str(value) for name, value in values if value is not None}


def read_stretch(fields: Mapping[str, str], body: Octets) -> StretchRequest:
    """The stretch of a command.

    Args:
        fields: header fields; others than those of a stretch are passed over.
        body: the entries.

    Raises:
        ProtocolError: a field is missing or cannot be read.
    """
    known = {name: fields[name] for _, name in _HEADER if name in fields}
    try:
        request = msgspec.convert(known, StretchRequest, strict=False)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"StretchRequest: {error}") from error
    request.entries = bytes(body)
    return request
