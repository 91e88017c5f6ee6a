"""Entries from another node: the check whether they can follow a log's end, and their two forms on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from tianzhou._hot import entry_run, next_entries
from tianzhou.errors import CorruptRecord, ProtocolError
from tianzhou.records.codec import decode_record
from tianzhou.records.entry import HEADER_SIZE, EntryHeader, decode_header
from tianzhou.records.framed import holds_record
from tianzhou.replication.dledger.entry_log import NodeEntryLog
from tianzhou.wire.bodies.dledger import Entry


def from_json(entry: Entry) -> bytes:
    """Return header and body of an entry as the log stores it.

    Raises:
        ProtocolError: a log cannot have such an entry.
    """
    header = EntryHeader(
        index=entry.index, term=entry.term, pos=entry.pos, body_size=len(entry.body), size=entry.size,
        magic=entry.magic, channel=entry.channel, chain_crc=entry.chain_crc, body_crc=entry.body_crc,
    )  # fmt: skip
    raw = header.encode() + entry.body
    headers_of(raw, 1)
    return raw


def to_json(raw: bytes) -> Entry:
    """Return an entry of the log in the form for Apache's nodes."""
    header = decode_header(raw)
    return Entry(
        body=raw[HEADER_SIZE:], body_crc=header.body_crc, chain_crc=header.chain_crc, channel=header.channel,
        index=header.index, magic=header.magic, pos=header.pos, size=header.size, term=header.term,
    )  # fmt: skip


class EntryRun(Sequence[EntryHeader]):
    """Headers of consecutive entries of one term in one segment; decoded on access.

    Args:
        entries: headers and bodies, which `entry_run` has checked.
        last_at: position in `entries` of the last entry.
        count: number of entries.

    Attributes:
        size: bytes of all.
    """

    __slots__ = ("_all", "_count", "_entries", "_first", "_last", "size")

    def __init__(self, entries: bytes, last_at: int, count: int) -> None:
        self._entries = entries
        self._count = count
        self._first = decode_header(entries)
        self._last = decode_header(entries, last_at)
        self._all: list[EntryHeader] | None = None
        self.size = len(entries)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> EntryHeader: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[EntryHeader]: ...
    def __getitem__(self, number: int | slice) -> EntryHeader | Sequence[EntryHeader]:
        if number == 0:
            return self._first
        if number in (-1, self._count - 1):
            return self._last
        if self._all is None:
            self._all, at = [], 0
            while at < self.size:
                self._all.append(decode_header(self._entries, at))
                at += self._all[-1].size
        return self._all[number]


def headers_of(entries: bytes, count: int) -> Sequence[EntryHeader]:
    """Return the headers of consecutive entries.

    Args:
        entries: headers and bodies.
        count: number of entries.

    Raises:
        ProtocolError: the number differs, the bytes are no entries, or indexes, terms or positions are out of order.
    """
    whole, size, last_at = entry_run(entries, 0, count)
    if count and whole == count and size == len(entries):
        return EntryRun(entries, last_at, count)
    headers: list[EntryHeader] = []
    at = 0
    while at < len(entries):
        try:
            header = decode_header(entries, at)
        except CorruptRecord as error:
            raise ProtocolError(f"entry {len(headers)} of {count}: {error}") from error
        at += header.size
        if at > len(entries):
            raise ProtocolError(
                f"entry {header.index} has {header.size} bytes, {at - len(entries)} of them are missing"
            )
        if headers:
            last = headers[-1]
            if header.index != last.index + 1 or header.term < last.term or header.pos < last.end:
                raise ProtocolError(
                    f"entry {header.index} of term {header.term} at {header.pos} cannot follow entry {last.index} of "
                    f"term {last.term}, which ends at {last.end}"
                )
        headers.append(header)
        if len(headers) > count:
            break
    if len(headers) != count:
        raise ProtocolError(f"{len(headers)} entries came where {count} were said")
    return headers


@dataclass(frozen=True, slots=True)
class Fit:
    """The end of a log, for the entries to append.

    Attributes:
        index: of its last entry; -1 for none.
        term: of its last entry; -1 for none.
        position: log offset after it; None when the next entry may have any.
    """

    index: int
    term: int
    position: int | None


def misfit(log: NodeEntryLog, end: Fit, headers: Sequence[EntryHeader], most_term: int) -> str:
    """Return why entries cannot follow a log's end; empty when they can.

    Args:
        log: has the bounds of segments.
        end: where the log ends.
        headers: of the entries, in their order.
        most_term: term of the leader that sent them.
    """
    term, position = end.term, end.position
    first = headers[0]
    if first.index != end.index + 1:
        return f"entry {first.index} cannot follow entry {end.index}"
    if isinstance(headers, EntryRun) and log.place(first.pos, headers.size) == first.pos:
        headers = [first]  # the others follow it in the same segment
    for header in headers:
        if not term <= header.term <= most_term:
            return f"entry {header.index} is of term {header.term}, the one before of {term}, its leader of {most_term}"
        if position is None:
            if not log.may_begin(header.pos, header.size):
                return (
                    f"entry {header.index} of {header.size} bytes stands at {header.pos} in its leader's log, where no "
                    "segment of this one can begin with it; the nodes of a group need segments of one size"
                )
        elif header.pos != (place := log.place(position, header.size)):
            there = f"would stand at {place} in this one" if place >= 0 else "fits no segment of this one"
            return (
                f"entry {header.index} of {header.size} bytes stands at {header.pos} in its leader's log and {there}; "
                "the nodes of a group need segments of one size"
            )
        term, position = header.term, header.end
    return ""


def spoiled(entries: bytes) -> str:
    """Return why the bodies of entries are not whole message records; empty when they are.

    A follower that accepted broken records could never serve them, and could not replicate them to other nodes. Bodies
    that do not begin as records are a node's own, and no client reads them.

    Args:
        entries: headers and bodies that `headers_of` has read.
    """
    view, at = memoryview(entries), 0
    while at < len(view):
        header = decode_header(view, at)
        base = header.pos - at
        rows, behind, *_ = next_entries(view, at, base, len(view), len(view), True, header.index - 1, header.term)
        if rows:
            at = behind
            continue
        body = at + HEADER_SIZE
        if holds_record(view, body):
            try:
                record = decode_record(view[body : at + header.size], check_crc=True)
            except CorruptRecord as error:
                return f"the record in entry {header.index} is broken: {error}"
            if (record.physical_offset, record.size) != (base + body, header.body_size):
                return (
                    f"entry {header.index} has a record of {header.body_size} bytes at {base + body}, which says that "
                    f"it has {record.size} and is at {record.physical_offset}"
                )
        at += header.size
    return ""


def same_entry(one: bytes, other: bytes) -> bool:
    """Whether two entries are equal apart from their checksums (as DLedger compares them)."""
    mine, theirs = decode_header(one), decode_header(other)
    return (
        (mine.size, mine.index, mine.term, mine.pos, mine.channel)
        == (theirs.size, theirs.index, theirs.term, theirs.pos, theirs.channel)
        and one[HEADER_SIZE:] == other[HEADER_SIZE:]
    )  # fmt: skip
