"""What a message store is made of, and what all who work on it share: positions, flags, what its parts report."""

from __future__ import annotations

import errno
import logging

from tianzhou.clock import Clock, SystemClock
from tianzhou.shortages import words
from tianzhou.store.coldreads import ColdReads
from tianzhou.store.dispatch.dispatch import Dispatcher
from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.store.files.folder import StoreFolder
from tianzhou.store.files.maps import QueueMaps
from tianzhou.store.flags import RunningFlag, RunningFlags
from tianzhou.store.index.index import Index
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.flush import WORK, LogFlusher
from tianzhou.store.log.record_scan import store_time
from tianzhou.store.log.recovery import OpeningReport
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.multi_dispatch import is_light
from tianzhou.store.queues.queues import QueueMaker, QueueTable, queue_of
from tianzhou.store.queues.reading import ReadLimits
from tianzhou.store.queues.strays import StrayUnits
from tianzhou.store.results import PutStatus
from tianzhou.store.settings import StoreSettings, parse_delay_levels
from tianzhou.store.upkeep.cleaner import Cleaner
from tianzhou.store.upkeep.upkeep import Upkeep
from tianzhou.supervision import Supervisor
from tianzhou.troubles import Troubles
from tianzhou.watermark import Watermark

logger = logging.getLogger(__name__)


class StoreParts:
    """The parts of a store, tied together; `MessageStore` is what the rest of the world uses.

    Puts, reads and the store's life are classes of their own on top of this one, and not objects beside it: a message
    must not pay for a call more. Arguments and attributes are described there.
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
        self.flags = RunningFlags()
        self._now = self.clock.now_ms
        self._folder = StoreFolder(settings.root)
        self._log = CommitLog(settings, store_host, store_port)
        self._queues: QueueTable = {}
        self.queue_kinds = QueueMaker(settings, self._log, QueueMaps(most_maps))
        self._light: set[str] = set()
        self._index = Index(settings) if settings.message_index_enable else None
        self._checkpoint = Checkpoint(settings.root / "checkpoint")
        self._dispatcher = Dispatcher(self._index, self._dispatch_failed, self._dispatch_recovered)
        self._flusher = LogFlusher(
            self._log, settings, self.clock, self._log_flushed, self._flush_failed, self.supervisor
        )
        self._upkeep = Upkeep(
            self._log,
            self._dispatcher,
            self._queues,
            self._index,
            self._checkpoint,
            settings,
            self.clock,
            self._flusher.flushed,
            self.supervisor,
        )
        self._cleaner = Cleaner(
            settings, self.clock, self._log, self._queues, self._index, self._needed_from, self._space_changed
        )
        self._limits = ReadLimits(settings)
        self._cold = ColdReads(self._log)
        self._delays = parse_delay_levels(settings.message_delay_level)
        self._strays = StrayUnits(self._log, self._cold, self._delays, self._dispatcher.units_changed)
        self._appends_crc = settings.enabled_append_prop_crc
        # Whether what is stored may differ from what is put: a CRC, the offsets in further queues.
        self._amends = settings.enabled_append_prop_crc or settings.enable_multi_dispatch
        self._sync = settings.sync_flush
        self._refusal: tuple[PutStatus, str] | None = (
            PutStatus.SERVICE_NOT_AVAILABLE,
            "the store is not open",
        )
        self._opened = False
        self.unclean = ""
        self.flushed: Watermark = self._flusher.flushed

    def _known(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        of_topic = self._queues.get(topic)
        return None if of_topic is None else of_topic.get(queue_id)

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        known = topic in self._queues
        queue = queue_of(self._queues, self.queue_kinds, topic, queue_id)
        if not known and is_light(topic):
            self._light.add(topic)
        return queue

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
    def dispatched(self) -> int:
        """End of the last dispatched record in the commit log."""
        return self._dispatcher.position

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that queues do not show yet."""
        return self._log.end - self._dispatcher.pending[0][2] if self._dispatcher.pending else 0

    @property
    def writable(self) -> bool:
        """Whether puts are accepted."""
        return self._refusal is None

    def arrived(self, topic: str, queue_id: int) -> Watermark:
        """A watermark that follows the queue's next offset; the queue may have no message yet."""
        queue = self._queue(topic, queue_id)
        if queue.arrived is None:
            queue.arrived = Watermark(queue.max_offset)
        return queue.arrived

    def last_store_time(self) -> int:
        """Store time of the newest record, ms; 0 for an empty store."""
        return self._flusher.last_timestamp

    def store_time_at(self, physical_offset: int) -> int:
        """Store time of the record at a commit-log offset, ms; -1 without one."""
        record = self._log.record_at(physical_offset)
        return -1 if record is None else store_time(record)

    def put_up(self, flag: RunningFlag, text: str) -> bool:
        """Refuse puts from now on.

        Args:
            flag: why.
            text: the same in words, with the remedy; producers get it.

        Returns:
            Whether the flag was down before.
        """
        was_down = self.flags.put_up(flag, text)
        self._judge()
        return was_down

    def take_down(self, flag: RunningFlag) -> bool:
        """A reason to refuse puts has gone; whether it had been there."""
        was_up = self.flags.take_down(flag)
        self._judge()
        return was_up

    def _judge(self) -> None:
        # One value that puts look at, however many reasons there are.
        if self._opened:
            text = self.flags.refusal
            self._refusal = None if text is None else (PutStatus.SERVICE_NOT_AVAILABLE, text)

    # what the parts report

    def _log_flushed(self, end: int, timestamp: int) -> None:
        self._checkpoint.physic_msg_timestamp = max(self._checkpoint.physic_msg_timestamp, timestamp)
        if self._sync:
            self._dispatcher.limit = end
            self._dispatcher.kick()

    def _flush_failed(self, error: Exception) -> None:
        text = (
            f"the disk of {self.settings.root} refused the commit log ({error}); the store only reads: "
            "repair the disk, then restart the broker"
        )
        self.put_up(RunningFlag.NOT_WRITABLE, text)
        logger.critical("%s", text)
        self.supervisor.failed(WORK, error, "nothing more is stored until a restart")

    def _dispatch_failed(self, error: Exception, flag: RunningFlag) -> None:
        what = "the index" if flag is RunningFlag.INDEX_ERROR else "the queues"
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            self.queue_kinds.maps.shed()
        text = f"{what} in {self.settings.root} cannot be written ({words(error)}); it is tried again every second"
        if self.put_up(flag, text):
            logger.error("%s", text)
        self.supervisor.failed("filling the queues", error)

    def _dispatch_recovered(self) -> None:
        self.take_down(RunningFlag.QUEUE_ERROR)
        self.take_down(RunningFlag.INDEX_ERROR)
        self.supervisor.well("filling the queues")
        logger.warning("%s: queues and index can be written again", self.settings.root)

    def _needed_from(self) -> int:
        pending = self._dispatcher.pending
        return min(self.flushed.value, pending[0][2] if pending else self._log.end)

    def _space_changed(self, text: str | None) -> None:
        if text is None:
            self.take_down(RunningFlag.DISK_FULL)
            logger.warning("%s: the disk has space again, messages are accepted", self.settings.root)
        elif self.put_up(RunningFlag.DISK_FULL, text):
            logger.error("%s", text)
