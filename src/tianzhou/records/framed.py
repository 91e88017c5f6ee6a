"""Checks of entries in a DLedger log: the order of entries, and the content at a position (broker.md §19.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from tianzhou.errors import CorruptRecord
from tianzhou.records.entry import END, END_SIZE, HEADER_SIZE, MAGIC_END, EntryHeader, decode_header
from tianzhou.records.layout import MAGICS, SIZE_MAGIC

NOT_FRAMED: Final = (1 << 63) - 1
"""Log offset of the first entry, for a log without entries: greater than every offset."""
_ANY: Final = -1
_Run: TypeAlias = tuple[Sequence[tuple[Any, ...]], int, int]
"""Records of consecutive entries of one term, the index of the last entry, and the term."""


class EntryTrail:
    """The entries that a walk has passed. Each has the next index and at least the term of the entry before it.

    Args:
        index: index of the entry before the walk; -1 when the walk may begin with any index.
        term: term of that entry.

    Attributes:
        index: index of the last entry passed.
        term: term of the last entry passed.
        end: log offset behind the last entry passed; -1 before the first.
    """

    __slots__ = ("_passed", "end", "index", "term")

    def __init__(self, index: int = _ANY, term: int = 0) -> None:
        self.index = index
        self.term = term
        self.end = -1
        self._passed: list[EntryHeader | _Run] = []

    def refusal(self, header: EntryHeader) -> str:
        """Return the reason why an entry cannot be the next one; empty when it can."""
        if self.index != _ANY and header.index != self.index + 1:
            return f"entry {header.index} follows entry {self.index}"
        if header.term < self.term:
            return f"entry {header.index} is of term {header.term}, the one before it of term {self.term}"
        return ""

    def follow(self, header: EntryHeader) -> None:
        """Record an entry as passed."""
        self.index, self.term, self.end = header.index, header.term, header.pos + header.size
        self._passed.append(header)

    def follow_run(self, rows: Sequence[tuple[Any, ...]], index: int, term: int) -> None:
        """Record consecutive entries of one term as passed.

        Args:
            rows: records of the entries (`next_entries`).
            index: index of the last entry.
            term: term of all of them.
        """
        self.index, self.term, self.end = index, term, rows[-1][0] + rows[-1][1]
        self._passed.append((rows, index, term))

    def passed(self) -> list[EntryHeader]:
        """Return the entries passed since the last call."""
        passed, self._passed = self._passed, []
        found: list[EntryHeader] = []
        for one in passed:
            if isinstance(one, EntryHeader):
                found.append(one)
            else:
                rows, last, term = one
                for index, (offset, size, *_) in enumerate(rows, last + 1 - len(rows)):
                    found.append(EntryHeader(index, term, offset - HEADER_SIZE, size, size + HEADER_SIZE))
        return found


def entry_at(view: memoryview, position: int, base: int) -> EntryHeader | str:
    """Return the header of the entry at `position` of a segment, or the reason why no entry begins there.

    Args:
        view: the segment.
        position: index into it.
        base: the segment's start offset.
    """
    try:
        header = decode_header(view, position)
    except CorruptRecord as error:
        return str(error)
    if header.pos != base + position:
        return f"the entry says that it is at {header.pos}"
    if header.size > len(view) - position - END_SIZE:
        return f"an entry of {header.size} bytes does not fit the {len(view) - position} bytes left"
    return header


def is_end(view: memoryview, position: int) -> bool:
    """Whether the end mark of a segment is at `position`, or the segment ends there."""
    room = len(view) - position
    return room == 0 or (room >= END_SIZE and END.unpack_from(view, position) == (MAGIC_END, room))


def is_untouched(view: memoryview, position: int) -> bool:
    """Whether the first bytes at `position` are zeros, so that nothing was written there."""
    return not any(view[position : position + END_SIZE])


def holds_record(view: memoryview, position: int) -> bool:
    """Whether the body of an entry at `position` begins with the magic number of a message record."""
    return len(view) - position >= SIZE_MAGIC.size and SIZE_MAGIC.unpack_from(view, position)[1] in MAGICS


def entry_begin(view: memoryview, position: int, base: int) -> int:
    """Return the position of an entry from the position of its header or of its body."""
    before = position - HEADER_SIZE
    if before >= 0 and isinstance(entry_at(view, position, base), str) and not is_end(view, position):
        header = entry_at(view, before, base)
        if not isinstance(header, str):
            return before
    return position
