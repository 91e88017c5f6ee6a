"""A disk that detects reads of pages outside the memory, and delays them as long as a test needs."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tianzhou.store import coldreads
from tianzhou.store.files.pages import PAGE, HeldMap
from tianzhou.store.files.segments import Segment

_PATIENCE_S = 20.0


class ColdDisk:
    """The files of a store, some pages of which have "left the memory".

    A page outside the memory reads as zeros until it is fetched, so a look-up that does not fetch it first finds no
    valid data. While the gate is shut, fetches wait at it. A fetch that waits too long fails, because a blocked loop
    cannot open the gate.

    Attributes:
        fetches: file, start and end of each fetch, in the order of their start.
        waiting: number of fetches at the gate.
        passed: number of fetches that have passed it.
        broken: whether the disk fails with an I/O error.
    """

    def __init__(self) -> None:
        self.fetches: list[tuple[Path, int, int]] = []
        self.waiting = self.passed = 0
        self.broken = False
        self._pages: dict[Path, dict[int, bytes]] = {}
        self._files: dict[Path, int] = {}
        self._lock = threading.Lock()
        self._shut = False
        self._passes = threading.Semaphore(0)
        self._loop_thread = threading.get_ident()

    def shut(self) -> None:
        """Shut the gate for all fetches."""
        self._shut = True

    def let_one_pass(self) -> None:
        """Open the gate for one fetch."""
        self._passes.release()

    def open(self) -> None:
        """Open the gate for all fetches."""
        with self._lock:
            self._shut = False
            self._passes.release(self.waiting + 1)

    def take(self, path: Path, start: int = 0, end: int | None = None) -> int:
        """Take the whole pages of [start, end) of a file out of memory; return how many were not empty."""
        fd = self._files.get(path)
        if fd is None:
            fd = self._files[path] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        taken = self._pages.setdefault(path, {})
        stop = os.fstat(fd).st_size if end is None else end
        before = len(taken)
        for number in range(-(-start // PAGE), stop // PAGE):
            data = os.pread(fd, PAGE, number * PAGE)
            if number not in taken and data.count(0) != len(data):
                taken[number] = data
                os.pwrite(fd, bytes(len(data)), number * PAGE)
        return len(taken) - before

    def missing(self, path: Path, start: int, end: int) -> list[int]:
        """Return the numbers of the pages of [start, end) that are not in memory."""
        taken = self._pages.get(path)
        return [number for number in range(start // PAGE, -(-end // PAGE)) if number in taken] if taken else []

    def _fetch(self, held: HeldMap, start: int, end: int) -> None:
        if not self.missing(held.path, start, end):
            return
        if threading.get_ident() == self._loop_thread:
            raise AssertionError(f"{held.path} is fetched on the loop's own thread")
        with self._lock:
            self.fetches.append((held.path, start, end))
            self.waiting += 1
            shut = self._shut
        try:
            if shut and not self._passes.acquire(timeout=_PATIENCE_S):
                raise AssertionError("the loop did not open the gate: it is blocked")
        finally:
            with self._lock:
                self.waiting -= 1
                self.passed += 1
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(held.path))
        with self._lock:
            for number in self.missing(held.path, start, end):
                # Write before the removal: a concurrent check must not count a page that reads as zeros as fetched.
                os.pwrite(self._files[held.path], self._pages[held.path][number], number * PAGE)
                del self._pages[held.path][number]

    @contextmanager
    def installed(self) -> Iterator[ColdDisk]:
        """Replace the residency checks and fetches of all stores."""
        resident, fetch = Segment.resident, HeldMap.fetch

        def is_resident(segment: Segment, start: int, end: int) -> bool:
            return not self.missing(segment.path, start, min(end, segment.size))

        def do_fetch(held: HeldMap, start: int, end: int) -> None:
            self._fetch(held, start, end)

        believed = coldreads.RESIDENT_S
        Segment.resident, HeldMap.fetch = is_resident, do_fetch  # type: ignore[method-assign,assignment]
        coldreads.RESIDENT_S = 0.0  # type: ignore[misc]
        try:
            yield self
        finally:
            Segment.resident, HeldMap.fetch = resident, fetch  # type: ignore[method-assign]
            coldreads.RESIDENT_S = believed  # type: ignore[misc]
            self.open()
            for fd in self._files.values():
                os.close(fd)
