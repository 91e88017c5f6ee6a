"""The joint of two logs, which shows whether a leader and a follower have the same log up to an entry (docs/adr/0024).

Index and term of an entry do not show that: a folder of another group, or of an earlier life of the group, can have an
entry of the same index and term. Each leader of ours opens its term with a record that has 128 random bits. Only that
leader appends entries of the term, each after its whole log. So two logs that have the same opening record are equal up
to it, and equal up to each later entry of the term that both have. Therefore a comparison of the first entry of the
term and of the entry at the joint covers all entries before.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

from tianzhou.records.entry import HEADER_SIZE, decode_header
from tianzhou.records.opening import opening_group_id
from tianzhou.replication.dledger.entry_log import NodeEntryLog
from tianzhou.wire.bodies.dledger import StretchRequest, TermMark, VoteRequest

_DIGEST_SIZE: Final = 16
_MARKED_TERMS: Final = 16
"""Number of terms whose first entry a candidate sends."""


class Joint(NamedTuple):
    """Checksums that a leader sends for the entry before a stretch.

    Attributes:
        previous_digest: of that entry; None when it is damaged.
        term_index: index of the first entry of its term that the leader has.
        term_digest: of that entry; None when it is damaged.
    """

    previous_digest: str | None
    term_index: int
    term_digest: str | None


def digest(entry: bytes) -> str:
    """Return the checksum of an entry's body and of its header without DLedger's checksums, which may differ."""
    header = decode_header(entry)
    text = f"{header.index} {header.term} {header.pos} {header.size} {header.channel} "
    return blake2b(text.encode() + entry[HEADER_SIZE:], digest_size=_DIGEST_SIZE).hexdigest()


def digest_at(log: NodeEntryLog, index: int) -> str | None:
    """Return the checksum of an entry of the log; None when the entry is damaged."""
    return digest(log.entry(index)) if log.is_whole(index) else None


def first_of_term(log: NodeEntryLog, index: int) -> int:
    """Return the index of the log's first entry of the same term as an entry."""
    term = log.term_at(index)
    low, high = log.begin_index, index
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if log.term_at(middle) >= term else (middle + 1, high)
    return low


def joint_at(log: NodeEntryLog, index: int) -> Joint:
    """Return the checksums with which a follower can compare its log up to an entry.

    Args:
        log: of the leader.
        index: of an entry of that log.
    """
    first = first_of_term(log, index)
    return Joint(digest_at(log, index), first, digest_at(log, first))


def differs_from(log: NodeEntryLog, request: StretchRequest) -> bool:
    """Whether a follower's log differs from that of its leader at the joint.

    An entry that either node lacks, or has damaged, is not compared.

    Args:
        log: of the follower; it has an entry of the requested index and term.
        request: of the leader; it has the checksums of the joint.
    """
    pairs = [(request.previous_index, request.previous_digest)]
    if request.term_index is not None:
        pairs.append((request.term_index, request.term_digest))
    for index, theirs in pairs:
        if theirs is not None and log.begin_index <= index <= request.previous_index:
            mine = digest_at(log, index)
            if mine is not None and mine != theirs:
                return True
    return False


def logged_group_id(log: NodeEntryLog, index: int) -> str:
    """Return the identity of the newest opening record with one; empty when the log has no such record.

    Args:
        log: the log.
        index: of the last entry to check.
    """
    while index >= log.begin_index >= 0:
        first = first_of_term(log, index)
        if log.is_whole(first) and (found := opening_group_id(log.entry(first))):
            return found
        index = first - 1
    return ""


def marks_of(log: NodeEntryLog) -> list[TermMark]:
    """Return the marks that a candidate sends: its last entry, and the first entries of its last terms."""
    index, indexes = log.end_index, [log.end_index]
    for _ in range(_MARKED_TERMS):
        if not 0 <= log.begin_index <= index:
            break
        indexes.append(first_of_term(log, index))
        index = indexes[-1] - 1
    marks = []
    for one in dict.fromkeys(indexes):
        checksum = digest_at(log, one) if one >= 0 else None
        if checksum is not None:
            marks.append(TermMark(one, log.term_at(one), checksum))
    return marks


def shares_entry(log: NodeEntryLog, request: VoteRequest) -> bool:
    """Whether a mark of a candidate's log is an entry of this log, so that both logs are of one group."""
    return any(
        0 <= log.begin_index <= mark.index <= log.end_index and digest_at(log, mark.index) == mark.digest
        for mark in request.marks or ()
    )


def lacks_committed(log: NodeEntryLog, committed_index: int, request: VoteRequest) -> bool:
    """Whether a candidate's log lacks committed entries: it ends before them, or a mark differs.

    Args:
        log: of the voter.
        committed_index: last index that this node has as committed.
        request: of the candidate; it has marks.
    """
    if request.ledger_end_index < committed_index:
        return True
    for mark in request.marks or ():
        if 0 <= mark.index < log.begin_index <= committed_index and mark.term > log.term_at(log.begin_index):
            # Terms never decrease, so a log with such an entry has another entry where this log begins.
            return True
        if 0 <= log.begin_index <= mark.index <= committed_index:
            if log.term_at(mark.index) != mark.term:
                return True
            mine = digest_at(log, mark.index)
            if mine is not None and mine != mark.digest:
                return True
    return False
