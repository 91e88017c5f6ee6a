"""Bodies of requests and answers between the nodes of a DLedger group, in fastjson's JSON (broker.md §19.8).

Members are in alphabetical order, and null members are omitted. `byte[]` is base64 text, and enums are names. Unknown
members are ignored. Apache's brokers 4.9.7 and 5.3.3 have DLedger 0.3.1.2; the bodies of 0.2.7 are the same.

The member `tianzhou` is ours. With 1, a node supports the pre-vote and accepts stretches: several entries in their
stored form (docs/adr/0015). From 2 on, a node also supports the identity of its group (docs/adr/0024), which is the
member `groupId`. Apache's nodes ignore both members.
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
"""Value of the member `tianzhou` of nodes without identities: versions before ADR 0024, and some later ones."""
IDENTIFYING: Final = 2
"""Value of the member `tianzhou` of this version: the node supports identities, and may not have one yet."""
MOST_ENTRIES: Final = 10_000
"""Maximum entries in one body or stretch. Apache's batches hold as many as fit into a few KiB."""

MAX_MARKS: Final = 64
"""Maximum marks in one request for a vote."""

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(max_length=255)]


# fastjson always writes numbers and arrays. With a factory as default, `omit_defaults` does not omit them.
def _number(value: int) -> int:
    made: int = msgspec.field(default_factory=lambda: value)
    return made


class _Message(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Common members of all requests and answers; `code` is the result code of an answer (`DLedgerResponseCode`).

    Attributes:
        group: name of the group.
        group_id: identity of the group, 32 hexadecimal digits; None from nodes without one.
        leader_id: the node that the request comes from: a leader, or a candidate that requests votes.
        local_id: sender of this message.
        remote_id: receiver of this message.
        term: term of the sender.
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
    """A node's answer to a candidate (broker.md §19.2)."""

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
    """Kind of a leader's push to a follower (broker.md §19.6)."""

    APPEND = "APPEND"
    COMMIT = "COMMIT"
    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"


class TermMark(msgspec.Struct, array_like=True, frozen=True):
    """Identification of an entry of a log: the first entry of a term, or the last entry of the log.

    Attributes:
        index: index of the entry.
        term: term of the entry.
        digest: checksum of the entry (`joint.digest`).
    """

    index: Int64
    term: Int64
    digest: Name


class VoteRequest(_Message):
    """A candidate's request for a vote (51001).

    Attributes:
        marks: entries of the candidate's log that a node can compare with its own; None from Apache's nodes.
        ledger_end_index: index of the last entry of the candidate's log; -1 for an empty log.
        ledger_end_term: term of that entry; -1 for an empty log.
    """

    ledger_end_index: Int64 = _number(-1)
    ledger_end_term: Int64 = _number(-1)
    marks: Annotated[list[TermMark], msgspec.Meta(max_length=MAX_MARKS)] | None = None


class PreVoteRequest(VoteRequest):
    """A node's question whether it would get a vote in a term, before it requests one (31101, Tianzhou's own)."""


class VoteResponse(_Message):
    """The answer to a candidate; `term` is the answering node's.

    Attributes:
        doubted: whether entries of the node's log may differ from the written ones, although they look intact. Only our
            own nodes send and read it.
        impaired: whether the node may have lost entries. Its vote then counts only together with the votes of all other
            nodes. Only our own nodes send and read it.
        vote_result: the answer.
    """

    doubted: bool = False
    impaired: bool = False
    vote_result: VoteResult = msgspec.field(default_factory=lambda: VoteResult.UNKNOWN)


class HeartBeatRequest(_Message):
    """A leader's heartbeat (51002)."""


class HeartBeatResponse(_Message):
    """The answer to a leader's heartbeat."""


class MetadataRequest(_Message):
    """A request for the nodes of the group (50000)."""


class MetadataResponse(_Message):
    """The nodes of a group.

    Attributes:
        peers: addresses by id.
    """

    peers: dict[Name, Name] | None = None


class AppendRequest(_Message):
    """A request to append a body (50001)."""

    body: bytes | None = None


class AppendResponse(_Message):
    """The position of the appended entry."""

    index: Int64 = _number(-1)
    pos: Int64 = _number(-1)


class GetRequest(_Message):
    """A request for an entry (50002); DLedger reads only `begin_index`."""

    begin_index: Int64 | None = None
    index_list: Annotated[list[Int64], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None
    max_size: Int32 = _number(0)


class GetResponse(_Message):
    """The requested entries."""

    entries: Entries = msgspec.field(default_factory=_no_entries)


class PullRequest(_Message):
    """A request that DLedger declares and no node serves (51003)."""

    begin_index: Int64 | None = None
    node_id: Name | None = None


class PullResponse(_Message):
    """The answer to `PullRequest`; no node sends it."""

    entries: Entries = msgspec.field(default_factory=_no_entries)


class PushRequest(_Message):
    """A leader's push to a follower: compare, truncate, append or commit (51004).

    DLedger's classes have more getters, which fastjson writes as members. `encode` writes these members, and `decode`
    ignores them.

    Attributes:
        batch_entry: several entries to append.
        commit_index: index up to which the leader has committed.
        entry: the one entry to compare, to truncate at or to append.
        type: kind of the push.
    """

    batch_entry: Entries = msgspec.field(default_factory=_no_entries)
    commit_index: Int64 = _number(-1)
    entry: Entry | None = None
    type: PushType = msgspec.field(default_factory=lambda: PushType.APPEND)

    @property
    def entries(self) -> list[Entry]:
        """The entries of `batch_entry` or `entry`."""
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
        begin_index: index of the first entry of the follower's log.
        count: number of entries in the request.
        end_index: index of the last entry of the follower's log.
        index: index of the request's first entry; None for COMMIT.
    """

    begin_index: Int64 = _number(0)
    count: Int32 = _number(0)
    end_index: Int64 = _number(0)
    index: Int64 | None = None


class TransferRequest(_Message):
    """A request to transfer the leadership to another node (51005).

    Attributes:
        take_leadership_ledger_index: end of the leader's log, which the other node must have first.
        transfer_id: the present leader.
        transferee_id: the next leader.
    """

    take_leadership_ledger_index: Int64 = _number(0)
    transfer_id: Name | None = None
    transferee_id: Name | None = None


class TransferResponse(_Message):
    """The result of a transfer, in `code`."""


class StretchRequest(_Message, kw_only=True):
    """A stretch: several entries in their stored form, for one of our own nodes (31102, Tianzhou's own).

    On the wire, `entries` is the body of the command. All other attributes are its header fields.

    Attributes:
        commit_index: index up to which the leader has committed.
        count: number of entries; with 0, the follower only compares the entry before them.
        end_index: index of the last entry of the leader's log.
        entries: consecutive entries, each with header and body.
        previous_digest: checksum of the entry before the first one (`joint.digest`), while the leader searches the last
            equal entry. None otherwise, and when that entry is damaged.
        previous_index: index of the entry before the first one.
        previous_term: term of that entry; -1 when the leader's log no longer has it, so that the follower's log starts
            over.
        settled: 1 when the group has committed the identity that the leader names; None when the leader does not know.
        term_digest: checksum of the first entry that the leader has of that term; None when that entry is damaged.
        term_index: index of that entry; None unless the leader searches the last equal entry.
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
        begin_index: index of the first entry of the node's log.
        conflict_index: index that the leader may try next, when the entry before the first one differs; otherwise -1.
        end_index: index of the last entry of the node's log.
        index: index up to which the node's log is equal to the leader's.
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
"""Type of the answer to each code."""
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
    """Encode a request or an answer as a body; a `StretchRequest` also has header fields, see `stretch_fields`."""
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
    """Decode the request or answer of a body.

    Args:
        kind: its type, from `REQUESTS` or `RESPONSES`; not `StretchRequest`, which `read_stretch` decodes.
        body: the bytes.

    Raises:
        ProtocolError: the body is not of this type; the error names the member.
    """
    try:
        read: M = _DECODERS[kind].decode(body)  # type: ignore[index, assignment]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{kind.__name__}: {error}") from error
    return read


def stretch_fields(request: StretchRequest) -> dict[str, str]:
    """Return the header fields of a stretch."""
    values = ((wire_name, getattr(request, name)) for name, wire_name in _HEADER)
    return {name: str(value) for name, value in values if value is not None}


def read_stretch(fields: Mapping[str, str], body: Octets) -> StretchRequest:
    """Decode the stretch of a command.

    Args:
        fields: header fields; fields that a stretch does not have are ignored.
        body: the entries.

    Raises:
        ProtocolError: a field is missing or cannot be decoded.
    """
    known = {name: fields[name] for _, name in _HEADER if name in fields}
    try:
        request = msgspec.convert(known, StretchRequest, strict=False)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"StretchRequest: {error}") from error
    request.entries = bytes(body)
    return request
