"""Memory-map calls that must not hold the interpreter: page population, range sync, residency.

`mmap.madvise` and `mmap.flush` keep the interpreter lock for as long as the kernel works, which is seconds for a
large segment. Called through `ctypes` they let the event loop go on.
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
"""Advice to read no more of a file than what is touched (`MADV_RANDOM`)."""
_DONTNEED: Final = 4
_POPULATE_READ: Final = 22
_POPULATE_WRITE: Final = 23
_MS_SYNC: Final = 4
_FIXED: Final = 0x10
_NORESERVE: Final = 0x4000
_MEMORY_FILE_SYSTEMS: Final = frozenset((0x01021994, 0x858458F6))
"""What `statfs` calls tmpfs and ramfs."""
_FAILED: Final = ctypes.c_void_p(-1).value

_libc: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_can_populate = _libc is not None
if _libc is not None:
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong
    )  # fmt: skip
if sys.platform == "linux":
    # Quicker than giving up the interpreter would be.
    _mincore = ctypes.PyDLL(None).mincore
    _mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def map_file(fd: int, size: int) -> mmap.mmap:
    """Map a file for reading and writing; where the system can, the map keeps no descriptor, for there is one a queue.

    Raises:
        OSError: it cannot be mapped.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, size, trackfd=False)
    if _libc is None:
        return mmap.mmap(fd, size)
    # A map of nothing takes no descriptor, and no memory either; the file then takes its place.
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    flags = mmap.MAP_SHARED | _FIXED
    if _libc.mmap(address_of(memory), size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0) == _FAILED:
        code = ctypes.get_errno()
        memory.close()
        raise OSError(code, os.strerror(code))
    return memory


_hollow_devices: Final[dict[int, bool]] = {}


def takes_space_when_read(fd: int, device: int) -> bool:
    """Whether a hole of a mapped file gets memory when it is read, as those of tmpfs do.

    When there is none left, the process is killed for reading. A file that is read by a call gives zeros.

    Args:
        fd: of a file there.
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
    """Where the map begins in this process; valid as long as the map is open."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def advise(address: int, size: int, advice: int) -> None:
    """Say how the map at `address` will be read; what the kernel does not take makes nothing wrong."""
    if _libc is not None:
        _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(advice))


def populate(address: int, start: int, end: int) -> None:
    """Give the pages of [start, end) of the map at `address` memory and disk space.

    Writing to them afterwards can neither fault slowly nor kill the process for want of disk space. Unless the map was
    advised `RANDOM`, the kernel reads ahead of a page that is not there, which fills up to 8 MiB of a sparse file with
    zeros in one go: 10 to 30 ms during which that core does nothing else.

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
            # The kernel says "bad address" where an ordinary write would have raised SIGBUS.
            code = errno.ENOSPC
        raise OSError(code, os.strerror(code))


def resident(address: int, start: int, end: int) -> bool:
    """Whether reading [start, end) of the map at `address` needs no disk; true where that cannot be found out."""
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
    """Read [start, end) of the map at `address` from the disk; false when this kernel has no call for it.

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
            # The kernel says "bad address" where an ordinary read would have raised SIGBUS.
            code = errno.EIO
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
    return True


class HeldMap:
    """The map of a file, kept from being unmapped while another thread reads it.

    The file may be deleted meanwhile, and whoever closes the map only lets go of it.

    Args:
        memory: the map.
        address: where it begins.
        path: the file.
    """

    __slots__ = ("_address", "_view", "path")

    def __init__(self, memory: mmap.mmap, address: int, path: Path) -> None:
        self._view = memoryview(memory)
        self._address = address
        self.path = path

    def fetch(self, start: int, end: int) -> None:
        """Bring [start, end) into memory; it may wait for the disk, and does so without the interpreter.

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
        """Let go of the map."""
        self._view.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def detach(address: int, size: int) -> None:
    """Take the pages of the map at `address` from this process, so that closing it is quick.

    Who still reads the map gets them back from the page cache.
    """
    if _libc is not None:
        _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(_DONTNEED))


def sync(memory: mmap.mmap, address: int, start: int, end: int) -> None:
    """Bring the pages of [start, end) of the map to the disk, with the metadata that reading them needs.

    Raises:
        OSError: the disk refused.
    """
    start -= start % PAGE
    if _libc is None:
        memory.flush(start, end - start)
        return
    _until_done(_libc.msync, ctypes.c_void_p(address + start), ctypes.c_size_t(end - start), ctypes.c_int(_MS_SYNC))


def sync_file_system(fd: int) -> bool:
    """Bring all that was written to the file system of an open file to the disk; false where no call does it.

    Raises:
        OSError: the disk refused.
    """
    if _libc is None or not hasattr(_libc, "syncfs"):
        return False
    _until_done(_libc.syncfs, fd)
    return True


def _until_done(function: Callable[..., int], *arguments: object) -> None:
    """Call a function of the C library again for as long as signals interrupt it.

    Raises:
        OSError: it fails.
    """
    while function(*arguments):
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
