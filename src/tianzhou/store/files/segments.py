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
"""Maximum bytes for single page allocations; queues get a few pages at a time."""


class Writer(Protocol):
    """Holder of a segment's memory map."""

    def unmapped(self) -> None:
        """Note that the segment was unmapped and must be mapped again."""


class Segment:
    """One mapped file of fixed length.

    Views of the segment keep the map alive. A close or deletion only drops the segment's reference, and the memory is
    unmapped with the last view.

    Args:
        path: the file.
        start: offset of its first byte in the queue of segments.
        size: its length in bytes.
        maps: counts its map, and may evict it while no reader uses it; None for a map that is never evicted.

    Attributes:
        device: number of the disk that has the file; -1 while it is not known.
        inode: number of the file on that disk, once it is mapped.
        hollow: whether reads of holes in the map allocate space, which may be lacking; known once it is mapped. `read`
            and `written` avoid such reads.
        named: whether the file's name may count as synced; otherwise the next `sync` syncs it.
        writer: holder of the map, notified of its eviction.
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
        """Create the file, sparse and at full length, and map it; its first `sync` syncs its name, too.

        Raises:
            OSError: the file cannot be created.
        """
        segment = cls(path, start, size, maps)
        segment.named = False
        with _opened(path, os.O_RDWR | os.O_CREAT) as fd:
            os.ftruncate(fd, size)
            segment._map_file(fd)
        return segment

    def advise(self, advice: int) -> None:
        """Advise the kernel how the file will be read (`mmap.MADV_…`); the call only marks the map."""
        self._advice = advice
        if self._map is not None:
            self._map.madvise(advice)

    @property
    def end(self) -> int:
        """Offset after the last byte of the file."""
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
        """The view; None while the segment is not mapped."""
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
        """Drop the map; it is unmapped with its last view, and the next use maps the file again."""
        self._view = self._map = None
        if self.writer is not None:
            self.writer.unmapped()

    def read(self, start: int, end: int) -> memoryview:
        """Return [start, end) of the file, which may be unwritten."""
        view = self.view
        if not self.hollow or pages.resident(self._address, start, end):
            return view[start:end]
        with _opened(self.path, os.O_RDONLY) as fd:
            return memoryview(os.pread(fd, end - start, start))

    def written(self, position: int = 0) -> int:
        """Return the end of the bytes to read from `position` on: that of the file, or a hole that takes space."""
        if not self.map or not self.hollow:
            return self.size
        with _opened(self.path, os.O_RDONLY) as fd:
            try:
                return min(os.lseek(fd, position, os.SEEK_HOLE), self.size)
            except OSError:
                return self.size

    def reserve_range(self, start: int, end: int, alone: bool | None = None) -> None:
        """Ensure that a write to [start, end) cannot fail for lack of disk space; may run on another thread.

        Args:
            start: first byte.
            end: position after the last byte.
            alone: whether only these pages are allocated, one by one; None decides by their number. Otherwise the
                kernel reads ahead, in large pages: a third of the processor time, in bursts of 20 ms.

        Raises:
            OSError: there is no space.
        """
        memory = self.map
        with memoryview(memory):  # prevents the close of the map meanwhile
            if alone is None:
                alone = end - start <= _FEW
            if self._advice == pages.RANDOM or not alone:
                pages.populate(self._address, start, min(end, self.size))
                return
            # Two threads at once may undo each other's advice; then the kernel reads ahead after all.
            pages.advise(self._address, self.size, pages.RANDOM)
            try:
                pages.populate(self._address, start, min(end, self.size))
            finally:
                pages.advise(self._address, self.size, self._advice)

    def put(self, position: int, data: memoryview) -> None:
        """Write bytes to a part of the file without readers.

        For many bytes: the kernel creates no page of zeros first, and does not read a page that is written whole.

        Raises:
            OSError: there is no space.
        """
        with _opened(self.path, os.O_WRONLY) as fd:
            while data:
                written = os.pwrite(fd, data, position)
                position, data = position + written, data[written:]

    def sync(self, start: int, end: int) -> None:
        """Sync [start, end) of the file; may run on another thread.

        Raises:
            OSError: the disk refused the sync.
        """
        memory = self._map
        if end <= start or (memory is None and self.maps is None):
            return
        if memory is None:
            self._sync_unmapped()
        else:
            with memoryview(memory):  # prevents the close of the map meanwhile
                # Do not use the stored address, because the segment may have another map by now.
                pages.sync(memory, pages.address_of(memory), start, end)
        if (start == 0 or not self.named) and (self._map is not None or self.maps is not None):
            self._sync_name()
            self.named = True

    def _sync_unmapped(self) -> None:
        """Sync the file, whose map was evicted with its written bytes."""
        with suppress(FileNotFoundError), _opened(self.path, os.O_RDWR) as fd:  # deleted meanwhile, as topics are
            os.fdatasync(fd)

    def _sync_name(self) -> None:
        """Sync the directory's entry for the file, because a power failure would lose the file without it."""
        try:
            sync_directory(self.path.parent)
        except FileNotFoundError:
            return  # deleted meanwhile, as topics are
        sync_new_directories(self.path.parent)

    def resident(self, start: int, end: int) -> bool:
        """Whether [start, end) of the file can be read without waiting for the disk."""
        return pages.resident(self._address, start, min(end, self.size)) if self.map else False

    def hold(self) -> pages.HeldMap:
        """Hold the map for a reader on another thread, until the reader releases it."""
        memory = self.map
        return pages.HeldMap(memory, self._address, self.path)

    def fetch(self, start: int, end: int) -> None:
        """Fetch [start, end) of the file into memory; may block for the disk, so call it on another thread.

        Raises:
            OSError: the disk cannot be read.
        """
        with self.hold() as held:
            held.fetch(start, end)

    def find(self, needle: bytes, position: int) -> int:
        """Return the position of the first `needle` at or after `position`, -1 without one; holes are skipped."""
        memory = self.map
        with _opened(self.path, os.O_RDONLY) as fd:
            return sparse.find(fd, memory, needle, position, self.size)

    def zero_tail(self, position: int) -> None:
        """Zero all bytes from `position` on, free their disk space, and sync.

        The cut bytes must not reappear after later writes.

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
            # The rest is nearly always a hole, and to read it would cost a store of many queues seconds.
            position, hole = sparse.extent(fd, position, self.size)
            if position < 0:
                return True
            chunk = os.pread(fd, min(1 << 20, hole - position), position)
            if chunk.count(0) != len(chunk):
                return False
            position += len(chunk)
        return True

    def close(self) -> None:
        """Close the map; it is unmapped with its last view."""
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
        """Drop map and file for good; the returned object releases both, on another thread."""
        view, memory = self._forget()
        if view is not None:
            view.release()
        return RetiredSegment(self.path, self.size, memory, self._address)

    def delete(self) -> None:
        """Close, and remove the file; present views stay readable."""
        self.close()
        self.path.unlink(missing_ok=True)


def sync_all(segments: Sequence[Segment]) -> bool:
    """Sync all writes to many segments, with their names, by a sync of their whole file systems.

    A sync of each segment would take two commits of the file system's journal, and each writer to a new page of any
    file waits for such a commit. May run on another thread.

    Returns:
        Whether it is done; False where a whole file system cannot be synced.

    Raises:
        OSError: the disk refused the sync.
    """
    devices: dict[int, Path] = {}
    try:
        for segment in segments:
            # Query unknown devices only, because each call takes the interpreter lock from the event loop and back.
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
    """Return the file name of the segment that starts at `start`: 20 digits (store.md §1)."""
    return f"{start:020d}"


def segment_files(directory: Path) -> list[tuple[int, Path, int]]:
    """Return start offset, path and length of the segment files in a directory; other files are ignored."""
    if not directory.is_dir():
        return []
    return [
        (int(path.name), path, path.stat().st_size)
        for path in directory.iterdir()
        if len(path.name) == 20 and path.name.isascii() and path.name.isdigit() and path.is_file()
    ]


class SegmentQueue:
    """Consecutive segments of one size (store.md §2.2, §2.3).

    Args:
        directories: directories for new segments; several ones share them (store.md §1).
        size: bytes of each segment.
        maps: counts the maps of the segments, and may evict them; None for a queue whose maps are never evicted.

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
        """Return the path for a new segment that starts at `start`."""
        candidates = self.directories
        if len(candidates) > 1:
            candidates = sorted(set(candidates) - self.avoided) or sorted(candidates)
        return candidates[start // self.size % len(candidates)] / segment_name(start)

    def create(self, start: int) -> Segment:
        """Create the segment that starts at `start`, after the present ones.

        Raises:
            OSError: it cannot be created.
        """
        segment = self.make(start)
        self.adopt(segment)
        return segment

    def make(self, start: int) -> Segment:
        """Create a segment and do not add it; may run on another thread.

        Raises:
            OSError: it cannot be created.
        """
        path = self.path_of(start)
        begin_directory(path.parent)
        return Segment.create(path, start, self.size, self._maps)

    def adopt(self, segment: Segment) -> None:
        """Add a segment after the present ones."""
        segment.maps = self._maps
        self.segments.append(segment)
        self._starts.append(segment.start)

    def find(self, offset: int) -> Segment | None:
        """Return the segment that contains `offset`, or None."""
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
        """Return the index of the last segment that starts at or before `offset`; -1 without one."""
        return bisect_right(self._starts, offset) - 1

    def truncate(self, offset: int) -> None:
        """Delete the segments that start at or after `offset`, and zero the rest of the segment that contains it.

        The last segment is deleted first, so that a crash leaves no gap. The changes are synced on return.

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
        """Remove and return the oldest segment; its file stays."""
        del self._starts[0]
        return self.segments.pop(0)

    def close(self) -> None:
        """Unmap all segments."""
        for segment in self.segments:
            segment.close()

    def retire(self) -> list[RetiredSegment]:
        """Retire all segments; the caller removes their files."""
        retired = [segment.retire() for segment in self.segments]
        self.segments.clear()
        self._starts.clear()
        return retired

    def delete(self) -> None:
        """Remove all files, and the directories when they are empty then; synced on return."""
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
