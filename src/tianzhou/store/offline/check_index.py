"""The check of index files against the log, in their common order (store.md §8)."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tianzhou.store.index.indexfile import ENTRY, ENTRY_SIZE, HEADER_SIZE
from tianzhou.store.offline.check_report import CheckReport, Kind
from tianzhou.store.offline.files import ReadOnlySegment
from tianzhou.store.offline.index_files import read_index_headers, slots_of

_MOST: Final = (1 << 63) - 1
_LIMIT: Final = 0x7FFFFFFF
_CHUNK: Final = 1 << 18

Entry = tuple[int, int, int, int]
_LAST: Final[Entry] = (0, _MOST, 0, 0)


class IndexWalk:
    """The entries of all index files, one record after the other.

    Args:
        root: the store.
        slots: `maxHashSlotNum`; None to derive it from the files.
        report: receives the problems.

    Attributes:
        entry: the next entry: hash, record, seconds since `begin`, the previous one in its slot.
        begin: begin timestamp of its file, ms; 0 for the first entry, which has another one.
        advance: reads and returns the next entry; at the end one with an offset after all others.
    """

    def __init__(self, root: Path, slots: int | None, report: CheckReport) -> None:
        self._report = report
        self._slots = slots
        self._headers = read_index_headers(root)
        self._name = ""
        # Number of problems of each kind, and the first of them.
        self._found: dict[tuple[Kind, str], tuple[int, str]] = {}
        self.begin = 0
        self.advance: Callable[[], Entry] = self._read().__next__
        self.entry = self.advance()
        # Records before the first entry were stored while there was no index.
        self._from = self.entry[1]
        report.index_files = len(self._headers)

    @property
    def present(self) -> bool:
        """Whether there is any entry."""
        return self._from < _MOST

    def _read(self) -> Iterator[Entry]:
        """Yield every entry, and check chains and slots meanwhile."""
        for header in self._headers:
            self._name = header.path.name
            if header.count <= 1:
                continue
            file = ReadOnlySegment(header.path)
            slots = self._slots if self._slots is not None else slots_of(header, file) or self._slots_of_others(file)
            base = HEADER_SIZE + 4 * (slots or 0)
            end = base + ENTRY_SIZE * header.count
            if slots is None or end > len(file.view):
                text = f"{self._name}: header, slots and entries do not fit each other; the file is passed over"
                self._wrong(Kind.INDEX_FILE, text)
                continue
            newest = array("i", [0]) * slots
            # The first insert overwrote the time to which its seconds are relative.
            self.begin = 0
            broken = number = 0
            for entry in ENTRY.iter_unpack(file.view[base + ENTRY_SIZE : end]):
                number += 1
                slot = entry[0] % slots
                if newest[slot] != entry[3]:
                    broken += 1
                newest[slot] = number
                yield entry
                self.begin = header.begin_timestamp
            self._report.index_entries += number
            broken += _differing(newest, file.view[HEADER_SIZE:base], number)
            if broken:
                self._wrong(Kind.INDEX_FILE, f"{self._name}: {broken} links of its chains are wrong")
        while True:
            yield _LAST

    def _slots_of_others(self, file: ReadOnlySegment) -> int | None:
        """Return the number of slots of other files of the same length."""
        for header in self._headers:
            other = ReadOnlySegment(header.path)
            slots = slots_of(header, other) if header.count > 1 and len(other.view) == len(file.view) else None
            if slots is not None:
                return slots
        return None

    def _count(self, kind: Kind, what: str, example: str, count: int = 1) -> None:
        before = self._found.get((kind, what), (0, f"{self._name}, {example}"))
        self._found[kind, what] = (before[0] + count, before[1])

    def _wrong(self, kind: Kind, text: str, count: int = 1, *, expected: bool = False) -> None:
        expected = expected or not self._report.clean
        self._report.index_wrong = self._report.index_wrong or not expected
        self._report.add(kind, f"index: {text}", expected=expected, count=count)

    def record(self, physical: int, stored: int, hashes: list[int]) -> None:
        """Check the entries of one record.

        Args:
            physical: log offset of the record.
            stored: its store time, ms.
            hashes: hashes of its keys, in the order of their indexing.
        """
        if physical < self._from:
            return
        if self.entry[1] < physical:
            self._pass(physical)
        found = set()
        while self.entry[1] == physical:
            key_hash, _, seconds, _ = self.entry
            if key_hash in hashes:
                found.add(key_hash)
                if self.begin and seconds != max(0, min((stored - self.begin) // 1000, _LIMIT)):
                    self._count(Kind.INDEX_ENTRY, "entries with the wrong time", f"of the record at {physical}")
            else:
                what = "entries with the hash of no key of their record"
                self._count(Kind.INDEX_ENTRY, what, f"of the record at {physical}")
            self.entry = self.advance()
        missing = len(set(hashes) - found)
        if missing:
            self._count(Kind.INDEX_LACKS, "keys that are not in it", f"of the record at {physical}", missing)

    def _pass(self, physical: int) -> None:
        """Advance to the entries of the record at `physical`; earlier entries belong to no record."""
        while (offset := self.entry[1]) < physical:
            if offset >= self._report.log_begin:
                self._count(
                    Kind.INDEX_ENTRY, "entries that point to where no record with keys begins", f"entry to {offset}"
                )
            self.entry = self.advance()

    def finish(self, *, behind: bool = False) -> None:
        """Report the entries after the last record.

        Args:
            behind: whether the broker was stopped before the index was complete.
        """
        self._pass(_MOST)
        for (kind, what), (count, example) in self._found.items():
            expected = behind and kind is Kind.INDEX_LACKS
            self._wrong(kind, f"{what}: {count}, the first in {example}", count, expected=expected)


def _differing(newest: array[int], table: memoryview, last: int) -> int:
    """Return how many slots do not point to their newest entry; invalid contents of an unused slot count as empty."""
    differing = 0
    for begin in range(0, len(newest), _CHUNK):
        expected = newest[begin : begin + _CHUNK]
        there = array("i", bytes(table[4 * begin : 4 * (begin + _CHUNK)]))
        if sys.byteorder == "little":
            there.byteswap()
        if there != expected:
            pairs = zip(there, expected, strict=True)
            differing += sum(a != b and not (b == 0 and (a < 0 or a > last)) for a, b in pairs)
    return differing
