"""The entries of a DLedger group's member for its Raft core, and the effect of role changes on its store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tianzhou.errors import StoreError
from tianzhou.file_modes import make_folders
from tianzhou.records.entry import END_SIZE, HEADER_SIZE, EntryHeader, decode_header
from tianzhou.records.layout import PREPARED, ROLLBACK
from tianzhou.records.opening import opening_record
from tianzhou.store.dispatch.dispatch import SLICE_RECORDS, SLICE_SECONDS, Dispatcher
from tianzhou.store.durability import Durability
from tianzhou.store.entries.entry_proof import Verdict, judge_entry
from tianzhou.store.entries.entry_recovery import EntryRecovery
from tianzhou.store.entries.framed_log import FramedLog
from tianzhou.store.entries.member_files import EntryCheckpoint, EntryMarks, GroupFile, ImpairedNote, Loss, TermFile
from tianzhou.store.flags import RunningFlags
from tianzhou.store.index.index import Index
from tianzhou.store.log.flush import LogFlusher
from tianzhou.store.log.log_copy import LogCopy
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.open_queues import OpenQueues
from tianzhou.store.queues.queues import each_queue
from tianzhou.store.settings import StoreSettings
from tianzhou.supervision import Supervisor
from tianzhou.watermark import Watermark

logger = logging.getLogger(__name__)

CHECKPOINT_S: Final = 3.0
"""Seconds between two writes of `checkpoint` (broker.md §19.5)."""
NOT_LEADING: Final = "this broker does not lead its DLedger group: messages are sent to the member that does"


class EntryLog:
    """The entries of a log: read by index, added by a leader or by its followers, cut, committed.

    Queues and index contain committed entries only. While this member follows, records are dispatched from the log.
    While it leads, its puts dispatch them, so that the log is not read again.

    Args:
        settings: settings of the store.
        log: the log.
        queues: all queues.
        index: the index of keys; None without one.
        dispatcher: adds committed records to queues and index.
        copy: reads entries of other members.
        flusher: syncs the log.
        durability: receives the committed position.
        flags: whether puts are accepted.
        supervisor: records refusals of the disk.

    Attributes:
        terms: the file of term and vote.
        identity: the file of the group's identity.
        loss: entries that this member has lost, or may have. Its vote counts for less until it has them again.
        broken: called with start and end of a damaged record, and its description.
        leading: whether this member leads, even when it does not accept puts yet.
    """

    def __init__(
        self,
        settings: StoreSettings,
        log: FramedLog,
        queues: OpenQueues,
        index: Index | None,
        dispatcher: Dispatcher,
        copy: LogCopy,
        flusher: LogFlusher,
        durability: Durability,
        flags: RunningFlags,
        supervisor: Supervisor,
    ) -> None:
        folder = settings.entry_folder
        self._settings = settings
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._copy = copy
        self._flusher = flusher
        self._durability = durability
        self._flags = flags
        self._supervisor = supervisor
        self._checkpoint, self._note = EntryCheckpoint(folder), ImpairedNote(folder)
        self._begin = (-1, -1)  # offset of the first segment with entries, index of the first entry
        self._committed_end = 0
        self._due = asyncio.Event()
        self.terms = TermFile(folder)
        self.identity = GroupFile(folder, settings.d_leger_group)
        self.loss = Loss()
        self.leading = False
        self.broken: Callable[[int, int, str], None] = lambda start, stop, why: None

    def opened(self, recovery: EntryRecovery) -> None:
        """Start as a follower without a leader, with the recovered state."""
        self._committed_end = recovery.committed_end
        self.loss = recovery.loss
        self.identity = recovery.identity
        self._due.set()
        self._copy.whole = self._copy.limit = self._dispatcher.limit = self._committed_end
        self._durability.replicated = Watermark(self._committed_end)
        self._flags.closed(NOT_LEADING)

    # reads

    @property
    def begin_index(self) -> int:
        """Index of the first entry; -1 without entries."""
        log = self._log
        if not log.next_index:
            return -1
        first = next((segment.start for segment in log.files.segments if segment.start >= log.framed_from), -1)
        if first < 0:
            return -1
        if self._begin[0] != first:
            segment = log.files.find(first)
            assert segment is not None
            self._begin = first, decode_header(segment.view).index
        return self._begin[1]

    @property
    def end_index(self) -> int:
        """Index of the last entry; -1 without entries."""
        return self._log.next_index - 1 if self._log.end_term >= 0 else -1

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 without entries."""
        return self._log.end_term

    @property
    def end_position(self) -> int:
        """Log offset after the last entry, before the mark that may end its segment."""
        return self._log.end

    @property
    def committed_index(self) -> int:
        """Index of the last entry known to be committed; -1 without one."""
        return self._log.committed_index

    @property
    def committed_position(self) -> int:
        """Log offset after the last committed entry."""
        return self._committed_end

    @property
    def needed_from(self) -> int:
        """Log offset from which queues, index or group still need entries."""
        copying = not self.leading or self._copy.limit is None
        return min(self._copy.whole, self._committed_end) if copying else self._committed_end

    def term_at(self, index: int) -> int:
        """Return the term of an entry.

        Raises:
            StoreError: the log does not have it, or not any more.
        """
        return self._unit(index).term

    def entry(self, index: int) -> bytes:
        """Return header and body of an entry.

        Raises:
            StoreError: the log does not have it, or not any more.
        """
        header = self._log.header_at(index)
        found = self._log.read(header.pos, header.size)
        assert found is not None
        return bytes(found)

    def stretch(self, index: int, most_bytes: int) -> tuple[bytes, int]:
        """Return consecutive entries, without the marks at the ends of segments.

        Args:
            index: index of the first one.
            most_bytes: maximum bytes of the entries; the first entry may be larger.

        Returns:
            The bytes and the number of the entries, up to the first broken one (`is_whole`).

        Raises:
            StoreError: the log does not have the first one, or not any more.
        """
        data, count = self._log.stretch(index, most_bytes)
        for one in range(index, index + count):
            if self._unit(one).pos >= self._log.checked.trusted_from:
                break
            if not self.is_whole(one):
                return data[: sum(self._unit(before).size for before in range(index, one))], one - index
        return data, count

    def is_whole(self, index: int) -> bool:
        """Whether an entry is undamaged. A broken one is requested from other members, and must not be copied.

        Raises:
            StoreError: the log does not have it, or not any more.
        """
        unit = self._unit(index)
        if unit.pos >= self._log.checked.trusted_from:
            return True
        before = self._unit(index - 1).term if index > self.begin_index else 0
        behind = self._unit(index + 1).term if index < self.end_index else unit.term
        verdict = judge_entry(self._log, unit, unit_fits=before <= unit.term <= behind)
        if verdict is Verdict.RECORD_BROKEN:
            self.broken(unit.pos + HEADER_SIZE, unit.end, f"entry {index} of {self._settings.d_leger_group}")
        return verdict is Verdict.WHOLE

    def position_of(self, index: int) -> int:
        """Return the log offset of the header of an entry.

        Raises:
            StoreError: the log does not have it, or not any more.
        """
        return self._unit(index).pos

    def end_of(self, index: int) -> int:
        """Return the log offset after an entry.

        Raises:
            StoreError: the log does not have it, or not any more.
        """
        return self._unit(index).end

    def index_before(self, position: int) -> int:
        """Return the index of the last entry that ends at or before a log offset; `begin_index - 1` without one."""
        low, high = self.begin_index, self.end_index
        if low < 0:
            return -1
        while low <= high:
            middle = (low + high) // 2
            if self.end_of(middle) <= position:
                low = middle + 1
            else:
                high = middle - 1
        return high

    def place(self, position: int, size: int) -> int:
        """Return the log offset of the next entry of a log that ends at an offset.

        Args:
            position: the offset.
            size: bytes of the entry.

        Returns:
            `position`, or the begin of the next segment when this one has too little room; -1 when no segment is large
            enough.
        """
        if size + END_SIZE > self._log.files.size:
            return -1
        used = position % self._log.files.size
        if used and used + size + END_SIZE > self._log.files.size:
            return position - used + self._log.files.size
        return position

    def may_begin(self, position: int, size: int) -> bool:
        """Whether a log without entries may begin with an entry of a size at an offset, the begin of a segment."""
        return position % self._log.files.size == 0 and size + END_SIZE <= self._log.files.size

    def _unit(self, index: int) -> EntryHeader:
        unit = self._log.units.find(index) if index <= self.end_index else None
        if unit is None:
            raise StoreError(
                f"entry {index} is not in the log, which has entries {self.begin_index} to {self.end_index}"
            )
        return unit

    # appends and cuts

    def append_raw(self, data: bytes | memoryview) -> int:
        """Append consecutive entries of the leader, headers and bodies; return the index of the last one.

        Raises:
            StoreError: an entry has a wrong place; the entries before it are in the log.
            OSError: no segment can be created, or the disk is full; the entries before are in the log.
        """
        was_empty = self.end_index < 0
        try:
            self._log.copy_entries(memoryview(data))
        finally:
            if was_empty and self.end_index >= 0:
                self._copy.whole = self._copy.limit = self._dispatcher.limit = self.position_of(self.begin_index)
        self._grown()
        return self.end_index

    def append_opening(self, term: int, now_ms: int, group_id: str = "", term_id: str = "") -> int:
        """Append the record that opens a term, which is in no queue; return its index.

        Args:
            term: term in which this member is the leader.
            now_ms: wall-clock time.
            group_id: identity of the group; empty for none.
            term_id: identity of the term; empty for none.

        Raises:
            StoreError: it does not fit a segment.
            OSError: no segment can be created, or the disk is full.
        """
        log = self._log
        host, port = log.store_host_field[:-4], int.from_bytes(log.store_host_field[-4:])
        place = log.place_of(len(opening_record(term, 0, now_ms, host, port, group_id, term_id)))
        record = opening_record(term, place + HEADER_SIZE, now_ms, host, port, group_id, term_id)
        log.append_bodies([record], term)
        self._flusher.last_timestamp = now_ms
        self._grown()
        return self.end_index

    def _grown(self) -> None:
        if self._settings.sync_flush:
            self._flusher.request()
        if self.leading:
            self._copy.kick()

    def cut_from(self, index: int) -> None:
        """Cut the log before an entry, with all later ones. Queues and index never had them.

        Args:
            index: index of the first entry to remove.

        Raises:
            StoreError: it is committed.
            OSError: the disk refused.
        """
        if index <= self.committed_index:
            raise StoreError(f"entry {index} cannot be cut off: entries up to {self.committed_index} are committed")
        if index > self.end_index:
            return
        if index <= self.begin_index:
            end, term = self.position_of(index), -1
        else:
            before = self._unit(index - 1)
            end, term = before.end, before.term
        logger.warning(
            "%s: entries %d to %d, which the group has not, are cut off its log at %d",
            self._settings.entry_folder, index, self.end_index, end,
        )  # fmt: skip
        self._checkpoint.forget_synced(index)
        self._log.cut_behind(index - 1, end, term)
        self._flusher.cut(end)
        self._copy.whole = min(self._copy.whole, end)
        self._due.set()

    def clear(self) -> None:
        """Clear the whole log with its queues and keys: the next entry may have any index and place.

        Raises:
            OSError: the disk refused.
        """
        log = self._log
        logger.warning(
            "%s: the leader's log begins behind this one's end %d; this member starts over",
            self._settings.entry_folder, self.end_index,
        )  # fmt: skip
        self._dispatcher.pending.clear()
        for queue in each_queue(self._queues.table):
            queue.reset()
        if self._index is not None:
            self._index.drop_behind(0)
        self._checkpoint.forget_synced(0)
        log.cut_behind(-1, 0, -1)
        log.committed_index = -1
        self._flusher.cut(0)
        self._committed_end = self._dispatcher.position = 0
        self._copy.whole = self._copy.limit = self._dispatcher.limit = 0
        self._begin = (-1, -1)
        self._due.set()

    def committed(self, index: int) -> None:
        """Commit this log's entries up to one; consumers may see them from now on.

        Args:
            index: index of the entry; a smaller one than before has no effect.
        """
        index = min(index, self.end_index)
        if index <= self.committed_index:
            return
        self._log.committed_index = index
        self._committed_end = end = self.end_of(index)
        self._dispatcher.limit = end
        if not self.leading:
            self._copy.limit = end
        self._copy.kick()
        self._dispatcher.kick()
        self._durability.replicated.advance(end)

    def mended(self) -> None:
        """Note that this member has its lost entries again.

        Raises:
            OSError: the disk refused.
        """
        self.loss = Loss()
        self._note.write(self.loss)

    # roles

    def lead(self, term: int) -> None:
        """Use a term for puts. They are accepted once `serve` returns True; until then the log is dispatched to queues.

        Args:
            term: term in which this member is the leader.
        """
        self._log.term = term
        self.leading = True
        self._durability.replicated = Watermark(self._committed_end)
        self._copy.limit = None
        self._copy.kick()

    def serve(self) -> bool:
        """Whether puts can be accepted: this member leads, and the whole log is dispatched to queues."""
        if not self.leading:
            return False
        if self._copy.limit is None:
            if self._copy.whole < self._log.end or self._committed_end < self._log.end or self._dispatcher.pending:
                return False
            # From here on puts dispatch their own records, and the log is not read again.
            self._copy.limit = self._copy.whole
        return True

    async def served(self) -> None:
        """Wait until puts can be accepted; the caller opens the store for them.

        Raises:
            StoreError: this member does not lead, or not any more.
        """
        while not self.serve():
            replicated = self._durability.replicated
            if not self.leading:
                raise StoreError(NOT_LEADING)
            await replicated.reach(self._log.end)
            self._copy.dispatch(SLICE_SECONDS)
            self._dispatcher.run(SLICE_RECORDS, SLICE_SECONDS)
            await asyncio.sleep(0)

    def follow(self, why: str = NOT_LEADING) -> None:
        """Refuse puts, and drop the dispatch of uncommitted ones, which are not acknowledged.

        Args:
            why: reason, for producers.
        """
        self._flags.closed(why)
        if not self.leading:
            return
        self.leading = False
        copying = self._copy.limit is None
        self._dispatcher.drain()
        self._forget_uncommitted()
        self._copy.whole = min(self._copy.whole, self._committed_end) if copying else self._committed_end
        self._copy.limit = self._committed_end
        self._copy.kick()
        self._durability.replicated.fail(StoreError(f"{why}; whether this message will be stored is not known"))

    def _forget_uncommitted(self) -> None:
        """Reset the next offsets of queues with uncommitted puts."""
        dispatcher, end = self._dispatcher, self._committed_end
        dispatcher.take_apart()
        changed: dict[int, ConsumeQueue] = {id(one[0]): one[0] for one in dispatcher.pending}  # type: ignore[misc]
        dispatcher.pending = type(dispatcher.pending)(one for one in dispatcher.pending if one[2] + one[3] <= end)
        for queue in changed.values():
            queue.next_offset = queue.max_offset
        for queue_, offset, _, _, _, _, kind, _, _ in dispatcher.pending:
            # A committed record is left here only when queues cannot be written.
            if kind not in {PREPARED, ROLLBACK}:
                queue_.next_offset = offset + 1

    # disk

    @property
    def marks(self) -> EntryMarks:
        """The present progress of the log."""
        return EntryMarks(self.end_index, self.committed_index, self.index_before(self._durability.flushed.value))

    async def run(self) -> None:
        """Write the log's progress every three seconds, and soon after a cut, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECKPOINT_S):
                    await self._due.wait()
            self._due.clear()
            with self._supervisor.trial("writing how far the entries are"):
                await asyncio.to_thread(self._checkpoint.write, self.marks, self._checkpoint.cuts)
                for file in self._log.units.expired(self.begin_index):
                    await asyncio.to_thread(file.delete)

    def write_checkpoint(self) -> None:
        """Write and sync the log's progress; for a stop.

        Raises:
            OSError: the disk refused.
        """
        make_folders(self._settings.entry_folder)
        self._checkpoint.write(self.marks)
