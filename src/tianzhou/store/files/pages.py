"""Memory-map calls without the interpreter lock: page population, range sync, residency.

`mmap.madvise` and `mmap.flush` hold the interpreter lock while the kernel works, which takes seconds for a large
segment. Calls through `ctypes` release it, so the event loop continues.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PAGE: Final = 4096
RANDOM: Final = 1
"""Advice to read only the touched pages of a file (`MADV_RANDOM`)."""
_DONTNEED: Final = 4
_POPULATE_READ: Final = 22
_POPULATE_WRITE: Final = 23
_MS_SYNC: Final = 4
_FIXED: Final = 0x10
_NORESERVE: Final = 0x4000
_MEMORY_FILE_SYSTEMS: Final = frozenset((0x01021994, 0x858458F6))
"""`statfs` types of tmpfs and ramfs."""
_FAILED: Final = ctypes.c_void_p(-1).value

_libc: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_can_populate = _libc is not None
if _libc is not None:
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong
    )  # fmt: skip
if sys.platform == "linux":
    # PyDLL holds the interpreter lock, because its release would take longer than the call.
    _mincore = ctypes.PyDLL(None).mincore
    _mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def map_file(fd: int, size: int) -> mmap.mmap:
    """Map a file for reading and writing. Where the system can, the map uses no descriptor, as each queue has a map.

    Raises:
        OSError: the file cannot be mapped.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, size, trackfd=False)
    if _libc is None:
        return mmap.mmap(fd, size)
    # An anonymous map needs no descriptor and no memory. The file then replaces its pages.
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    flags = mmap.MAP_SHARED | _FIXED
    if _libc.mmap(address_of(memory), size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0) == _FAILED:
        code = ctypes.get_errno()
        memory.close()
        raise OSError(code, os.strerror(code))
    return memory


_hollow_devices: Final[dict[int, bool]] = {}


def takes_space_when_read(fd: int, device: int) -> bool:
    """Whether a read of a mapped hole allocates memory, as on tmpfs.

    Without free memory, such a read kills the process. A read by a system call returns zeros instead.

    Args:
        fd: descriptor of a file on the file system.
        device: number of its disk.
    """
    known = _hollow_devices.get(device)
    if known is None:
        buffer = ctypes.create_string_buffer(512)
        known_kind = _libc is not None and _libc.fstatfs(fd, buffer) == 0
        kind = int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) & 0xFFFFFFFF
        known = _hollow_devices[device] = known_kind and kind in _MEMORY_FILE_SYSTEMS
    return known


def address_of(memory: mmap.mmap) -> int:
    """Return the address of the map in this process; valid while the map is open."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def advise(address: int, size: int, advice: int) -> None:
    """Advise the kernel how the map at `address` will be read; a kernel that ignores the advice does no harm."""
    if _libc is not None:
        _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(advice))


def populate(address: int, start: int, end: int) -> None:
    """Allocate memory and disk space for the pages of [start, end) of the map at `address`.

    Later writes to them neither fault slowly nor kill the process for lack of disk space. Unless the map was advised
    `RANDOM`, the kernel reads ahead of a missing page. In a sparse file this fills up to 8 MiB with zeros at once, and
    blocks the core for 10 to 30 ms.

    Raises:
        OSError: no space is left (ENOSPC), or the map cannot be written.
    """
    global _can_populate
    if not _can_populate or _libc is None:
        return
    start -= start % PAGE
    while True:
        done = _libc.madvise(
            ctypes.c_void_p(address + start), ctypes.c_size_t(end - start), ctypes.c_int(_POPULATE_WRITE)
        )
        if done == 0:
            return
        code = ctypes.get_errno()
        if code == errno.EINTR:
            continue
        if code == errno.EINVAL:  # a kernel before 5.14
            _can_populate = False
            return
        if code == errno.EFAULT:
            # The kernel reports "bad address" where an ordinary write would have raised SIGBUS.
            code = errno.ENOSPC
        raise OSError(code, os.strerror(code))


def resident(address: int, start: int, end: int) -> bool:
    """Whether a read of [start, end) of the map at `address` needs no disk; True where that is unknown."""
    if _libc is None:
        return True
    start -= start % PAGE
    count = -(-(end - start) // PAGE)
    if count <= 0:
        return True
    vector = ctypes.create_string_buffer(count)
    if _mincore(address + start, end - start, vector):
        return True
    # Only the lowest bit of each byte is defined; in practice a byte is 0 or 1.
    return vector.raw[:count].find(0) < 0


def fetch(address: int, start: int, end: int) -> bool:
    """Read [start, end) of the map at `address` from the disk; return False when this kernel has no call for it.

    Raises:
        OSError: the disk cannot be read.
    """
    if _libc is None:
        return False
    start -= start % PAGE
    while _libc.madvise(ctypes.c_void_p(address + start), ctypes.c_size_t(end - start), ctypes.c_int(_POPULATE_READ)):
        code = ctypes.get_errno()
        if code == errno.EINVAL:  # a kernel before 5.14
            return False
        if code == errno.EFAULT:
            # The kernel reports "bad address" where an ordinary read would have raised SIGBUS.
            code = errno.EIO
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
    return True


class HeldMap:
    """The map of a file, which stays mapped while another thread reads it.

    The file may be deleted and its map closed meanwhile.

    Args:
        memory: the map.
        address: address of the map's first byte.
        path: the file.
    """

    __slots__ = ("_address", "_view", "path")

    def __init__(self, memory: mmap.mmap, address: int, path: Path) -> None:
        self._view = memoryview(memory)
        self._address = address
        self.path = path

    def fetch(self, start: int, end: int) -> None:
        """Fetch [start, end) into memory; may block for the disk, without the interpreter lock.

        Raises:
            OSError: the disk cannot be read.
        """
        end = min(end, self._view.nbytes)
        if end <= start or fetch(self._address, start, end):
            return
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # deleted meanwhile
        try:
            while start < end and (read := len(os.pread(fd, min(end - start, 1 << 20), start))):
                start += read
        finally:
            os.close(fd)

    def release(self) -> None:
        """Release the map."""
        self._view.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def detach(address: int, size: int) -> None:
    """Remove the pages of the map at `address` from this process, so that its close is fast.

    A reader that still uses the map gets them back from the page cache.
    """
    if _libc is not None:
        _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(_DONTNEED))


def sync(memory: mmap.mmap, address: int, start: int, end: int) -> None:
    """Sync the pages of [start, end) of the map, with the metadata that a read of them needs.

    Raises:
        OSError: the disk refused the sync.
    """
    start -= start % PAGE
    if _libc is None:
        memory.flush(start, end - start)
        return
    _until_done(_libc.msync, ctypes.c_void_p(address + start), ctypes.c_size_t(end - start), ctypes.c_int(_MS_SYNC))


def sync_file_system(fd: int) -> bool:
    """Sync the whole file system of an open file; return False where the system has no such call.

    Raises:
        OSError: the disk refused the sync.
    """
    if _libc is None or not hasattr(_libc, "syncfs"):
        return False
    _until_done(_libc.syncfs, fd)
    return True


def _until_done(function: Callable[..., int], *arguments: object) -> None:
    """Call a function of the C library until no signal interrupts it.

    Raises:
        OSError: the call failed.
    """
    while function(*arguments):
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
