"""Index files on the disk: headers, entries, and the layout of slots and entries (store.md §8.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tianzhou.store.index.indexfile import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, SLOT
from tianzhou.store.offline.files import ReadOnlySegment

_DEFAULT_SLOTS: Final = 5_000_000
_FEW_SLOTS: Final = 100_000
_OFFSET: Final = 4  # offset of the record's log offset within the entry


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header of an index file (store.md §8.1); timestamps in ms."""

    path: Path
    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    slot_count: int
    count: int


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One entry of an index file: hash of topic and key, record, its store time in ms, number of the previous entry."""

    number: int
    key_hash: int
    physical_offset: int
    timestamp: int
    previous: int


def read_index_headers(root: Path) -> list[IndexHeader]:
    """Return the headers of a store's index files, oldest first."""
    directory = root / "index"
    headers = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        if path.name.isascii() and path.name.isdigit() and path.stat().st_size >= HEADER_SIZE:
            with path.open("rb") as file:
                headers.append(IndexHeader(path, *HEADER.unpack(file.read(HEADER_SIZE))))
    return headers


def index_entries(header: IndexHeader, slots: int | None = None) -> Iterator[IndexEntry]:
    """Yield the entries of one index file.

    Args:
        header: header of the file.
        slots: `maxHashSlotNum` of the broker that wrote it; None to derive it from the file.
    """
    if header.count <= 1:
        return
    file = ReadOnlySegment(header.path)
    base = HEADER_SIZE + 4 * ((slots_of(header, file) if slots is None else slots) or 0)
    for number in range(1, header.count):
        at = base + ENTRY_SIZE * number
        if at + ENTRY_SIZE > len(file.view):
            return
        key_hash, offset, difference, previous = ENTRY.unpack_from(file.view, at)
        yield IndexEntry(number, key_hash, offset, header.begin_timestamp + difference * 1000, previous)


def slots_of(header: IndexHeader, file: ReadOnlySegment) -> int | None:
    """Return the number of hash slots of an index file, by its last entry; None when no number fits.

    The file's length is known, but not its division into slots and entries. The number is right when the last entry is
    at the place that follows from it, and the entry's slot points to the entry.

    Args:
        header: header of the file; it has entries.
        file: the file.
    """
    last = header.count - 1
    before = HEADER_SIZE + ENTRY_SIZE * last

    def fits(slots: int) -> bool:
        at = before + 4 * slots
        if slots <= 0 or at + ENTRY_SIZE > len(file.view):
            return False
        key_hash, offset, _, previous = ENTRY.unpack_from(file.view, at)
        if key_hash < 0 or offset != header.end_offset or not 0 <= previous < last:
            return False
        if SLOT.unpack_from(file.view, HEADER_SIZE + 4 * (key_hash % slots))[0] != last:
            return False
        first = ENTRY.unpack_from(file.view, HEADER_SIZE + 4 * slots + ENTRY_SIZE)
        return bool(first[1] == header.begin_offset and first[3] == 0)

    if fits(_DEFAULT_SLOTS):
        return _DEFAULT_SLOTS
    if not header.end_offset:
        # Only the very first record is indexed, so zeros cannot be searched.
        return next((slots for slots in range(1, _FEW_SLOTS) if fits(slots)), None)
    needle = header.end_offset.to_bytes(8, "big")
    at = file.find(needle, before)
    while at >= 0:
        slots, rest = divmod(at - _OFFSET - before, 4)
        if rest == 0 and fits(slots):
            return slots
        at = file.find(needle, at + 1)
    return None
