"""A disk that shows when someone reads what is not in memory, and that is as slow as a test wants."""

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
    """Files of a store with pages that "have left the memory".

    What was taken out reads as zeros until it is fetched, so that a look-up which does not fetch first finds nothing
    that makes sense. While the gate is shut, fetches wait at it; one that has to wait too long says that the loop is
    blocked, which was to open it.

    Attributes:
        fetches: file, from and to of each fetch, in the order they began.
        waiting: fetches that are at the gate.
        passed: fetches that have passed it.
        broken: the disk answers with an I/O error.
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
        """Let no fetch pass from now on."""
        self._shut = True

    def let_one_pass(self) -> None:
        """Let one fetch pass."""
        self._passes.release()

    def open(self) -> None:
        """Let all fetches pass."""
        with self._lock:
            self._shut = False
            self._passes.release(self.waiting + 1)

    def take(self, path: Path, start: int = 0, end: int | None = None) -> int:
        """Take the whole pages of [start, end) of a file out of memory; returns how many had something in them."""
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
        """Numbers of the pages of [start, end) that are not in memory."""
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
                # Whoever asks meanwhile must not take a page for fetched that reads as zeros.
                os.pwrite(self._files[held.path], self._pages[held.path][number], number * PAGE)
                del self._pages[held.path][number]

    @contextmanager
    def installed(self) -> Iterator[ColdDisk]:
        """Stand between stores and the real disk."""
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
