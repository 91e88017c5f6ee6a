"""The message store: its parts, its life cycle, and the deletion of expired data (store.md §10, §12)."""

from __future__ import annotations

import asyncio
import errno
import logging
import mmap
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import DiskFull, StoreError, StoreUnreadable
from tianzhou.file_modes import MODES, parse_mode
from tianzhou.metrics.families import Histogram
from tianzhou.shortages import advice, words
from tianzhou.store.appender import Appender
from tianzhou.store.coldreads import HOT_BYTES, ColdReads
from tianzhou.store.dispatch.dispatch import Dispatcher
from tianzhou.store.durability import Durability
from tianzhou.store.entries.change_entries import ChangeEntries
from tianzhou.store.entries.entry_log import EntryLog
from tianzhou.store.entries.framed_log import FramedLog
from tianzhou.store.failures import StoreFailures
from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.store.files.folder import StoreFolder
from tianzhou.store.files.maps import QueueMaps
from tianzhou.store.flags import RunningFlags
from tianzhou.store.index.index import Index
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.flush import LogFlusher, log_ranges, sync_ranges
from tianzhou.store.log.log_copy import LogCopy
from tianzhou.store.log.recovery import OpeningReport
from tianzhou.store.lookups import LookUps
from tianzhou.store.queues.open_queues import OpenQueues
from tianzhou.store.queues.queues import QueueMaker, each_queue
from tianzhou.store.queues.read_limits import ReadLimits
from tianzhou.store.queues.strays import StrayUnits
from tianzhou.store.reader import Reader
from tianzhou.store.settings import StoreSettings, parse_delay_levels
from tianzhou.store.startup.marked_cut import Mark, forbid_cut, read_mark, remove_mark, write_mark
from tianzhou.store.startup.opening import StoreOpener
from tianzhou.store.upkeep.cleaner import Cleaner
from tianzhou.store.upkeep.damage import LogDamage
from tianzhou.store.upkeep.doubted import check_everything
from tianzhou.store.upkeep.upkeep import Upkeep
from tianzhou.supervision import Supervisor
from tianzhou.troubles import Troubles
from tianzhou.watermark import Watermark

logger = logging.getLogger(__name__)

_AHEAD = 4 << 20
"""Bytes of the log to fetch ahead for a reader that reads it from end to end."""


class MessageStore:
    """A store folder, opened by one process and used from one event loop.

    It connects the parts that append, read and look up records, and owns their life cycle. Their methods are attributes
    of the store itself, which saves one call per message:

    - of `Appender`: `append`, `execute`, `settle`, `secure`;
    - of `Reader`: `read`;
    - of `OpenQueues`: `min_offset`, `max_offset`, `arrived`, `queue_unit`, `topics`, and `queues` of a topic;
    - of `ColdReads`: `find` and `take`, which run the look-ups of `lookups`.

    Args:
        settings: sizes, folders, limits.
        clock: source of time.
        store_host: the broker's address, 4 or 16 bytes, stored in every record.
        store_port: the broker's port.
        most_maps: maximum number of files that the system lets this process map; None to query it, 0 for no limit.
        troubles: receives the failures of the store's tasks.

    Attributes:
        flushed: commit-log offset up to which the log is on the disk.
        durability: the condition of an acknowledgement.
        copy: at a slave, writes the log received from a master.
        entries: the entry log of a DLedger group's member; None in a plain store.
        changes: entries with table changes, of a DLedger group's member; None in a plain store.
        lookups: finds single messages.
        report: results of the opening.
        flags: reasons to refuse puts.
        failures: handles writes that the disk refuses.
        supervisor: owns the tasks of the store, and notes their failures.
        damage: notes broken records, and asks other nodes for them.
        unclean: why the last close left data off the disk, as text; empty when all data is on it.
        queue_kinds: topics with queues of type BatchCQ; opening adds those in the folder.
    """

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock | None = None,
        *,
        store_host: bytes = b"\x7f\x00\x00\x01",
        store_port: int = 10911,
        most_maps: int | None = None,
        troubles: Troubles | None = None,
    ) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.supervisor = Supervisor("store", self.clock, troubles)
        self.report = OpeningReport()
        self.flags = RunningFlags("the store is not open")
        self._opened, self.unclean = False, ""
        self._folder = StoreFolder(settings.root)
        self._checkpoint = Checkpoint(settings.root / "checkpoint")
        kind = FramedLog if settings.enable_d_leger_commit_log else CommitLog
        self._log = log = kind(settings, store_host, store_port)
        maps = QueueMaps(most_maps)
        self.queue_kinds = QueueMaker(settings, log, maps)
        self._queues = queues = OpenQueues(self.queue_kinds)
        self._index = index = Index(settings) if settings.message_index_enable else None
        self.failures = failures = StoreFailures(settings, self.flags, self.supervisor, maps)
        self._dispatcher = Dispatcher(index, failures.dispatch_failed, failures.dispatch_recovered)
        self._flusher = LogFlusher(log, settings, self.clock, self._log_flushed, failures.flush_failed, self.supervisor)
        self._flusher.watch(self._folder.is_there)
        self.flushed: Watermark = self._flusher.flushed
        self.durability = durability = Durability(settings, self.flushed)
        self.copy = LogCopy(settings, log, queues, self._dispatcher, self._flusher)
        self.entries: EntryLog | None = None
        self.changes: ChangeEntries | None = None
        if isinstance(log, FramedLog):
            self.entries = EntryLog(
                settings, log, queues, index, self._dispatcher, self.copy, self._flusher, durability, self.flags,
                self.supervisor,
            )  # fmt: skip
            self.changes = ChangeEntries(
                settings, log, self.entries, queues, self._dispatcher, self._flusher, self.copy
            )
            self.copy.on_change = self.changes.note
        self._upkeep = Upkeep(
            log,
            self._dispatcher,
            queues.table,
            index,
            self._checkpoint,
            settings,
            self.clock,
            self.flushed,
            self.supervisor,
        )
        self._upkeep.units = log.units if isinstance(log, FramedLog) else None
        self._cleaner = Cleaner(
            settings, self.clock, log, queues.table, index, self._needed_from, failures.space_changed
        )
        self._limits = ReadLimits(settings)
        self._cold = cold = ColdReads(log, queues.find)
        delays = parse_delay_levels(settings.message_delay_level)
        self.damage = damage = LogDamage(log, settings.root, cold.aside)
        self._strays = strays = StrayUnits(log, cold, delays, queues.find, self._dispatcher.units_changed, damage.add)
        damage.on_put_right = strays.put_back
        if self.entries is not None:
            self.entries.broken = damage.add
        self.lookups = LookUps(log, queues, index)
        self.take, self.find = cold.take, cold.follow
        reader = Reader(log, queues, self._limits, cold, strays, damage)
        self.read = reader.read
        appender = Appender(
            settings,
            self.clock,
            log,
            queues,
            self._dispatcher,
            self._flusher,
            durability,
            self._cleaner,
            self.flags,
            failures,
        )
        self._appender = appender
        self.append, self.execute = appender.append, appender.execute
        self.settle, self.secure = appender.settle, appender.secure
        self.min_offset, self.max_offset, self.arrived = queues.min_offset, queues.max_offset, queues.arrived
        self.topics, self.queues, self.queue_unit = queues.topics, queues.numbers, queues.unit

    # life

    def open(self) -> OpeningReport:
        """Lock the folder, load it, and recover it.

        Raises:
            StoreLocked: another process has the folder.
            StoreUnreadable: it holds data that this version cannot use; nothing was changed because of it.
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
                self.settings, self._log, self._queues.table, self._index, self._checkpoint, self.queue_kinds
            )
            # An operator who makes a former master a slave wants it to have the new master's log.
            mark = read_mark(self.settings.root) if self.settings.broker_role == "SLAVE" else None
            if mark is not None and self.settings.cuts_nothing and not mark.allowed:
                mark = None  # the mark is older than the setting
            survived = folder.pages_survived
            if opener.entries is not None:
                opener.entries.power_failed = folder.power_failed and not folder.stopped_cleanly
            self.report = opener.open(clean=folder.stopped_cleanly, pages_survived=survived, mark=mark)
            self._queues.opened()
            if not self.report.clean:
                # Bytes in the page cache of a crashed process were read, but need not be on the disk yet.
                sync_ranges(log_ranges(self._log, self.report.read_from, self._log.end))
            folder.mark_running()
            remove_mark(self.settings.root)
            if mark is not None or self.settings.broker_role != "SLAVE":
                forbid_cut(self.settings.root)
            self._dispatcher.position = self._cold.opened_at = end = self._log.end
            if opener.entries is not None:
                self._dispatcher.position = opener.entries.committed_end
            self._log.checked.opened(end)
            self._upkeep.opened(self.report, opener.note)
        except BaseException as error:
            self._release()
            if isinstance(error, OSError):
                raise self._cannot_open(error) from error
            raise
        self.flushed.advance(end)
        self._dispatcher.limit = end if self.settings.sync_flush else None
        self._dispatcher.logics_timestamp = self._checkpoint.logics_msg_timestamp
        self._dispatcher.dirty = [queue for queue in each_queue(self._queues.table) if queue.dirty]
        self._flusher.last_timestamp = self._checkpoint.physic_msg_timestamp
        self._opened = True
        self.copy.opened(self._doubted_from(pages_survived=survived))
        if self.entries is not None and opener.entries is not None:
            self.entries.opened(opener.entries)
        elif self.settings.broker_role == "SLAVE":
            self.flags.closed("this broker is a slave (brokerRole=SLAVE): messages are sent to its master")
        else:
            self.flags.opened()
        return self.report

    def _doubted_from(self, *, pages_survived: bool) -> int | None:
        """Return the log offset from which the log may differ from its master's: by damage or a loss of power."""
        doubted = [start for start, _ in self._log.damaged]
        if not self.report.clean and not pages_survived:
            doubted.append(self.report.read_from)
        return min(doubted, default=None)

    def _cannot_open(self, error: OSError) -> StoreError:
        where = error.filename or self.settings.root
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return DiskFull(f"store {self.settings.root} cannot be opened: {where}: the disk is full; free space")
        return StoreUnreadable(
            f"store {self.settings.root} cannot be opened: {where}: {error.strerror}; {advice(error)}"
        )

    async def start(self) -> None:
        """Start flushing and dispatching on the running loop; open the store if needed."""
        if not self._opened:
            self.open()
        loop = asyncio.get_running_loop()
        self._dispatcher.start(loop)
        self._upkeep.serving(loop)
        for name, work in (
            ("commit log", self._flusher.run),
            ("queues", self._upkeep.run),
            ("index", self._upkeep.run_index),
            ("segments ahead", self._upkeep.run_ahead),
            ("cleaning", self._cleaner.run),
            ("damage", self.damage.run),
        ):
            self.supervisor.own(name, work)
        if self.entries is not None:
            self.supervisor.own("entries", self.entries.run)
        if self.settings.sync_flush:
            self._flusher.request()

    async def close(self) -> None:
        """Flush everything and leave the folder in the form of a clean stop (store.md §10.8)."""
        await self.supervisor.end()
        self.close_now()

    def close_now(self) -> None:
        """Close a store whose tasks were never started, as `close`."""
        if not self._opened:
            return
        self._opened = False
        is_slave = self.settings.broker_role == "SLAVE"
        writable = self.writable or is_slave or self.entries is not None
        if self.entries is not None:
            self.entries.follow()
            self.copy.dispatch(1e9)
        elif is_slave:
            self.copy.close()
        self.flags.closed("the store is closed")
        self._flusher.flush_now()
        if self.durability.hides_uncopied:
            self._dispatcher.limit = self.flushed.value  # no consumer reads any more
        self._dispatcher.stop()
        safe = not self._flusher.failed and self.flushed.value >= self._log.end
        clean = writable and not self._dispatcher.pending and safe and not self._upkeep.failed
        try:
            self._upkeep.flush_all(write_checkpoint=safe)
            if self.entries is not None:
                self.entries.write_checkpoint()
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
        self.damage.close()
        self._cold.close()
        for queue in each_queue(self._queues.table):
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

    def _log_flushed(self, end: int, timestamp: int) -> None:
        self._checkpoint.physic_msg_timestamp = max(self._checkpoint.physic_msg_timestamp, timestamp)
        if self.settings.sync_flush and self.entries is None:
            self._show(end)

    def _show(self, flushed: int) -> None:
        """Let consumers read the records that the disk, and with zero loss a slave, has."""
        dispatcher = self._dispatcher
        dispatcher.limit = max(dispatcher.limit or 0, self.durability.readable_end(flushed, self._log.end))
        dispatcher.kick()

    def copies_changed(self) -> None:
        """Update the durability: a slave copied more, came or left, or the settings require more or fewer slaves."""
        self.durability.recount(self._log.end)
        if self.durability.hides_uncopied and self._opened:  # slaves leave a little after the store
            self._show(self.flushed.value)

    # positions

    @property
    def end_offset(self) -> int:
        """The commit log's next offset."""
        return self._log.end

    @property
    def begin_offset(self) -> int:
        """Start of the oldest commit-log segment; -1 without one."""
        return self._log.min_offset

    @property
    def appended(self) -> Callable[[], None] | None:
        """Callback after each append; None costs nothing."""
        return self._appender.on_append

    @appended.setter
    def appended(self, called: Callable[[], None] | None) -> None:
        self._appender.on_append = called

    def log_bytes(self, offset: int, size: int) -> memoryview | Awaitable[None]:
        """Return bytes of the log, or an awaitable when the disk must fetch them first; then call again.

        Args:
            offset: log offset of the first byte.
            size: number of bytes, all in one segment.

        Raises:
            StoreError: the log does not have them, or no longer.
        """
        found, segment = self._log.read(offset, size), self._log.files.find(offset)
        if found is None or segment is None:
            raise StoreError(f"{self.settings.root}: the commit log has no {size} bytes at {offset}")
        start = offset - segment.start
        if offset + HOT_BYTES >= self._log.end or segment.resident(start, start + size):
            return found
        ahead = min(start + _AHEAD, segment.size)
        return self._cold.fetch([(segment, start, ahead)], ahead=True)

    def cut_at_next_start(self, at: int, why: str, kept: str = "", *, allowed: bool = False) -> None:
        """Cut the log when the store opens next as a slave's. Until then it serves the log as it is.

        Args:
            at: log offset after the last byte that stays.
            why: the reason, for the log line.
            kept: where copies of the cut records are, for the log line.
            allowed: whether an operator has allowed the cut; `durability=zero-loss` cuts nothing else.

        Raises:
            OSError: the disk refused.
        """
        write_mark(self.settings.root, Mark(at, self._log.end, why, kept, allowed))

    @property
    def flush_times(self) -> Histogram:
        """Histogram of the seconds that log flushes took."""
        return self._flusher.times

    @property
    def dispatching(self) -> bool:
        """Whether units are being written to queues, so that `after_dispatch` callbacks run in this turn."""
        return self._dispatcher.turning

    def after_dispatch(self, call: Callable[[], None]) -> None:
        """Register `call` to run whenever units were written to queues, in the same loop turn; it must not raise."""
        self._dispatcher.dispatched = call

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log without units in queues yet."""
        return self._log.end - self._dispatcher.pending[0][2] if self._dispatcher.pending else 0

    @property
    def writable(self) -> bool:
        """Whether the store accepts puts."""
        return self.flags.refusal is None

    def read_ahead(self, wanted: bool) -> None:
        """Advise the system whether the log's present segments are read in order or at random."""
        self.settings.data_read_ahead_enable = wanted
        for segment in self._log.files:
            segment.advise(mmap.MADV_NORMAL if wanted else mmap.MADV_RANDOM)

    # topics and retention

    def delete_topic(self, topic: str) -> None:
        """Delete a topic's queues. Its records stay in the log until they expire (store.md §5.10).

        For a topic without queues here the call does nothing, so it never deletes folders that the store does not own.
        """
        if topic not in self._queues.table:
            return
        dispatcher = self._dispatcher
        dispatcher.drain()
        retired = self._queues.retire(topic)
        dispatcher.pending = type(dispatcher.pending)(p for p in dispatcher.pending if p[0].topic != topic)
        dispatcher.dirty = [queue for queue in dispatcher.dirty if queue.topic != topic]
        self._cleaner.remove(self.queue_kinds.folders(topic), retired)

    def delete_topic_before(self, topic: str, end: int) -> bool:
        """Delete a topic's queues unless some messages may belong to a recreated topic. Return whether none are left.

        Args:
            topic: the topic, which the log's master deleted when its log ended at `end` or before.
            end: log offset; a record after it may belong to a topic recreated under the same name.
        """
        queues = self._queues.table.get(topic, {}).values()
        newest = max((queue.max_physical for queue in queues), default=-1)
        if newest > end or any(entry[0].topic == topic and entry[2] >= end for entry in self._dispatcher.pending):
            return False
        self.delete_topic(topic)
        return True

    def settings_changed(self) -> None:
        """Apply changed settings now rather than in a few seconds."""
        self._log.stall_limit_ms = self.settings.os_page_cache_busy_time_out_mills
        self._limits.settings_changed()
        self.durability.settings_changed()
        self.copies_changed()
        self._cleaner.wake()

    def delete_expired(self) -> None:
        """Delete expired log segments now, whatever the hour (store.md §12)."""
        self._cleaner.delete_expired()

    def clean_queues(self) -> None:
        """Delete queue and index files now whose records are all gone."""
        self._cleaner.clean_queues()

    def delete_other_topics(self, wanted: Callable[[str], bool]) -> list[str]:
        """Delete the queues of all topics that are not wanted. Return their names."""
        others = [topic for topic in self._queues.table if not wanted(topic)]
        for topic in others:
            self.delete_topic(topic)
        return others

    def _needed_from(self) -> int:
        pending = self._dispatcher.pending
        needed = min(self.flushed.value, pending[0][2] if pending else self._log.end)
        return needed if self.entries is None else min(needed, self.entries.needed_from)
