"""Background work beside puts and reads: queue flushes, checkpoints, prepared segments (store.md §11.4, §11.5)."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from tianzhou.clock import Clock
from tianzhou.store.dispatch.catchup import IndexCatchUp
from tianzhou.store.dispatch.dispatch import Dispatcher
from tianzhou.store.entries.entry_index import EntryIndex
from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.store.files.retired import RetiredSegment
from tianzhou.store.index.index import Index
from tianzhou.store.index.indexfile import IndexFile
from tianzhou.store.log.append_rate import AppendRate
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.flush import PAGE, Ranges, not_asked, sync_queues
from tianzhou.store.log.recovery import OpeningReport
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.queues import QueueTable
from tianzhou.store.settings import SHORTEST_INTERVAL_MS, StoreSettings
from tianzhou.store.startup.proved_note import NoteWriter, StoreNote, write_note
from tianzhou.supervision import Supervisor
from tianzhou.watermark import Watermark

logger = logging.getLogger(__name__)


class Upkeep:
    """Periodic work of a store, on its own threads so that it never delays a synchronous flush.

    Args:
        log: the commit log.
        dispatcher: has the list of queues with unflushed units.
        queues: all queues.
        index: the index, if any.
        checkpoint: updated after thorough flushes.
        settings: intervals.
        clock: for the intervals.
        flushed: follows the synced end of the log.
        supervisor: records failures.

    Attributes:
        units: units of entries, in a DLedger log; a note needs their sync, too.
        failed: whether some queue could not be synced.
        catch_up: indexes records that the index lacked at the start; None when it lacked none.
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
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor("store", clock)
        self._log = log
        self._dispatcher = dispatcher
        self._index = index
        self._checkpoint = checkpoint
        self._settings = settings
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "tianzhou-upkeep")
        self._ahead_thread = ThreadPoolExecutor(1, "tianzhou-ahead")
        self._index_thread = ThreadPoolExecutor(1, "tianzhou-index")
        self._notes = NoteWriter(settings.root, log, dispatcher, queues, index, flushed)
        self._pressure = asyncio.Event()
        self._preparing_since = 0.0
        self._pace = AppendRate(clock.monotonic(), log.end)
        self.units: EntryIndex | None = None
        self.failed = False
        self.catch_up: IndexCatchUp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._behind = asyncio.Event()  # set when the index must catch up
        if index is not None:
            index.on_damage = self._remake_index

    def opened(self, report: OpeningReport, note: StoreNote | None) -> None:
        """Start the catch-up of the index after a start; the dispatcher must have its position.

        Args:
            report: results of the opening.
            note: the valid note, if any.

        Raises:
            OSError: the disk refused.
        """
        if self._index is None or report.indexed >= self._dispatcher.position:
            return
        self._begin_catch_up(self._index, report.indexed)
        # Entries of newer records must never count as proof that those of older ones exist, even when RocketMQ adds
        # them.
        write_note(self._settings.root, self._notes.about_index(note))

    def serving(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that the store serves on an event loop from now on, so that long work must not run at once."""
        self._loop = loop
        if self.catch_up is not None:
            self.catch_up.begun = True

    def _begin_catch_up(self, index: Index, position: int) -> None:
        self.catch_up = catch_up = IndexCatchUp(
            self._log, self._dispatcher, index, self._settings, position, self._notes.index_complete
        )
        # Queries complete the index themselves only while no other client is served.
        catch_up.begun = self._loop is not None
        self._notes.indexed = lambda: catch_up.position
        self._behind.set()

    def _remake_index(self, file: IndexFile) -> None:
        """Index the records of a damaged file and of all newer ones again, while the store serves."""
        index = self._index
        assert index is not None
        retired = index.drop_from(file)
        logger.error(
            "%s: index file %s is damaged, it does not say what was written; it and the %d newer ones are rebuilt "
            "from the log behind serving",
            self._settings.root,
            file.path,
            len(retired) - 1,
        )
        # The checkpoint vouches for index files, which rebuilt ones do not deserve yet.
        self._checkpoint.index_msg_timestamp = min(self._checkpoint.index_msg_timestamp, index.end_timestamp)
        position = max(index.end_offset, self._log.min_offset, 0)
        if self.catch_up is not None and not self.catch_up.done:
            self.catch_up.go_back(position)
        else:
            self._begin_catch_up(index, position)
        # Until the next note, a start finds the offset for indexing by the missing names.
        if self._loop is None:
            _remove(retired)
        else:
            self._loop.run_in_executor(self._index_thread, _remove, retired)

    async def run_ahead(self) -> None:
        """Prepare pages and segments before a busy log needs them, until cancelled (store.md §11.4)."""
        log = self._log
        log.on_pressure = self._pressure.set
        log.stalled = self._stalled_ms
        self._pace = AppendRate(self._clock.monotonic(), log.end)
        try:
            while True:
                await self._pressure.wait()
                self._pressure.clear()
                try:
                    await self._prepare()
                except OSError as error:
                    # A put detects the error itself, and reports it to its producer.
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
                    log.prepared(made, 0, 0)
                else:
                    # A synchronous flush, or a slow producer, would also wait for bursts of read-ahead. For a busy log
                    # they are cheaper.
                    alone = self._settings.sync_flush or self._pace.calm(self._preparing_since, log.end)
                    await loop.run_in_executor(self._ahead_thread, segment.reserve_range, start, end, alone)
                    log.prepared(segment, start, end)
            finally:
                self._preparing_since = 0.0

    async def run(self) -> None:
        """Flush queues and checkpoint until cancelled."""
        settings = self._settings
        thorough_at = self._clock.monotonic() + settings.flush_consume_queue_thorough_interval / 1000
        while True:
            await asyncio.sleep(max(settings.flush_interval_consume_queue, SHORTEST_INTERVAL_MS) / 1000)
            thorough = self._clock.monotonic() >= thorough_at
            if thorough:
                thorough_at = self._clock.monotonic() + settings.flush_consume_queue_thorough_interval / 1000
            with self._supervisor.trial("flushing the queues"):
                await self._flush_queues(thorough=thorough)

    async def run_index(self) -> None:
        """Run each catch-up of the index, until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                if self.catch_up is not None and not self.catch_up.done:
                    await self.catch_up.run(self._index_thread)
                self._behind.clear()
                await self._behind.wait()
        finally:
            self._loop = None

    async def _flush_queues(self, *, thorough: bool) -> None:
        loop = asyncio.get_running_loop()
        thorough = thorough or self._notes.due
        pages = 0 if thorough else self._settings.flush_consume_queue_least_pages
        timestamp = self._dispatcher.logics_timestamp
        note = self._notes.take() if thorough and not self._notes.waiting else None
        queues, marks, ranges = self._collect(pages)
        if note is not None and self.units is not None:
            ranges += self.units.unsynced()
        try:
            await loop.run_in_executor(self._thread, sync_queues, ranges)
        except BaseException as error:
            self._take_back(queues)
            self._judge(error)
            raise
        for queue, mark in zip(queues, marks, strict=True):
            queue.flushed = max(queue.flushed, mark)
        full = self._index.take_full() if self._index is not None else []
        while full:
            try:
                await loop.run_in_executor(self._thread, full[0].sync)
            except BaseException as error:
                assert self._index is not None
                self._index.give_back(full)
                self._judge(error)
                raise
            if not self.failed:
                self._checkpoint.index_msg_timestamp = full[0].end_timestamp
            del full[0]
        if thorough and not self.failed:
            self._checkpoint.logics_msg_timestamp = max(self._checkpoint.logics_msg_timestamp, timestamp)
        fields = self._checkpoint.encode()
        await loop.run_in_executor(self._thread, self._checkpoint.write, fields)
        if note is not None and not self.failed:
            self._notes.queues_synced(note)
        proved = self._notes.proved()
        if proved is not None:
            await loop.run_in_executor(self._thread, write_note, self._settings.root, proved)

    def _take_back(self, queues: list[ConsumeQueue]) -> None:
        """Mark queues as dirty again after a failed sync."""
        waiting = {id(queue) for queue in self._dispatcher.dirty}
        for queue in queues:
            queue.dirty = True
            if id(queue) not in waiting:
                self._dispatcher.dirty.append(queue)

    def _judge(self, error: BaseException) -> None:
        if isinstance(error, Exception) and not not_asked(error):
            # The kernel may have dropped the pages. The log has all records, so the next start must read it again.
            self.failed = True

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
        """Sync queues, index, checkpoint and the note, on this thread.

        Raises:
            OSError: the disk refused.
        """
        if self.catch_up is not None and not self.catch_up.begun:
            self.catch_up.finish()
        note = self._notes.take()
        queues, marks, ranges = self._collect(0)
        if self.units is not None:
            ranges += self.units.unsynced()
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
        """End the threads."""
        self._thread.shutdown()
        self._ahead_thread.shutdown()
        self._index_thread.shutdown()


def _remove(retired: list[RetiredSegment]) -> None:
    for file in retired:
        try:
            file.unlink()
        except OSError as error:
            logger.error("%s cannot be deleted: %s; delete it before the next start", file.path, error)
        file.release()
