"""What happens beside puts and reads: queue flushes, checkpoints, segments made ahead (store.md §11.4, §11.5)."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from tianzhou.clock import Clock
from tianzhou.store.catchup import IndexCatchUp
from tianzhou.store.checkpoint import Checkpoint
from tianzhou.store.commitlog import CommitLog
from tianzhou.store.consumequeue import ConsumeQueue
from tianzhou.store.dispatch import Dispatcher
from tianzhou.store.flush import PAGE, Ranges, sync_queues
from tianzhou.store.index import Index
from tianzhou.store.notes import NoteKeeper, StoreNote, write_note
from tianzhou.store.pace import Pace
from tianzhou.store.queues import QueueTable
from tianzhou.store.recovery import OpeningReport
from tianzhou.store.settings import StoreSettings
from tianzhou.watermark import Watermark

logger = logging.getLogger(__name__)


class Upkeep:
    """Periodic work of a store, done on a thread of its own so that it never delays a synchronous flush.

    Args:
        log: the commit log.
        dispatcher: knows the queues with unflushed units.
        queues: all queues.
        index: the index, if any.
        checkpoint: brought up to date after thorough flushes.
        settings: intervals.
        clock: for the intervals.
        flushed: follows what the disk has of the log.

    Attributes:
        failed: some queue could not be brought to the disk.
        catch_up: gives the index what it lacked at the start; None when it lacked nothing.
    """

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        queues: QueueTable,
        index: Index | None,
        checkpoint: Checkpoint,
        settings: StoreSettings,
        clock: Clock,
        flushed: Watermark,
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._index = index
        self._checkpoint = checkpoint
        self._settings = settings
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "tianzhou-upkeep")
        self._ahead_thread = ThreadPoolExecutor(1, "tianzhou-ahead")
        self._index_thread = ThreadPoolExecutor(1, "tianzhou-index")
        self._notes = NoteKeeper(settings.root, log, dispatcher, queues, index, flushed)
        self._pressure = asyncio.Event()
        self._preparing_since = 0.0
        self._pace = Pace(clock.monotonic(), log.end)
        self.failed = False
        self.catch_up: IndexCatchUp | None = None

    def opened(self, report: OpeningReport, note: StoreNote | None) -> None:
        """Take note of how a start left queues and index; the dispatcher has to know its position.

        Args:
            report: what opening did.
            note: the one that was found and is still true, if any.

        Raises:
            OSError: the disk refused.
        """
        if self._index is None or report.indexed >= self._dispatcher.position:
            return
        self.catch_up = catch_up = IndexCatchUp(
            self._log, self._dispatcher, self._index, self._settings, report.indexed, self._notes.index_complete
        )
        self._notes.indexed = lambda: catch_up.position
        # Entries of newer records must never be taken for a sign that those of older ones are there, even when
        # RocketMQ is what adds them.
        write_note(self._settings.root, self._notes.about_index(note))

    async def run_ahead(self) -> None:
        """Prepare pages and segments before a busy log needs them, until cancelled (store.md §11.4)."""
        log = self._log
        log.on_pressure = self._pressure.set
        log.stalled = self._stalled_ms
        self._pace = Pace(self._clock.monotonic(), log.end)
        try:
            while True:
                await self._pressure.wait()
                self._pressure.clear()
                try:
                    await self._prepare()
                except OSError as error:
                    # Puts find out for themselves, and say so to those who can do something about it.
                    logger.warning("nothing can be prepared for the commit log: %s", error)
                    await asyncio.sleep(1)
        finally:
            log.on_pressure = log.stalled = None

    def _stalled_ms(self) -> float:
        return (self._clock.monotonic() - self._preparing_since) * 1000 if self._preparing_since else 0.0

    async def _prepare(self) -> None:
        loop = asyncio.get_running_loop()
        log = self._log
        while (job := log.next_reservation()) is not None:
            segment, start, end = job
            self._preparing_since = self._clock.monotonic()
            try:
                if segment is None:
                    made = await loop.run_in_executor(self._ahead_thread, log.files.make, start)
                    log.prepared(made, 0)
                else:
                    # Who waits for the disk, or sends but little, would wait for bursts of reading ahead, too; for a
                    # busy log they are cheaper.
                    alone = self._settings.sync_flush or self._pace.calm(self._preparing_since, log.end)
                    await loop.run_in_executor(self._ahead_thread, segment.reserve_range, start, end, alone)
                    log.prepared(segment, end)
            finally:
                self._preparing_since = 0.0

    async def run(self) -> None:
        """Flush queues and checkpoint until cancelled, and see to it that the index catches up."""
        catching_up = None
        if self.catch_up is not None:
            work = self.catch_up.run(self._index_thread)
            catching_up = asyncio.get_running_loop().create_task(work, name="store-index")
        try:
            await self._run()
        finally:
            if catching_up is not None:
                catching_up.cancel()
                await asyncio.wait([catching_up])

    async def _run(self) -> None:
        settings = self._settings
        interval = settings.flush_interval_consume_queue / 1000
        thorough_at = self._clock.monotonic() + settings.flush_consume_queue_thorough_interval / 1000
        while True:
            await asyncio.sleep(interval)
            thorough = self._clock.monotonic() >= thorough_at
            if thorough:
                thorough_at = self._clock.monotonic() + settings.flush_consume_queue_thorough_interval / 1000
            try:
                await self._flush_queues(thorough=thorough)
            except OSError as error:
                logger.error("queues in %s could not be flushed: %s", settings.root, error)

    async def _flush_queues(self, *, thorough: bool) -> None:
        loop = asyncio.get_running_loop()
        thorough = thorough or self._notes.due
        pages = 0 if thorough else self._settings.flush_consume_queue_least_pages
        timestamp = self._dispatcher.logics_timestamp
        note = self._notes.take() if thorough and not self._notes.waiting else None
        queues, marks, ranges = self._collect(pages)
        full = self._index.take_full() if self._index is not None else []
        try:
            await loop.run_in_executor(self._thread, sync_queues, ranges)
        except OSError:
            # The kernel may have dropped the pages. The log has it all, so the next start has to read it again.
            self.failed = True
            raise
        for queue, mark in zip(queues, marks, strict=True):
            queue.flushed = max(queue.flushed, mark)
        for file in full:
            try:
                await loop.run_in_executor(self._thread, file.sync)
            except OSError:
                self.failed = True
                raise
            if not self.failed:
                self._checkpoint.index_msg_timestamp = file.end_timestamp
        if thorough and not self.failed:
            self._checkpoint.logics_msg_timestamp = max(self._checkpoint.logics_msg_timestamp, timestamp)
        fields = self._checkpoint.encode()
        await loop.run_in_executor(self._thread, self._checkpoint.write, fields)
        if note is not None and not self.failed:
            self._notes.queues_synced(note)
        proved = self._notes.proved()
        if proved is not None:
            await loop.run_in_executor(self._thread, write_note, self._settings.root, proved)

    def _collect(self, least_pages: int) -> tuple[list[ConsumeQueue], list[int], Ranges]:
        queues, marks = [], []
        ranges: Ranges = []
        waiting: list[ConsumeQueue] = []
        for queue in self._dispatcher.dirty:
            end = queue.end
            if end // PAGE - queue.flushed // PAGE < least_pages:
                waiting.append(queue)
                continue
            queue.dirty = False
            queues.append(queue)
            marks.append(end)
            ranges += queue.unflushed()
        self._dispatcher.dirty = waiting
        return queues, marks, ranges

    def flush_all(self, *, write_checkpoint: bool) -> None:
        """Bring queues, index, checkpoint and a note of it all to the disk, on this thread.

        Raises:
            OSError: the disk refused.
        """
        if self.catch_up is not None and not self.catch_up.begun:
            self.catch_up.finish()
        note = self._notes.take()
        queues, marks, ranges = self._collect(0)
        sync_queues(ranges)
        for queue, mark in zip(queues, marks, strict=True):
            queue.flushed = mark
        if self._index is not None:
            for file in self._index.take_full():
                file.sync()
                if not self.failed:
                    self._checkpoint.index_msg_timestamp = file.end_timestamp
            self._index.sync()
        if write_checkpoint and not self.failed:
            self._checkpoint.logics_msg_timestamp = max(
                self._checkpoint.logics_msg_timestamp, self._dispatcher.logics_timestamp
            )
            self._checkpoint.write()
            self._notes.queues_synced(note)
            if (proved := self._notes.proved()) is not None:
                write_note(self._settings.root, proved)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
        self._ahead_thread.shutdown()
        self._index_thread.shutdown()
