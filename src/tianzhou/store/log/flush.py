"""Flushes of mapped bytes to the disk, on one thread, without holding the interpreter (store.md §11)."""

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
"""Number of files from which syncing their whole file system takes less time than syncing each file."""
RETRY_S: Final = 0.2
"""Seconds before the next attempt when another resource than the disk was exhausted."""
LAST_TRIALS: Final = 10
"""Number of sync attempts at the stop."""
WORK: Final = "flushing the commit log"
BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds of the histogram of flush times, seconds."""
_UNCUT: Final = 1 << 63
Ranges = list[tuple[Segment, int, int]]


def not_asked(error: BaseException) -> bool:
    """Whether a flush failed before it reached the disk, because a descriptor, memory or a thread was lacking.

    An error of the disk itself is final, whatever its number is. After a failed sync the kernel marks the pages clean,
    so that a second attempt after "no space left" would succeed falsely.
    """
    return isinstance(error, DiskNotAsked) or (not isinstance(error, OSError) and passes(error))


class FolderLostError(OSError):
    """The paths of the log's files no longer lead to them: a next start would not find records written now."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            errno.ENOENT,
            f"{path} is no longer the file that the broker writes to: the folder {path.parent} was removed, moved or "
            "replaced while the broker ran",
        )


def is_reachable(segment: Segment) -> bool:
    """Whether a segment's path leads to the mapped file; also true while no file is mapped.

    When a folder was removed, moved or replaced, the map still works, but no start finds its bytes.
    """
    device, inode = segment.device, segment.inode
    if device < 0:
        return True
    try:
        there = os.stat(segment.path)  # noqa: PTH116 - quicker
        found = (there.st_dev, there.st_ino) == (device, inode)
    except (FileNotFoundError, NotADirectoryError):
        found = False
    return found or segment.device < 0  # closed meanwhile, such as the end of a log that was cut


def check_reachable(ranges: Ranges) -> None:
    """Check that the paths of synced segments still lead to them.

    Raises:
        FolderLostError: a path does not.
    """
    for segment, _, _ in ranges:
        if not is_reachable(segment):
            raise FolderLostError(segment.path)


def why_refused(error: Exception) -> tuple[str, str]:
    """Return why the commit log is no longer written, and the remedy.

    Args:
        error: the error of a flush.
    """
    if isinstance(error, FolderLostError):
        return str(error.strerror), "put the folder back"
    return f"the disk refused the commit log ({error})", "repair the disk"


def sync_ranges(ranges: Ranges) -> None:
    """Sync the byte ranges to the disk.

    Raises:
        OSError: the disk refused.
    """
    for segment, start, end in ranges:
        segment.sync(start, end)


def sync_queues(ranges: Ranges) -> None:
    """Sync ranges of queue files, of which there may be thousands.

    Raises:
        OSError: the disk refused.
    """
    if len(ranges) < MANY or not sync_all([segment for segment, _, _ in ranges]):
        sync_ranges(ranges)


def log_ranges(log: CommitLog, start: int, end: int) -> Ranges:
    """Return the ranges of segments between two commit-log offsets."""
    ranges: Ranges = []
    for segment in reversed(log.files.segments):
        if segment.end <= start:
            break
        if segment.start < end:
            ranges.append((segment, max(start - segment.start, 0), min(end - segment.start, segment.size)))
    ranges.reverse()
    return ranges


class SyncThread:
    """One thread that syncs ranges to the disk.

    An executor would work, but at hundreds of flushes a second its locks and futures cost more than the messages.

    Attributes:
        failure: the first error of the disk. The thread does not sync after it: the kernel reports a lost page once, so
            a second sync of the same range would succeed falsely.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Ranges, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self.failure: Exception | None = None

    def sync(self, ranges: Ranges) -> asyncio.Future[None]:
        """Sync the byte ranges to the disk. The future raises OSError when the disk refuses."""
        if self._thread is None:
            thread = Thread(target=self._run, name="tianzhou-flush", daemon=True)
            thread.start()
            self._thread = thread
        done = asyncio.get_running_loop().create_future()
        self._jobs.put((ranges, done))
        return done

    def bring(self, ranges: Ranges) -> None:
        """Sync the byte ranges to the disk on the calling thread.

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
            except Exception as error:  # noqa: BLE001 - the waiting future gets the error
                failure = error
            try:
                done.get_loop().call_soon_threadsafe(_settle, done, failure)
            except RuntimeError:
                logger.debug("a flush ended after its loop")

    def close(self) -> None:
        """Stop the thread after its present flush."""
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
    """Flushes the commit log in groups: one flush covers everything appended during the flush before.

    Args:
        log: the commit log.
        settings: flush type and intervals.
        clock: for the intervals.
        on_flushed: called with the new flushed offset and the store time of the newest record before it.
        on_failure: called with the error after which no put is acknowledged.
        supervisor: notes flushes that fail before they reach the disk.

    Attributes:
        flushed: commit-log offset up to which the log is on the disk.
        last_timestamp: store time of the newest appended record, ms; the store updates it.
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
            is_folder_there: whether the path leads to the folder; called on the loop after each flush. On the flush
                thread, each system call would wait for the interpreter of a busy loop.
        """
        self._is_folder_there = is_folder_there

    def _check_paths(self, ranges: Ranges) -> None:
        """Check that the next start will find flushed records.

        Raises:
            FolderLostError: it would not.
        """
        check_reachable(ranges)
        if not self._is_folder_there():
            raise FolderLostError(self._settings.root / "lock")

    def request(self) -> None:
        """Request a flush soon."""
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
        """Flush everything appended so far to the disk, and wake the waiters."""
        end, timestamp = self._log.end, self.last_timestamp
        if end <= self.flushed.value or self.failed:
            return
        ranges = log_ranges(self._log, self.flushed.value, end)
        self._cut_to = _UNCUT
        began = self._clock.monotonic()
        try:
            await self._thread.sync(ranges)
            self._check_paths(ranges)
        except Exception as error:  # noqa: BLE001 - after any error, no byte is known to be on the disk
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
        """Lower the flushed offset after the log was cut on the disk: bytes after `end` are not flushed yet."""
        self._cut_to = min(self._cut_to, end)
        self.flushed.fall_back(end)

    def flush_now(self) -> None:
        """Flush on the calling thread, as `flush`, after the flush thread has finished its present work."""
        self._thread.close()
        if self._thread.failure is not None:
            # Its waiter may have been cancelled before it saw the error.
            self.fail(self._thread.failure)
        end, timestamp = self._log.end, self.last_timestamp
        if end <= self.flushed.value or self.failed:
            return
        for trial in range(1, LAST_TRIALS + 1):
            try:
                ranges = log_ranges(self._log, self.flushed.value, end)
                sync_ranges(ranges)
                self._check_paths(ranges)
            except Exception as error:  # noqa: BLE001 - after any error, no byte is known to be on the disk
                if not not_asked(error):
                    self.fail(error)
                    return
                self._supervisor.failed(WORK, error)
                if trial < LAST_TRIALS:
                    time.sleep(RETRY_S)  # the loop has no other work any more
            else:
                self._advance(end, timestamp)
                return

    def _advance(self, end: int, timestamp: int) -> None:
        if not self.failed:
            self.flushed.advance(end)
            self._on_flushed(end, timestamp)

    def fail(self, error: Exception) -> None:
        """Stop acknowledging puts, because the kernel may have dropped the pages of a failed sync."""
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
        """Stop the thread after its present flush."""
        self._thread.close()
