"""Commit log and consume queues of a store as mapped files, read while another process may write or delete them.

No file is locked, written or repaired. A file that is deleted while it is mapped can be read to its end. A file that
was deleted earlier is reported as missing.
"""

from __future__ import annotations

import mmap
import os
import sys
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tianzhou._hot.records import HOLE
from tianzhou.spark.rows.arrays import Ints, pa
from tianzhou.store.log.holes import BLANK_SIZE
from tianzhou.store.offline.files import segment_paths

UNIT: Final = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tags", ">i8")])
"""A unit of a consume queue (store.md §5.1)."""
BATCH_UNIT: Final = np.dtype(
    [("physical", ">i8"), ("size", ">i4"), ("tags", ">i8"), ("time", ">i8"), ("base", ">i8"), ("count", ">i2"),
     ("compacted", ">i4"), ("reserved", "V4")]
)  # fmt: skip
"""A unit of a consume queue of type BatchCQ (store.md §6)."""
_MAPS: Final = 64
_POPULATE: Final = 22 if sys.platform == "linux" else None  # MADV_POPULATE_READ


class _Mapped:
    """A mapped file, for Python, NumPy and Arrow.

    Args:
        content: the map.

    Attributes:
        view: the bytes as memoryview.
        raw: the bytes as NumPy array.
        data: the bytes as Arrow buffer.
    """

    __slots__ = ("_begin", "_content", "_end", "data", "raw", "view")

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self.view = memoryview(content)
        self.raw: Ints = np.frombuffer(self.view, np.uint8)
        self.data: Any = pa.py_buffer(self.view)
        self._begin = self._end = 0

    def ready(self, begin: int, end: int) -> None:
        """Populate the pages of a range in one call, which costs half as much as a page fault per page."""
        if _POPULATE is None or (self._begin <= begin and end <= self._end):
            return
        whole = self._end if self._begin <= begin <= self._end else begin // mmap.PAGESIZE * mmap.PAGESIZE
        with suppress(OSError):  # A kernel before 5.14 rejects the advice. Then page faults map the pages.
            self._content.madvise(_POPULATE, whole, end - whole)
        self._begin = self._begin if whole == self._end else whole
        self._end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE


_known: dict[tuple[int, int, int], tuple[Path, _Mapped]] = {}
"""The maps of this process, by device, inode and size.

Spark reuses its workers, so each file is mapped once. The next task finds the pages present, which take longer to map
than the decoding of their rows.
"""


def _map(path: Path) -> _Mapped | None:
    """Return the file; None if it does not exist or is empty."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            key = status.st_dev, status.st_ino, status.st_size
            if key in _known:  # No other file gets the inode of a mapped file.
                return _known[key][1]
            mapped = _Mapped(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (FileNotFoundError, ValueError):
        return None
    for other, (place, _) in list(_known.items()):
        if len(_known) >= _MAPS or not _is_there(place, other):
            del _known[other]  # Its readers still refer to the map.
    _known[key] = path, mapped
    return mapped


def _is_there(path: Path, key: tuple[int, int, int]) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_dev, status.st_ino, status.st_size) == key


class MappedFiles:
    """The segment files of some folders, mapped at their first use.

    Args:
        directories: the folders.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._mapped: OrderedDict[int, _Mapped] = OrderedDict()
        self.look()

    def look(self) -> None:
        """List the directories again."""
        paths = [path for directory in self._directories for path in segment_paths(directory)]
        self._paths = {int(path.name): path for path in sorted(paths, key=lambda path: path.name)}
        self.starts: Ints = np.fromiter(self._paths, np.int64, len(self._paths))

    @property
    def begin(self) -> int:
        """Position of the first file's beginning; 0 without files."""
        return int(self.starts[0]) if len(self.starts) else 0

    def path(self, start: int) -> Path | None:
        """Return the path of the file that begins at a position; None without such a file."""
        return self._paths.get(start)

    def get(self, start: int) -> _Mapped | None:
        """Return the file that begins at a position; None if it does not exist or is empty."""
        found = self._mapped.get(start)
        if found is not None:
            self._mapped.move_to_end(start)
            return found
        path = self._paths.get(start)
        mapped = None if path is None else _map(path)
        if mapped is not None:
            self._mapped[start] = mapped
            if len(self._mapped) > _MAPS:  # Readers of the oldest still refer to the map.
                self._mapped.popitem(last=False)
        return mapped

    def index_of(self, positions: Ints) -> Ints:
        """Return the index of the last file that begins at or before each position; -1 before the first file.

        The file may end before the position.
        """
        return np.searchsorted(self.starts, positions, side="right") - 1


class Units(NamedTuple):
    """Some units of a queue, with one array per field.

    Attributes:
        base: queue offset of each unit's first message.
        count: number of messages of each unit.
        physical: commit log offset of each unit's record.
        size: size of the record in bytes.
        tags: tags code.
    """

    base: Ints
    count: Ints
    physical: Ints
    size: Ints
    tags: Ints

    def where(self, mask: Ints) -> Units:
        """Return the units for which `mask` is True, or the units at its indexes."""
        return Units(*(values[mask] for values in self))

    @property
    def blank(self) -> Ints:
        """Booleans: whether each unit is a placeholder without a record (store.md §5.2)."""
        return (self.tags == HOLE) | ((self.size == BLANK_SIZE) & (self.physical == 0))


def _units(values: Any, first_slot: int) -> Units:
    physical, size, tags = (values[name].astype(np.int64) for name in ("physical", "size", "tags"))
    if "base" in (values.dtype.names or ()):
        return Units(values["base"].astype(np.int64), values["count"].astype(np.int64), physical, size, tags)
    return Units(np.arange(first_slot, first_slot + len(values)), np.ones(len(values), np.int64), physical, size, tags)


def _never_written(unit: Any) -> bool:
    plain = unit["physical"] >= 0 and unit["size"] > 0
    return not (plain and (unit.dtype.names == UNIT.names or (unit["base"] >= 0 and unit["count"] > 0)))


class MappedQueueFiles:
    """The units of one queue. The slot of a unit is its number since the queue began.

    Args:
        directory: `consumequeue/<topic>/<queueId>` or `batchconsumequeue/<topic>/<queueId>`.
        batched: whether the directory is the second one.
        more: units to append after those in the files.
    """

    def __init__(self, directory: Path, batched: bool, more: bytes = b"") -> None:
        self.directory = directory
        self.batched = batched
        self._shape = BATCH_UNIT if batched else UNIT
        self._files = MappedFiles([directory])
        self._more = np.frombuffer(more, self._shape)
        self._more_at: int | None = None

    def look(self) -> None:
        """List the files again."""
        self._files.look()

    def _values(self, start: int) -> Any:
        mapped = self._files.get(start)
        if mapped is None:
            return np.empty(0, self._shape)
        whole = len(mapped.raw) // self._shape.itemsize * self._shape.itemsize
        return mapped.raw[:whole].view(self._shape)

    @property
    def begin(self) -> int:
        """The first slot that the files contain."""
        return self._files.begin // self._shape.itemsize

    def written(self) -> int:
        """Return the slot after the last unit in the files. Units are valid up to it (store.md §5.8)."""
        starts = self._files.starts.tolist()
        # A broker does not read files after a gap, either.
        last = next((i for i, (a, b) in enumerate(pairwise(starts)) if self._end_of(a) != b), len(starts) - 1)
        for start in reversed(starts[: last + 1]):
            if count := bisect_left(self._values(start), True, key=_never_written):
                return int(start // self._shape.itemsize + count)
        return self.begin

    def _end_of(self, start: int) -> int:
        path = self._files.path(start)
        try:
            return start + path.stat().st_size if path is not None else start
        except FileNotFoundError:
            return start

    def append(self, slot: int) -> None:
        """Append the units that the files lack at a slot."""
        self._more_at = slot

    def drop_more(self) -> None:
        """Drop the appended units, because the files contain them now."""
        self._more, self._more_at = self._more[:0], None

    def end(self, slot: int) -> int:
        """Return the slot after the appended units, if the files end at `slot`."""
        return slot + len(self._more)

    def units(self, first: int, end: int, step: int) -> Iterator[Units]:
        """Return the units of a range of slots, at most `step` at a time. Units of missing files are left out."""
        size = self._shape.itemsize
        files_end = end if self._more_at is None else min(end, self._more_at)
        slot = first
        while slot < files_end:
            index = int(self._files.index_of(np.array([slot * size]))[0])
            values = self._values(int(self._files.starts[index])) if index >= 0 else np.empty(0, self._shape)
            begin = int(self._files.starts[index]) // size if index >= 0 else 0
            upto = min(files_end, begin + len(values), slot + step)
            if upto <= slot:  # The range has no unit in this file: continue with the next file.
                following = self._files.starts[index + 1 : index + 2]
                slot = int(following[0]) // size if len(following) else files_end
                continue
            yield _units(values[slot - begin : upto - begin], slot)
            slot = upto
        if self._more_at is not None and end > self._more_at:
            slot = max(first, self._more_at)
            for at in range(slot, end, step):
                piece = self._more[at - self._more_at : min(at + step, end) - self._more_at]
                yield _units(piece, at)

    def at(self, slot: int) -> Units | None:
        """Return one unit; None if its file is missing."""
        return next(self.units(slot, slot + 1, 1), None)
