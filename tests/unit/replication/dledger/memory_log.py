"""A log in memory, with segments that entries do not cross, for tests of groups."""

from __future__ import annotations

from tianzhou.records.entry import HEADER_SIZE, EntryHeader, decode_header
from tianzhou.records.opening import opening_record
from tianzhou.replication.dledger.ready import Append, Cut, Opening

SEGMENT = 4000
LEFT_FREE = 8


def place(position: int, size: int) -> int:
    if size + LEFT_FREE > SEGMENT:
        return -1
    left = SEGMENT - position % SEGMENT
    return position if size + LEFT_FREE <= left else position + left


class MemoryLog:
    """An `EntryLog`; `raw[n]` is entry `first + n`."""

    def __init__(self, raw: list[bytes] | None = None) -> None:
        self.raw = list(raw or [])
        self.headers = [decode_header(entry) for entry in self.raw]
        self.broken: set[int] = set()

    @property
    def begin_index(self) -> int:
        return self.headers[0].index if self.headers else -1

    @property
    def end_index(self) -> int:
        return self.headers[-1].index if self.headers else -1

    @property
    def end_term(self) -> int:
        return self.headers[-1].term if self.headers else -1

    @property
    def end_position(self) -> int:
        return self.headers[-1].end if self.headers else 0

    def header(self, index: int) -> EntryHeader:
        assert self.begin_index <= index <= self.end_index, (self.begin_index, index, self.end_index)
        return self.headers[index - self.headers[0].index]

    def term_at(self, index: int) -> int:
        return self.header(index).term

    def is_whole(self, index: int) -> bool:
        return index not in self.broken

    def position_of(self, index: int) -> int:
        return self.header(index).pos

    def end_of(self, index: int) -> int:
        return self.header(index).end

    def entry(self, index: int) -> bytes:
        self.header(index)
        return self.raw[index - self.headers[0].index]

    def stretch(self, index: int, most_bytes: int) -> tuple[bytes, int]:
        self.header(index)
        taken = [self.entry(index)]
        size = len(taken[0])
        for following in range(index + 1, self.end_index + 1):
            entry = self.entry(following)
            size += len(entry)
            if size > most_bytes:
                break
            taken.append(entry)
        return b"".join(taken), len(taken)

    place = staticmethod(place)

    def may_begin(self, position: int, size: int) -> bool:
        return size + LEFT_FREE <= SEGMENT  # its beginning expires entry by entry

    # Operations of the shell

    def add(self, term: int, body: bytes) -> int:
        """Append as a leader; return the index."""
        size = HEADER_SIZE + len(body)
        header = EntryHeader(self.end_index + 1, term, place(self.end_position, size), len(body), size)
        self.raw.append(header.encode() + body)
        self.headers.append(header)
        return header.index

    def open_term(self, opening: Opening, now_ms: int = 0) -> int:
        """Append the record that opens a term; return its index."""
        host, ids = bytes([1, 2, 3, 4]), (opening.group_id, opening.term_id)
        size = HEADER_SIZE + len(opening_record(opening.term, 0, now_ms, host, 5, *ids))
        start = place(self.end_position, size) + HEADER_SIZE
        return self.add(opening.term, opening_record(opening.term, start, now_ms, host, 5, *ids))

    def cut(self, cut: Cut) -> None:
        """Apply a `Cut` of `Ready`."""
        keep = 0 if cut.whole_log else cut.index - self.headers[0].index
        assert cut.whole_log or cut.position == (self.headers[keep - 1].end if keep else self.headers[0].pos)
        del self.raw[keep:], self.headers[keep:]

    def append(self, append: Append) -> None:
        """Apply an `Append` of `Ready`."""
        assert not self.headers or append.index == self.end_index + 1
        at = 0
        for n in range(append.count):
            header = decode_header(append.entries, at)
            assert header.index == append.index + n
            assert n or header.pos == append.position
            assert not self.headers or header.pos == place(self.end_position, header.size), "a hole in the log"
            self.raw.append(append.entries[at : at + header.size])
            self.headers.append(header)
            at += header.size
        assert at == len(append.entries)

    def expire(self, begin: int) -> None:
        """Drop the first entries."""
        gone = begin - self.begin_index
        del self.raw[:gone], self.headers[:gone]
