"""Segment files: full-length sparse files, mapped on first use, named by their start offset (store.md §2)."""

from __future__ import annotations

import logging
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from tianzhou.store.files import directories, pages, sparse
from tianzhou.store.files.directories import begin_directory, open_file, sync_directory, sync_new_directories
from tianzhou.store.files.maps import QueueMaps
from tianzhou.store.files.retired import RetiredSegment

logger = logging.getLogger(__name__)


_FEW: Final = 32_768
"""Bytes of a few pages, as queues get them next."""


class Writer(Protocol):
    """Who has the map of a segment at hand."""

    def unmapped(self) -> None:
        """The segment's map is given up: it has to be mapped again."""


class Segment:
    """One mapped file of fixed length.

    Views handed out keep the map alive: closing or deleting the segment only lets go of it, and the memory is
    unmapped when the last view is gone.

    Args:
        path: the file.
        start: offset of its first byte in the queue of segments.
        size: its length in bytes.
        maps: counts its map, and may give it up while nobody uses it; None for one that keeps it.

    Attributes:
        device: number of the disk that has the file; -1 while it is not known.
        inode: number of the file on that disk, once it is mapped.
        hollow: whether reading in the map what was never written takes space, which may be lacking: known once it is
            mapped. `read` and `written` mind it.
        named: whether the disk has its name for all that is known; otherwise the next `sync` sees to it.
        writer: who has its map at hand, to be notified when it is given up.
    """

    __slots__ = (
        "_address", "_advice", "_map", "_view", "device", "flushed", "hollow", "inode", "maps", "named", "path",
        "size", "start", "writer",
    )  # fmt: skip

    def __init__(self, path: Path, start: int, size: int, maps: QueueMaps | None = None) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.maps = maps
        self.writer: Writer | None = None
        self.flushed = 0
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._address = 0
        self._advice = mmap.MADV_NORMAL
        self.device = -1
        self.inode = -1
        self.hollow = False
        self.named = True

    @classmethod
    def create(cls, path: Path, start: int, size: int, maps: QueueMaps | None = None) -> Segment:
        """Make the file, sparse and at full length, and map it; with its first `sync` the disk has its name, too.

        Raises:
            OSError: the file cannot be made.
        """
        segment = cls(path, start, size, maps)
        segment.named = False
        with _opened(path, os.O_RDWR | os.O_CREAT) as fd:
            os.ftruncate(fd, size)
            segment._map_file(fd)
        return segment

    def advise(self, advice: int) -> None:
        """Say how the file will be read (`mmap.MADV_…`); the call only leaves a mark at the map."""
        self._advice = advice
        if self._map is not None:
            self._map.madvise(advice)

    @property
    def end(self) -> int:
        """Offset behind the last byte the file can hold."""
        return self.start + self.size

    @property
    def map(self) -> mmap.mmap:
        """The writable map."""
        if self._map is None:
            self._open()
        assert self._map is not None
        return self._map

    @property
    def view(self) -> memoryview:
        """The whole segment, for reading; slices of it keep the map alive."""
        if self._view is None:
            self._open()
        assert self._view is not None
        return self._view

    @property
    def open_view(self) -> memoryview | None:
        """As `view`; None while the segment is not mapped."""
        return self._view

    def _open(self) -> None:
        with _opened(self.path, os.O_RDWR) as fd:
            self._map_file(fd)

    def _map_file(self, fd: int) -> None:
        maps = self.maps
        memory = pages.map_file(fd, self.size) if maps is None else maps.map_file(fd, self.size)
        status = os.fstat(fd)
        self.device, self.inode = status.st_dev, status.st_ino
        self.hollow = pages.takes_space_when_read(fd, self.device)
        self._map, self._view = memory, memoryview(memory).toreadonly()
        self._address = pages.address_of(memory)
        if self._advice != mmap.MADV_NORMAL:
            memory.madvise(self._advice)
        if maps is not None:
            maps.add(self)

    def let_go(self) -> None:
        """Give up the map; it goes with the last view of it, and the next use makes another."""
        self._view = self._map = None
        if self.writer is not None:
            self.writer.unmapped()

    def read(self, start: int, end: int) -> memoryview:
        """[start, end) of the file, which may never have been written."""
        view = self.view
        if not self.hollow or pages.resident(self._address, start, end):
            return view[start:end]
        with _opened(self.path, os.O_RDONLY) as fd:
            return memoryview(os.pread(fd, end - start, start))

    def written(self, position: int = 0) -> int:
        """Up to where the file can be read from `position` on: its end, unless reading a hole takes space."""
        if not self.map or not self.hollow:
            return self.size
        with _opened(self.path, os.O_RDONLY) as fd:
            try:
                return min(os.lseek(fd, position, os.SEEK_HOLE), self.size)
            except OSError:
                return self.size

    def reserve_range(self, start: int, end: int, alone: bool | None = None) -> None:
        """Make sure that writing to [start, end) of the file cannot fail for want of disk space.

        May run on another thread.

        Args:
            start: first byte.
            end: the one behind the last.
            alone: whether no more than these pages is made, one by one; None when there are few. Otherwise the kernel
                reads ahead, in large pages: a third of the processor time, in bursts of 20 ms.

        Raises:
            OSError: there is no space.
        """
        memory = self.map
        with memoryview(memory):  # keeps the map from being closed meanwhile
            if alone is None:
                alone = end - start <= _FEW
            if self._advice == pages.RANDOM or not alone:
                pages.populate(self._address, start, min(end, self.size))
                return
            # Two threads at once may undo each other's advice; then something is read ahead after all.
            pages.advise(self._address, self.size, pages.RANDOM)
            try:
                pages.populate(self._address, start, min(end, self.size))
            finally:
                pages.advise(self._address, self.size, self._advice)

    def put(self, position: int, data: memoryview) -> None:
        """Write bytes to the file, where no reader looks yet.

        For many: the kernel makes no page of zeros first, and a page that is written as a whole is not read.

        Raises:
            OSError: there is no space.
        """
        with _opened(self.path, os.O_WRONLY) as fd:
            while data:
                written = os.pwrite(fd, data, position)
                position, data = position + written, data[written:]

    def sync(self, start: int, end: int) -> None:
        """Bring [start, end) of the file to the disk; may run on another thread.

        Raises:
            OSError: the disk refused.
        """
        memory = self._map
        if end <= start or (memory is None and self.maps is None):
            return
        if memory is None:
            self._sync_unmapped()
        else:
            with memoryview(memory):  # keeps the map from being closed meanwhile
                # Not the address at hand: the map may be another one's by now.
                pages.sync(memory, pages.address_of(memory), start, end)
        if (start == 0 or not self.named) and (self._map is not None or self.maps is not None):
            self._sync_name()
            self.named = True

    def _sync_unmapped(self) -> None:
        """Bring the file to the disk, whose map was given up with what had been written."""
        with suppress(FileNotFoundError), _opened(self.path, os.O_RDWR) as fd:  # deleted meanwhile, as topics are
            os.fdatasync(fd)

    def _sync_name(self) -> None:
        """Bring the directory's entry for the file to the disk, without which the file is lost with the power."""
        try:
            sync_directory(self.path.parent)
        except FileNotFoundError:
            return  # deleted meanwhile, as topics are
        sync_new_directories(self.path.parent)

    def resident(self, start: int, end: int) -> bool:
        """Whether [start, end) of the file can be read without waiting for the disk."""
        return pages.resident(self._address, start, min(end, self.size)) if self.map else False

    def hold(self) -> pages.HeldMap:
        """Keep the map, for a reader on another thread, until that one releases it."""
        memory = self.map
        return pages.HeldMap(memory, self._address, self.path)

    def fetch(self, start: int, end: int) -> None:
        """Bring [start, end) of the file into memory; for another thread, it may wait for the disk.

        Raises:
            OSError: the disk cannot be read.
        """
        with self.hold() as held:
            held.fetch(start, end)

    def find(self, needle: bytes, position: int) -> int:
        """Position of the first `needle` at or behind `position`, -1 when there is none; holes are skipped."""
        memory = self.map
        with _opened(self.path, os.O_RDONLY) as fd:
            return sparse.find(fd, memory, needle, position, self.size)

    def zero_tail(self, position: int) -> None:
        """Make everything from `position` on read as zeros, and give its disk space back.

        The disk has it on return: what was cut off must not come back behind what is written next.

        Raises:
            OSError: the disk refused.
        """
        with _opened(self.path, os.O_RDWR) as fd:
            if self._only_zeros(fd, position):
                return
            # The map stays valid: the same pages read as zeros once the length is restored.
            os.ftruncate(fd, position)
            os.ftruncate(fd, self.size)
            os.fsync(fd)

    def _only_zeros(self, fd: int, position: int) -> bool:
        while position < self.size:
            # What follows is a hole nearly always, and reading that costs a store of many queues seconds.
            position, hole = sparse.extent(fd, position, self.size)
            if position < 0:
                return True
            chunk = os.pread(fd, min(1 << 20, hole - position), position)
            if chunk.count(0) != len(chunk):
                return False
            position += len(chunk)
        return True

    def close(self) -> None:
        """Let go of the map; it disappears with the last view of it."""
        view, memory = self._forget()
        if view is not None and memory is not None:
            try:
                view.release()
                memory.close()
            except BufferError:
                logger.debug("%s is still being read; unmapped when the last reader is done", self.path)

    def _forget(self) -> tuple[memoryview | None, mmap.mmap | None]:
        view, memory = self._view, self._map
        self._view = self._map = self.writer = None
        self.device = -1
        if self.maps is not None:
            self.maps.discard(self)
        return view, memory

    def retire(self) -> RetiredSegment:
        """Let go of map and file for good; the returned object gives both back to the system, on another thread."""
        view, memory = self._forget()
        if view is not None:
            view.release()
        return RetiredSegment(self.path, self.size, memory, self._address)

    def delete(self) -> None:
        """Close, and remove the file; present views stay readable."""
        self.close()
        self.path.unlink(missing_ok=True)


def sync_all(segments: Sequence[Segment]) -> bool:
    """Bring everything written to many segments to the disk, names included, with their file systems as a whole.

    One by one, each would take two commits of the file system's journal, and whoever writes to a new page of any file
    waits for such a commit. May run on another thread.

    Returns:
        Whether it is done; false where a whole file system cannot be synced.

    Raises:
        OSError: the disk refused.
    """
    devices: dict[int, Path] = {}
    try:
        for segment in segments:
            # Queried only where it is not known: each call takes the interpreter from the event loop and back.
            device = segment.device if segment.device >= 0 else os.stat(segment.path).st_dev  # noqa: PTH116 - quicker
            devices.setdefault(device, segment.path.parent)
        if not all(directories.sync_file_system(path) for path in devices.values()):
            return False
    except FileNotFoundError:
        return False  # deleted meanwhile, as topics are
    for segment in segments:
        segment.named = True
    return True


def segment_name(start: int) -> str:
    """File name of the segment that starts at `start`: 20 digits (store.md §1)."""
    return f"{start:020d}"


def segment_files(directory: Path) -> list[tuple[int, Path, int]]:
    """Start offset, path and length of the segment files in a directory; everything else is left alone."""
    if not directory.is_dir():
        return []
    return [
        (int(path.name), path, path.stat().st_size)
        for path in directory.iterdir()
        if len(path.name) == 20 and path.name.isascii() and path.name.isdigit() and path.is_file()
    ]


class SegmentQueue:
    """Segments of one size that follow each other (store.md §2.2, §2.3).

    Args:
        directories: where new segments may go; more than one spreads them (store.md §1).
        size: of each segment, bytes.
        maps: counts the maps of the segments, and may give them up; None for a queue that keeps all it has.

    Attributes:
        avoided: directories that get no new segments while others can have them, because their disks are full.
    """

    __slots__ = ("_maps", "_starts", "avoided", "directories", "segments", "size")

    def __init__(self, directories: list[Path], size: int, maps: QueueMaps | None = None) -> None:
        self._maps = maps
        self.directories = directories
        self.avoided: frozenset[Path] = frozenset()
        self.size = size
        self.segments: list[Segment] = []
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self.segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def path_of(self, start: int) -> Path:
        """Where the segment that starts at `start` is to be created."""
        candidates = self.directories
        if len(candidates) > 1:
            candidates = sorted(set(candidates) - self.avoided) or sorted(candidates)
        return candidates[start // self.size % len(candidates)] / segment_name(start)

    def create(self, start: int) -> Segment:
        """Create the segment that starts at `start`, behind the present ones.

        Raises:
            OSError: it cannot be made.
        """
        segment = self.make(start)
        self.adopt(segment)
        return segment

    def make(self, start: int) -> Segment:
        """Make a segment without taking it in; may run on another thread.

        Raises:
            OSError: it cannot be made.
        """
        path = self.path_of(start)
        begin_directory(path.parent)
        return Segment.create(path, start, self.size, self._maps)

    def adopt(self, segment: Segment) -> None:
        """Take in a segment that lies behind the present ones."""
        segment.maps = self._maps
        self.segments.append(segment)
        self._starts.append(segment.start)

    def find(self, offset: int) -> Segment | None:
        """The segment that holds `offset`, or None."""
        segments = self.segments
        if not segments:
            return None
        index = (offset - segments[0].start) // self.size
        if 0 <= index < len(segments) and segments[index].start <= offset < segments[index].end:
            return segments[index]
        index = bisect_right(self._starts, offset) - 1
        if index >= 0 and offset < segments[index].end:
            return segments[index]
        return None

    def index_of(self, offset: int) -> int:
        """Index of the last segment that starts at or before `offset`; -1 when there is none."""
        return bisect_right(self._starts, offset) - 1

    def truncate(self, offset: int) -> None:
        """Delete the segments that start at or behind `offset`, and zero what follows it in its own.

        The last goes first, so that a process that dies meanwhile leaves no gap; the disk has it all on return.

        Raises:
            OSError: the disk refused.
        """
        shrunk = set()
        while self.segments and self.segments[-1].start >= offset:
            self._starts.pop()
            segment = self.segments.pop()
            segment.delete()
            shrunk.add(segment.path.parent)
        for directory in shrunk:
            sync_directory(directory)
        if self.segments:
            last = self.segments[-1]
            if offset < last.end:
                last.zero_tail(offset - last.start)
                last.flushed = min(last.flushed, offset - last.start)

    def drop_first(self) -> Segment:
        """Take out the oldest segment; its file is still there."""
        del self._starts[0]
        return self.segments.pop(0)

    def close(self) -> None:
        """Let go of all maps."""
        for segment in self.segments:
            segment.close()

    def retire(self) -> list[RetiredSegment]:
        """Let go of all segments; removing their files is left to the caller."""
        retired = [segment.retire() for segment in self.segments]
        self.segments.clear()
        self._starts.clear()
        return retired

    def delete(self) -> None:
        """Remove all files, and the directories when nothing else is in them; the disk has that on return."""
        for segment in self.segments:
            segment.delete()
        self.segments.clear()
        self._starts.clear()
        for directory in self.directories:
            if directory.is_dir():
                if any(directory.iterdir()):
                    sync_directory(directory)
                else:
                    directory.rmdir()
                    sync_directory(directory.parent)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = open_file(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)
