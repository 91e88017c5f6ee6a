"""The deletion of expired files by the rules of `retention`, and the watch of disk space (store.md §12).

The event loop only removes files from the lists that readers use. A thread deletes them and queries the disks, because
the kernel needs a fifth of a second to free a gigabyte.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

from tianzhou.clock import Clock
from tianzhou.escaping import shown
from tianzhou.model.name_rules import folder_name_problem
from tianzhou.records.codec import store_time
from tianzhou.records.entry import HEADER_SIZE
from tianzhou.records.layout import UP_TO_STORE_TIME
from tianzhou.slices import each_in_turns
from tianzhou.store.files.lookup_steps import Range, follow
from tianzhou.store.files.pages import HeldMap
from tianzhou.store.files.retention import (
    MANUAL_RUNS,
    Deletion,
    DiskUse,
    Reason,
    SegmentFacts,
    SpaceVerdict,
    has_room,
    judge_space,
    plan_log,
    readable_size,
    rules_of,
)
from tianzhou.store.files.retired import RetiredSegment
from tianzhou.store.files.segments import Segment
from tianzhou.store.index.index import Index
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.queues import BATCH_QUEUES, EXTENSIONS, QUEUES, QueueTable
from tianzhou.store.settings import SHORTEST_INTERVAL_MS, StoreSettings

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 5.0
FIRST_RUN_SECONDS: Final = 60.0
_QUEUES_PER_TURN: Final = 64
_FOLDER: Final = "deleted"
_GONE: Final = -1
"""Modification time of a file that another process has deleted: it is older than all others."""
T = TypeVar("T")
A = TypeVarTuple("A")


class Cleaner:
    """Deletes old files, and reports when the disk becomes full and when it has space again.

    Args:
        settings: read again for every run, so that changes take effect at once.
        clock: for ages and intervals.
        log: the commit log.
        queues: all queues.
        index: the index, if any.
        needed_from: returns the first log offset that is still needed.
        on_space: called with why no message may be stored for lack of space; None when there is space again.
    """

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        needed_from: Callable[[], int],
        on_space: Callable[[str | None], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._log = log
        self._queues = queues
        self._index = index
        self._needed_from = needed_from
        self._on_space = on_space
        self._thread = ThreadPoolExecutor(1, "tianzhou-clean")
        self._woken = asyncio.Event()
        self._running = False
        self._space = SpaceVerdict()
        self._full = False
        self._refused = False
        self._manual = 0
        self._run_now = False
        self._cleaning = asyncio.Lock()
        self._cleaned_to = 0
        # Belongs to the thread; the loop reads copies.
        self._hung: list[RetiredSegment] = []
        self._hung_checked = 0.0
        self._removed = 0

    # requests of other parts

    def wake(self) -> None:
        """Check disks and settings now."""
        self._woken.set()

    def delete_expired(self) -> None:
        """Delete expired segments in the next runs, at any hour, and start now."""
        self._manual = MANUAL_RUNS
        self._run_now = True
        self._woken.set()

    def clean_queues(self) -> None:
        """Clean queues and index now, although the log has not become shorter."""
        self._cleaned_to = -1
        self._run_now = True
        self._woken.set()

    def refused(self) -> bool:
        """Note that a write failed for lack of space. Return False when no task will re-check the disk."""
        self._refused = self._running
        return self._running

    def remove(self, folders: list[Path], retired: list[RetiredSegment]) -> None:
        """Remove a topic's folders of queue files, which must be out of use.

        The names are free for a new topic on return.
        """
        removed = []
        for folder in folders:
            if not is_topic_folder(self._settings.root, folder):
                continue
            if folder.is_symlink():
                logger.warning("%s is a link; what it leads to is left alone", folder)
                folder.unlink()
                continue
            self._removed += 1
            aside = self._settings.root / _FOLDER / f"{os.getpid()}-{self._removed}"
            try:
                aside.parent.mkdir(exist_ok=True)
                folder.rename(aside)
                removed.append(aside)
            except OSError as error:
                logger.warning("%s is deleted where it is: %s", folder, error)
                shutil.rmtree(folder, ignore_errors=True)
        if self._running:
            self._thread.submit(self._remove_now, removed, retired)
        else:
            self._remove_now(removed, retired)

    def _remove_now(self, folders: list[Path], retired: list[RetiredSegment]) -> None:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        self._hung += [one for one in retired if not one.release()]
        with suppress(OSError):  # not empty yet
            self._settings.root.joinpath(_FOLDER).rmdir()

    # task

    async def run(self) -> None:
        """Watch and clean until cancelled."""
        self._running = True
        first_run = self._clock.monotonic() + FIRST_RUN_SECONDS
        next_run = first_run
        # Files that a dead process was about to delete.
        await self._in_thread(shutil.rmtree, self._settings.root / _FOLDER, True)
        while True:
            interval = max(self._settings.clean_resource_interval, SHORTEST_INTERVAL_MS) / 1000
            self._woken.clear()
            try:
                await self.check_space()
                now = self._clock.monotonic()
                if now >= next_run or self._run_now:
                    self._run_now = False
                    next_run = max(first_run, now + interval)
                    await self.clean()
            except OSError as error:
                logger.error("cleaning %s failed: %s; it is tried again", self._settings.root, error)
            except Exception:
                # An unexpected file must not stop cleaning for good, because the disk would fill up.
                logger.exception("cleaning %s failed; it is tried again", self._settings.root)
            try:
                async with asyncio.timeout(min(CHECK_SECONDS, interval)):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def check_space(self) -> None:
        """Check the use of the disks, and notify the store when the answer to puts changes.

        Raises:
            OSError: a disk's usage cannot be read.
        """
        settings = self._settings
        log_directories = settings.commit_log_directories
        refused, self._refused = self._refused, False
        *log, queues = await self._in_thread(_uses, [*log_directories, settings.root / "consumequeue"])
        files = self._log.files
        space = self._space = judge_space(log, queues, len(files) * files.size, rules_of(settings))
        files.avoided = frozenset(path for path in log_directories if str(path) in space.avoided)
        if space.full is not None:
            self._full = True
            self._on_space(space.full)
        elif self._full and space.keep_flag:
            pass
        elif refused and not self._full and not has_room([*log, queues]):
            self._refused = True
        elif self._full or refused:
            self._full = False
            self._on_space(None)

    async def clean(self) -> None:
        """Run once: delete segments of the log, then their units and index files.

        Raises:
            OSError: the age of files cannot be read.
        """
        async with self._cleaning:
            manual = self._manual > 0
            self._manual = max(self._manual - 1, 0)
            await self._release_hung()
            if not self._stuck:
                await self._clean_log(manual=manual)
            smallest = self._log.min_offset
            if smallest > self._cleaned_to:
                await self._clean_queues(smallest)
                await self._clean_index(smallest)
                self._cleaned_to = smallest

    async def _clean_log(self, *, manual: bool) -> None:
        files = self._log.files
        rules = rules_of(self._settings)
        oldest = files.segments[: rules.batch + 1]
        facts = await self._in_thread(_facts, oldest)
        now = self._clock.now_ms()
        hour = datetime.fromtimestamp(now / 1000).hour  # noqa: DTZ006 - deleteWhen is local time
        plan = plan_log(facts, files.size, self._needed_from(), now, hour, self._space, rules, manual=manual)
        for number, deletion in enumerate(plan):
            if number:
                await asyncio.sleep(max(self._settings.delete_commit_log_files_interval, 0) / 1000)
            await self._announce(files.segments[0], deletion)
            await self._in_thread(self._give_back, [files.drop_first().retire()])
            if self._stuck:
                return

    async def _announce(self, segment: Segment, deletion: Deletion) -> None:
        if deletion.modified_ms == _GONE:
            logger.warning("%s is gone: someone else has deleted it", segment.path)
            return
        at = HEADER_SIZE if segment.start >= self._log.framed_from else 0
        since = await self._in_thread(_first_store_time, segment.path, at)
        span = f"messages stored from {_moment(since)} to {_moment(deletion.modified_ms)}"
        where = f"{segment.path} ({readable_size(segment.size)}, {span})"
        if deletion.reason is Reason.EXPIRED:
            logger.info("deleting %s: %s=%d h is over", where, "fileReservedTime", self._settings.file_reserved_time)
        else:
            logger.error(
                "DELETING MESSAGES THAT ARE NOT EXPIRED: %s: %s, above diskSpaceCleanForciblyRatio; whoever has not "
                "consumed them loses them; free space, or set cleanFileForciblyEnable=false to keep them and refuse "
                "new messages when the disk is full",
                where,
                self._space.force,
            )

    async def _clean_queues(self, smallest: int) -> None:
        queues = list(self._all_queues())
        async for queue in each_in_turns(queues, _QUEUES_PER_TURN):
            await follow(queue.correct_steps(smallest), self._fetch)
        async for queue in each_in_turns(queues, _QUEUES_PER_TURN):
            retired = await follow(queue.expire_steps(smallest), self._fetch)
            if retired:
                logger.info("queue %s/%d: %d expired files deleted", queue.topic, queue.queue_id, len(retired))
                await self._in_thread(self._give_back, retired)
                await asyncio.sleep(max(self._settings.delete_consume_queue_files_interval, 0) / 1000)

    async def _clean_index(self, smallest: int) -> None:
        if self._index is not None:
            retired = self._index.expire(smallest)
            if retired:
                logger.info("%d expired index files deleted, the last is %s", len(retired), retired[-1].path)
                await self._in_thread(self._give_back, retired)

    async def _fetch(self, one: Range) -> None:
        segment, start, end = one
        await self._in_thread(_fetch_held, segment.hold(), start, end)

    def _all_queues(self) -> Iterator[ConsumeQueue]:
        for of_topic in list(self._queues.values()):
            yield from list(of_topic.values())

    # release

    @property
    def _stuck(self) -> bool:
        """Whether a file could not be removed. Later files must stay then, because a log must have no gaps."""
        return any(one.named for one in tuple(self._hung))

    def _give_back(self, retired: list[RetiredSegment]) -> None:
        for number, one in enumerate(retired):
            try:
                one.unlink()
            except OSError as error:
                logger.error("%s cannot be deleted (%s); it is tried again", one.path, error)
                self._hung += retired[number:]
                return
            if not one.release():
                logger.info("%s is deleted; a reader still has it, its space is free when that is done", one.path)
                self._hung.append(one)

    async def _release_hung(self) -> None:
        """Retry files that were still being read, or could not be removed."""
        now = self._clock.monotonic()
        patience = self._settings.redelete_hanged_file_interval / 1000
        if self._hung and now - self._hung_checked >= patience:
            self._hung_checked = now
            await self._in_thread(self._retry_hung)

    def _retry_hung(self) -> None:
        hung, self._hung = self._hung, []
        self._give_back(hung)

    async def _in_thread(self, work: Callable[[*A], T], *arguments: *A) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def close(self) -> None:
        """End the thread after its present work."""
        self._running = False
        self._thread.shutdown()


def is_topic_folder(root: Path, folder: Path) -> bool:
    """Whether a folder, or a link in its place, is one of the store's topic folders; log an error for any other folder.

    Args:
        root: the store.
        folder: `consumequeue/<topic>`, or the like, below the root.
    """
    if not folder.is_dir():
        return False
    family = folder.parent
    inside = family.name in {QUEUES, BATCH_QUEUES, EXTENSIONS} and family == root / family.name
    if inside and folder_name_problem(folder.name) is None:
        return True
    logger.error("%s is no folder of a topic in %s; it is left alone", shown(str(folder)), root)
    return False


def disk_use(path: Path) -> DiskUse:
    """Return the use of the file system of a path, which may not exist yet.

    Raises:
        OSError: the use cannot be read.
    """
    present = next(p for p in (path, *path.parents) if p.exists())
    usage = shutil.disk_usage(present)
    return DiskUse(str(path), usage.used, usage.free, usage.total)


def _uses(paths: list[Path]) -> list[DiskUse]:
    return [disk_use(path) for path in paths]


def _facts(segments: list[Segment]) -> list[SegmentFacts]:
    facts = []
    for segment in segments:
        try:
            modified = int(segment.path.stat().st_mtime * 1000)
        except FileNotFoundError:
            modified = _GONE
        facts.append(SegmentFacts(segment.start, modified))
    return facts


def _fetch_held(held: HeldMap, start: int, end: int) -> None:
    with held:
        held.fetch(start, end)


def _first_store_time(path: Path, at: int) -> int:
    try:
        with path.open("rb") as file:
            file.seek(at)
            return store_time(memoryview(file.read(UP_TO_STORE_TIME)))
    except (OSError, ValueError):
        return 0


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).isoformat(" ", "seconds")  # noqa: DTZ006 - for readers of the log
