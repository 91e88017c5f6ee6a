"""Bringing mapped bytes to the disk, on one thread, without holding the interpreter (store.md §11)."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final

from tianzhou.clock import Clock
from tianzhou.errors import StoreError
from tianzhou.metrics.families import Histogram
from tianzhou.shortages import passes
from tianzhou.store.files.directories import DiskNotAsked
from tianzhou.store.files.segments import Segment, sync_all
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.settings import StoreSettings
from tianzhou.supervision import Supervisor
from tianzhou.watermark import Watermark

logger = logging.getLogger(__name__)

PAGE: Final = 4096
MANY: Final = 512
"""Number of files from which syncing their whole file system takes less time than syncing each."""
RETRY_S: Final = 0.2
"""Pause before the disk is asked again when something else had run out."""
LAST_TRIALS: Final = 10
"""Number of syncs tried at the stop."""
WORK: Final = "flushing the commit log"
BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Bounds of how long flushes take."""
_UNCUT: Final = 1 << 63
Ranges = list[tuple[Segment, int, int]]


def not_asked(error: BaseException) -> bool:
    """Whether the disk was not asked at all, for want of something that comes back: a descriptor, memory, a thread.

    What the disk itself answers is final whatever its number is: after a failed sync the kernel takes the pages for
    clean, so that "no space left" would turn into a success when asked again.
    """
    return isinstance(error, DiskNotAsked) or (not isinstance(error, OSError) and passes(error))


class FolderLostError(OSError):
    """The log's files cannot be reached by their paths any more: nothing that is written there would be found again."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            errno.ENOENT,
            f"{path} is no longer the file that the broker writes to: the folder {path.parent} was removed, moved or "
            "replaced while the broker ran",
        )


def is_reachable(segment: Segment) -> bool:
    """Whether a segment's path leads to the file that is mapped; also true while none is.

    A folder that was removed, moved or replaced leaves the map usable, but no start finds what is written there.
    """
    device, inode = segment.device, segment.inode
    if device < 0:
        return True
    try:
        there = os.stat(segment.path)  # noqa: PTH116 - quicker
        found = (there.st_dev, there.st_ino) == (device, inode)
    except (FileNotFoundError, NotADirectoryError):
        found = False
    return found or segment.device < 0  # closed meanwhile, as the end of a log that was cut


def check_reachable(ranges: Ranges) -> None:
    """See to it that segments which were synced can be found again by their paths.

    Raises:
        FolderLostError: one cannot.
    """
    for segment, _, _ in ranges:
        if not is_reachable(segment):
            raise FolderLostError(segment.path)


def why_refused(error: Exception) -> tuple[str, str]:
    """Return why the commit log is no longer written, and the remedy, in words.

    Args:
        error: what a flush raised.
    """
    if isinstance(error, FolderLostError):
        return str(error.strerror), "put the folder back"
    return f"the disk refused the commit log ({error})", "repair the disk"


def sync_ranges(ranges: Ranges) -> None:
    """Bring the byte ranges to the disk.

    Raises:
        OSError: the disk refused.
    """
    for segment, start, end in ranges:
        segment.sync(start, end)


def sync_queues(ranges: Ranges) -> None:
    """As `sync_ranges`, for the files of queues, of which there may be thousands.

    Raises:
        OSError: the disk refused.
    """
    if len(ranges) < MANY or not sync_all([segment for segment, _, _ in ranges]):
        sync_ranges(ranges)


def log_ranges(log: CommitLog, start: int, end: int) -> Ranges:
    """The parts of segments between two commit-log offsets."""
    ranges: Ranges = []
    for segment in reversed(log.files.segments):
        if segment.end <= start:
            break
        if segment.start < end:
            ranges.append((segment, max(start - segment.start, 0), min(end - segment.start, segment.size)))
    ranges.reverse()
    return ranges


class SyncThread:
    """One thread that brings ranges to the disk.

    An executor would do; at hundreds of flushes a second, its locks and futures cost more than the messages do.

    Attributes:
        failure: what the disk answered when it refused first; nothing is asked of it after that. The kernel tells of a
            lost page once, so that a second sync of the same range would succeed.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Ranges, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self.failure: Exception | None = None

    def sync(self, ranges: Ranges) -> asyncio.Future[None]:
        """Bring the byte ranges to the disk; the future raises OSError when it refuses."""
        if self._thread is None:
            thread = Thread(target=self._run, name="tianzhou-flush", daemon=True)
            thread.start()
            self._thread = thread
        done = asyncio.get_running_loop().create_future()
        self._jobs.put((ranges, done))
        return done

    def bring(self, ranges: Ranges) -> None:
        """Bring the byte ranges to the disk, on the thread that calls.

        Raises:
            Exception: the disk refuses, or has refused before.
        """
        if self.failure is None:
            try:
                sync_ranges(ranges)
            except Exception as error:
                if not not_asked(error):
                    self.failure = error
                raise
        else:
            raise self.failure

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            ranges, done = job
            failure: Exception | None = None
            try:
                self.bring(ranges)
            except Exception as error:  # noqa: BLE001 - whoever waits is told
                failure = error
            try:
                done.get_loop().call_soon_threadsafe(_settle, done, failure)
            except RuntimeError:
                logger.debug("a flush ended after its loop")

    def close(self) -> None:
        """End the thread, after the flush it is at."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None


def _settle(done: asyncio.Future[None], failure: Exception | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


class LogFlusher:
    """Flushes the commit log in groups: everything appended while one flush runs is covered by the next.

    Args:
        log: the commit log.
        settings: flush type and intervals.
        clock: for the intervals.
        on_flushed: called with the new flushed offset and the store time of the newest record before it.
        on_failure: called with the error after which nothing more is acknowledged.
        supervisor: notes when the disk cannot be asked.

    Attributes:
        flushed: commit-log offset up to which the disk has everything.
        last_timestamp: store time of the newest appended record, ms; kept by the store.
        times: seconds that flushes took.
    """

    def __init__(
        self,
        log: CommitLog,
        settings: StoreSettings,
        clock: Clock,
        on_flushed: Callable[[int, int], None],
        on_failure: Callable[[Exception], None],
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor("store", clock)
        self._log = log
        self._settings = settings
        self._clock = clock
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._wanted = asyncio.Event()
        self._thread = SyncThread()
        self._is_folder_there: Callable[[], bool] = lambda: True
        self._cut_to = _UNCUT
        self.flushed = Watermark(0)
        self.last_timestamp = 0
        self.failed = False
        self.times = Histogram(BOUNDS_S)

    def watch(self, is_folder_there: Callable[[], bool]) -> None:
        """Refuse flushes once the store's folder has lost its path.

        Args:
            is_folder_there: whether it still has it; called on the loop after each flush. On the thread that flushes,
                each system call would wait for the interpreter of a busy loop.
        """
        self._is_folder_there = is_folder_there

    def _check_paths(self, ranges: Ranges) -> None:
        """See to it that the next start finds flushed records.

        Raises:
            FolderLostError: it would not.
        """
        check_reachable(ranges)
        if not self._is_folder_there():
            raise FolderLostError(self._settings.root / "lock")

    def request(self) -> None:
        """Ask for a flush soon."""
        self._wanted.set()

    async def run(self) -> None:
        """Flush until cancelled."""
        if self._settings.sync_flush:
            if self._log.end > self.flushed.value:
                self._wanted.set()  # from before a failure
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await self.flush()
        else:
            await self._run_timed()

    async def _run_timed(self) -> None:
        settings = self._settings
        thorough_at = self._clock.monotonic() + settings.flush_commit_log_thorough_interval / 1000
        while True:
            try:
                async with asyncio.timeout(max(settings.flush_interval_commit_log, 1) / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            now = self._clock.monotonic()
            end, flushed = self._log.end, self.flushed.value
            if now >= thorough_at:
                thorough_at = now + settings.flush_commit_log_thorough_interval / 1000
            elif end // PAGE - flushed // PAGE < settings.flush_commit_log_least_pages and self._log.base <= flushed:
                continue
            await self.flush()

    async def flush(self) -> None:
        """Bring everything appended so far to the disk, and tell those who wait for it."""
        end, timestamp = self._log.end, self.last_timestamp
        if end <= self.flushed.value or self.failed:
            return
        ranges = log_ranges(self._log, self.flushed.value, end)
        self._cut_to = _UNCUT
        began = self._clock.monotonic()
        try:
            await self._thread.sync(ranges)
            self._check_paths(ranges)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is known to be on the disk
            if not not_asked(error):
                self.fail(error)
                return
            self._supervisor.failed(WORK, error)
            await asyncio.sleep(RETRY_S)
            self._wanted.set()
            return
        self.times.note(self._clock.monotonic() - began)
        self._supervisor.well(WORK)
        self._advance(min(end, self._cut_to), timestamp)

    def cut(self, end: int) -> None:
        """The log was cut, and the disk has that: what comes behind its end is not on the disk yet."""
        self._cut_to = min(self._cut_to, end)
        self.flushed.fall_back(end)

    def flush_now(self) -> None:
        """As `flush`, on this thread; what the other one is at is awaited first."""
        self._thread.close()
        if self._thread.failure is not None:
            # Who waited for it may be gone without having heard.
            self.fail(self._thread.failure)
        end, timestamp = self._log.end, self.last_timestamp
        if end <= self.flushed.value or self.failed:
            return
        for trial in range(1, LAST_TRIALS + 1):
            try:
                ranges = log_ranges(self._log, self.flushed.value, end)
                sync_ranges(ranges)
                self._check_paths(ranges)
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing is known to be on the disk
                if not not_asked(error):
                    self.fail(error)
                    return
                self._supervisor.failed(WORK, error)
                if trial < LAST_TRIALS:
                    time.sleep(RETRY_S)  # the loop has nothing else to do any more
            else:
                self._advance(end, timestamp)
                return

    def _advance(self, end: int, timestamp: int) -> None:
        if not self.failed:
            self.flushed.advance(end)
            self._on_flushed(end, timestamp)

    def fail(self, error: Exception) -> None:
        """Nothing is acknowledged from now on: after a failed sync the kernel may have dropped the pages."""
        if self.failed:
            return
        self.failed = True
        cause, remedy = why_refused(error)
        self.flushed.fail(
            StoreError(
                f"{cause}; nothing from offset {self.flushed.value} of the commit log on is acknowledged and the store "
                f"only reads: {remedy}, then restart the broker"
            )
        )
        self._on_failure(error)

    def close(self) -> None:
        """End the thread, after the flush it is at."""
        self._thread.close()
