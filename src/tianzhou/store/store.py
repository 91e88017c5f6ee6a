"""The message store: its life, and what goes from it in time (store.md §10, §12)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tianzhou.errors import DiskFull, StoreError, StoreUnreadable
from tianzhou.file_modes import MODES, parse_mode
from tianzhou.shortages import advice, words
from tianzhou.store.appender import StorePuts
from tianzhou.store.log.flush import log_ranges, sync_ranges
from tianzhou.store.log.recovery import OpeningReport
from tianzhou.store.lookups import StoreLookups
from tianzhou.store.queues.multi_dispatch import is_light
from tianzhou.store.reads import StoreReads
from tianzhou.store.results import PutStatus
from tianzhou.store.startup.opening import StoreOpener
from tianzhou.store.upkeep.doubted import check_everything

logger = logging.getLogger(__name__)


class MessageStore(StorePuts, StoreReads, StoreLookups):
    """A store folder, opened by one process and used from one event loop.

    Args:
        settings: sizes, folders, limits.
        clock: where time comes from.
        store_host: the broker's address, 4 or 16 bytes, stored in every record.
        store_port: its port.
        most_maps: how many files the system lets this process map; None to ask it, 0 for no limit.
        troubles: where it is noted what goes wrong with its tasks.

    Attributes:
        flushed: commit-log offset up to which the disk has everything.
        report: what opening found and did.
        flags: what puts are refused for, besides that the store is not open; see `put_up` and `take_down`.
        supervisor: owns the tasks of the store, and knows what is wrong with them.
        unclean: what the disk lacks since it was closed, in words; empty when it has everything.
        queue_kinds: which topics have queues of type BatchCQ; opening adds those the folder knows of.
    """

    # life

    def open(self) -> OpeningReport:
        """Take the folder, load it, recover it.

        Raises:
            StoreLocked: someone else has the folder.
            StoreUnreadable: it holds something this version cannot use; nothing was changed for that reason.
            DiskFull: there is no space to open it.
        """
        folder = self._folder
        MODES.files = parse_mode(self.settings.store_file_mode)
        folder.lock()
        try:
            folder.lock_directories(
                [self.settings.root, *self.settings.commit_log_directories], self.settings.read_only_directories
            )
            if self.settings.check_store_on_start:
                check_everything(self.settings)
            opener = StoreOpener(
                self.settings, self._log, self._queues, self._index, self._checkpoint, self.queue_kinds
            )
            self.report = opener.open(clean=folder.stopped_cleanly, pages_survived=folder.pages_survived)
            self._light = {topic for topic in self._queues if is_light(topic)}
            if not self.report.clean:
                # What a crashed process left in the page cache has been read, but need not be on the disk yet.
                sync_ranges(log_ranges(self._log, self.report.read_from, self._log.end))
            folder.mark_running()
            self._dispatcher.position = self._cold.opened_at = end = self._log.end
            self._upkeep.opened(self.report, opener.note)
        except BaseException as error:
            self._release()
            if isinstance(error, OSError):
                raise self._cannot_open(error) from error
            raise
        self.flushed.advance(end)
        self._dispatcher.limit = end if self._sync else None
        self._dispatcher.logics_timestamp = self._checkpoint.logics_msg_timestamp
        self._dispatcher.dirty = [q for of_topic in self._queues.values() for q in of_topic.values() if q.dirty]
        self._flusher.last_timestamp = self._checkpoint.physic_msg_timestamp
        self._opened = True
        self._judge()
        return self.report

    def _cannot_open(self, error: OSError) -> StoreError:
        where = error.filename or self.settings.root
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return DiskFull(f"store {self.settings.root} cannot be opened: {where}: the disk is full; free space")
        return StoreUnreadable(
            f"store {self.settings.root} cannot be opened: {where}: {error.strerror}; {advice(error)}"
        )

    async def start(self) -> None:
        """Begin to flush and dispatch on the running loop; opens the store when it is not open."""
        if not self._opened:
            self.open()
        loop = asyncio.get_running_loop()
        self._dispatcher.start(loop)
        for name, work in (
            ("commit log", self._flusher.run),
            ("queues", self._upkeep.run),
            ("index", self._upkeep.run_index),
            ("segments ahead", self._upkeep.run_ahead),
            ("cleaning", self._cleaner.run),
        ):
            self.supervisor.own(name, work)
        if self._sync:
            self._flusher.request()

    async def close(self) -> None:
        """Stop cleanly: everything to the disk, the folder in the form a next start expects (store.md §10.8)."""
        await self.supervisor.end()
        self.close_now()

    def close_now(self) -> None:
        """As `close`, for a store whose tasks were never started."""
        if not self._opened:
            return
        self._opened = False
        writable = self._refusal is None
        self._refusal = (PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        self._flusher.flush_now()
        self._dispatcher.stop()
        safe = not self._flusher.failed and self.flushed.value >= self._log.end
        clean = writable and not self._dispatcher.pending and safe and not self._upkeep.failed
        try:
            self._upkeep.flush_all(write_checkpoint=safe)
            if clean:
                self._folder.mark_stopped()
            else:
                if not safe or self._upkeep.failed or self._dispatcher.pending:
                    self.unclean = f"{self.settings.root}: not everything is on the disk"
                logger.error("%s: not stopped cleanly; the next start reads the log again", self.settings.root)
        except (OSError, MemoryError) as error:
            self.unclean = f"{self.settings.root}: the disk refused ({words(error)})"
            logger.error("%s, so it is not stopped cleanly; the next start reads the log again", self.unclean)
        finally:
            self._release()

    def _release(self) -> None:
        self._flusher.close()
        self._upkeep.close()
        self._cleaner.close()
        self._strays.close()
        self._cold.close()
        for of_topic in self._queues.values():
            for queue in of_topic.values():
                queue.close()
        if self._index is not None:
            self._index.close()
        self._log.close()
        self._folder.unlock()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # topics and retention

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's queues; its records stay in the log until they expire (store.md §5.10).

        Nothing happens for a topic that has none here: only what the store itself made or found is removed.
        """
        if topic not in self._queues:
            return
        dispatcher = self._dispatcher
        dispatcher.drain()
        retired = [file for queue in self._queues.pop(topic).values() for file in queue.retire()]
        dispatcher.pending = type(dispatcher.pending)(p for p in dispatcher.pending if p[0].topic != topic)
        dispatcher.dirty = [queue for queue in dispatcher.dirty if queue.topic != topic]
        self._light.discard(topic)
        self._cleaner.remove(self.queue_kinds.folders(topic), retired)

    def settings_changed(self) -> None:
        """Let changed settings count now rather than in a few seconds."""
        self._log.stall_limit_ms = self.settings.os_page_cache_busy_time_out_mills
        self._limits.settings_changed()
        self._cleaner.wake()

    def delete_expired(self) -> None:
        """Delete expired log segments now, whatever the hour (store.md §12)."""
        self._cleaner.delete_expired()

    def clean_queues(self) -> None:
        """Delete files of queues and index that know only records which are gone, now."""
        self._cleaner.clean_queues()

    def delete_other_topics(self, kept: Callable[[str], bool]) -> list[str]:
        """Delete the queues of all topics for which `kept` does not hold; returns their names."""
        doomed = [topic for topic in self._queues if not kept(topic)]
        for topic in doomed:
            self.delete_topic(topic)
        return doomed
