"""The read of the log at a start, which completes queues and index (store.md §10.3, §10.4)."""

from __future__ import annotations

from itertools import islice
from typing import Final

from tianzhou.model.name_rules import folder_name_problem
from tianzhou.records.framed import EntryTrail
from tianzhou.records.layout import INNER_BATCH, INNER_BATCH_BITS, OVERHEAD, PREPARED, ROLLBACK, TRANSACTION_BITS
from tianzhou.records.walk import Finding, LogEntry, LogItem, Run, single_items, walk
from tianzhou.store.entries.entry_recovery import EntryRecovery
from tianzhou.store.index.index import Index
from tianzhou.store.log.commitlog import FILLER_TOPIC, CommitLog
from tianzhou.store.log.recovery import OffsetVerdict, OpeningReport, judge_offset
from tianzhou.store.queues.admission import inner_count
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.multi_dispatch import stored_places
from tianzhou.store.queues.queues import QueueMaker, QueueTable, queue_of
from tianzhou.store.queues.tags_code import queue_tags_code
from tianzhou.store.settings import StoreSettings, parse_delay_levels

BATCH_ENTRY_BYTES: Final = 22
_LOOK_AHEAD: Final = 100_000
_NOT_PLAIN: Final = TRANSACTION_BITS | INNER_BATCH_BITS


class LogReplay:
    """Reads the log's records from an offset to the end.

    Args:
        settings: settings of the store.
        log: the commit log, its segments loaded.
        queues: all queues; missing queues of records are added.
        index: None without an index.
        kinds: creates queues.
        report: receives counts, damaged stretches and notes.
        entries: receives the entries read, and knows the committed ones; None in a plain store.

    Attributes:
        doubted_from: as in `survey`.
        newest: store time of the newest record before the start of the read, ms.
        index_until: records from this log offset on are not indexed.
        wrong: start and end of skipped records.
        torn: start, end and following store time of stretches that were not completely written.
        trail: trail of the entries read.
    """

    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        kinds: QueueMaker,
        report: OpeningReport,
        entries: EntryRecovery | None = None,
    ) -> None:
        self._settings = settings
        self._log = log
        self._queues = queues
        self._index = index
        self._kinds = kinds
        self._delays = parse_delay_levels(settings.message_delay_level)
        self._accepted_gaps: set[ConsumeQueue] = set()
        self._plain_queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._filled = 0
        self._entries = entries
        self.trail = EntryTrail()
        self.report = report
        self.doubted_from: int | None = None
        self.newest = 0
        self.index_until = 1 << 63
        self.wrong: list[tuple[int, int]] = []
        self.torn: list[tuple[int, int, int]] = []

    def run(self, begin: int, trusted_end: int | None) -> int | None:
        """Dispatch records from `begin` on; return an earlier offset when the read must begin there, else None."""
        settings = self._settings
        segments = self._log.files.segments
        report = self.report
        report.read_from = report.end = begin
        report.records = report.dispatched = 0
        report.impaired = ""
        report.damaged.clear()
        self.wrong.clear()
        self.torn.clear()
        self._filled = 0
        self._plain_queues.clear()
        unsure: list[tuple[int, int]] = []
        entries = self._entries
        self.trail = EntryTrail() if entries is None else entries.restart()
        index = max(self._log.files.index_of(begin), 0)
        for step in walk(
            segments,
            index,
            begin - segments[index].start,
            trusted_end=trusted_end,
            check_crc=settings.check_crc_on_recover,
            force_record_crc=settings.force_verify_prop_crc,
            newest=self.newest,
            doubted_from=self.doubted_from,
            framed_from=self._log.framed_from,
            trail=self.trail,
        ):
            if entries is not None:
                entries.passed(self.trail)
            if not isinstance(step, LogItem):
                run = step
            elif step.entry is not None:
                run = [step.entry]
            else:
                if step.finding is Finding.OTHER:
                    report.end = step.offset + step.size
                elif step.finding is Finding.DAMAGED and step.offset >= self._log.framed_from:
                    report.impaired = f"{step.reason}, and entries follow it"
                elif step.finding is Finding.DAMAGED:
                    report.damaged.append((step.offset, step.offset + step.size))
                    unsure.append(report.damaged[-1])
                continue
            first, last = run[0], run[-1]
            if unsure:
                if self.doubted_from is not None and first[6] >= self.doubted_from:
                    self.torn += [(start, stop, first[6]) for start, stop in unsure]
                unsure.clear()
            report.records += len(run)
            report.end = last[0] + last[1]
            if entries is not None and report.end > entries.committed_end:
                run = [row for row in run if row[0] + row[1] <= entries.committed_end]
            earlier = self._dispatch_run(run, begin)
            if earlier is not None:
                return earlier
        for start, stop in report.damaged:
            report.notes.append(
                f"bytes {start} to {stop} of the commit log hold no intact record; they are passed over"
            )
        report.damaged = sorted(report.damaged + self.wrong)
        if self._index is not None:
            self._index.write_header()
        return None

    def _dispatch_run(self, run: Run, begin: int) -> int | None:
        """Add missing records to queues and index as `_dispatch`, which this calls for all special records."""
        queues, index, index_until = self._plain_queues, self._index, self.index_until
        for row in run:
            offset, size, topic, queue_id, queue_offset, sys_flag, stored, properties = row
            queue = queues.get((topic, queue_id))
            if queue is None or sys_flag & _NOT_PLAIN:
                earlier = self._dispatch(LogEntry._make(row), begin)
                if earlier is not None:
                    return earlier
                found = self._queues.get(topic, {}).get(queue_id)
                if type(found) is ConsumeQueue and not self._settings.enable_multi_dispatch:
                    queues[topic, queue_id] = found
                continue
            if offset + size > queue.max_physical:
                if queue_offset != queue.max_offset:
                    earlier = self._dispatch(LogEntry._make(row), begin)
                    if earlier is not None:
                        return earlier
                    continue
                tags = 0
                if queue.delayed or b"TAGS\x01" in properties:
                    tags = queue_tags_code(topic, properties, stored, self._delays)
                if queue.put(queue_offset, offset, size, tags, stored):
                    self.report.dispatched += 1
                    queue.dirty = True
            if index is not None and index.end_offset <= offset < index_until:
                index.put_record(topic, properties, offset, stored)
        return None

    def _dispatch(self, entry: LogEntry, begin: int) -> int | None:
        kind = entry.sys_flag & TRANSACTION_BITS
        if kind == ROLLBACK and entry.topic == FILLER_TOPIC:
            self._filled += entry.size
        if kind not in {PREPARED, ROLLBACK}:
            if (reason := impossible_place(entry.topic, entry.queue_id)) is not None:
                self._leave_out(entry, reason)
                return None
            inner = bool(entry.sys_flag & INNER_BATCH)
            if inner and entry.topic not in self._queues:
                # Only topics of this type have such records, whatever the topic's settings are now.
                self._kinds.batch_topics.add(entry.topic)
            queue = queue_of(self._queues, self._kinds, entry.topic, entry.queue_id)
            count = inner_count(entry.properties) if inner and queue.batched else None
            if entry.queue_offset > queue.max_offset and queue not in self._accepted_gaps:
                # Units before this one are missing. If the log before `begin` has their records, go back to them.
                self._accepted_gaps.add(queue)
                wanted = max(queue.max_physical, self._log.min_offset)
                if wanted < begin:
                    return wanted
            if entry.offset + entry.size > queue.max_physical:
                if entry.queue_offset != queue.max_offset and self._is_wrong(entry, queue, count or 1):
                    self._leave_out(entry, f"its queue is at {queue.max_offset}, it says {entry.queue_offset}")
                    return None
                tags = queue_tags_code(entry.topic, entry.properties, entry.store_timestamp, self._delays)
                if count is not None and isinstance(queue, BatchQueue):
                    queue.expect(entry.queue_offset, count)
                if queue.put(entry.queue_offset, entry.offset, entry.size, tags, entry.store_timestamp):
                    self.report.dispatched += 1
                    queue.dirty = True
            if self._settings.enable_multi_dispatch:
                earlier = self._dispatch_further(entry, begin)
                if earlier is not None:
                    return earlier
        if self._index is not None and kind != ROLLBACK and entry.offset < self.index_until:
            self._index.put_record(entry.topic, entry.properties, entry.offset, entry.store_timestamp)
        return None

    def _dispatch_further(self, entry: LogEntry, begin: int) -> int | None:
        """Add units of a record to the further queues that it names (store.md §7); returns as `_dispatch`."""
        for topic, queue_id, offset in stored_places(entry.topic, entry.queue_id, entry.properties):
            if impossible_place(topic, queue_id) is not None or topic in self._kinds.batch_topics:
                continue
            queue = queue_of(self._queues, self._kinds, topic, queue_id)
            if entry.offset + entry.size <= queue.max_physical:
                continue
            if offset > queue.max_offset and queue not in self._accepted_gaps:
                self._accepted_gaps.add(queue)
                wanted = max(queue.max_physical, self._log.min_offset)
                if wanted < begin:
                    return wanted
            known = judge_offset(offset, queue.max_offset, None, self._lost_before(queue))
            if offset != queue.max_offset and known is OffsetVerdict.WRONG:
                text = f"it is left out of {topic!r}: that queue is at {queue.max_offset}, it says {offset}"
                self.report.notes.append(f"the record at {entry.offset} of the commit log: {text}")
                continue
            tags = queue_tags_code(entry.topic, entry.properties, entry.store_timestamp, self._delays)
            if queue.put(offset, entry.offset, entry.size, tags, entry.store_timestamp):
                self.report.dispatched += 1
                queue.dirty = True
        return None

    def _lost_before(self, queue: ConsumeQueue) -> int:
        """Return the bytes of log that may have contained lost records of a queue."""
        first = self._log.min_offset
        lost = self._filled + sum(stop - start for start, stop in self.report.damaged + self.wrong)
        return lost + (first if queue.max_physical < first else 0)

    def _is_wrong(self, entry: LogEntry, queue: ConsumeQueue, count: int) -> bool:
        """Whether the record's queue offset, the first of `count`, cannot be the written one."""
        before = self._lost_before(queue)
        following = self._next_in_queue(entry)
        if queue.batched:
            # Messages of an inner batch are smaller than records, and it uses many offsets at once.
            before = before * OVERHEAD // BATCH_ENTRY_BYTES
            following = None if following is None else following - count + 1
        return judge_offset(entry.queue_offset, queue.max_offset, following, before) is OffsetVerdict.WRONG

    def _next_in_queue(self, entry: LogEntry) -> int | None:
        """Return the queue offset of the next record of the same queue."""
        segments = self._log.files.segments
        index = self._log.files.index_of(entry.offset)
        position = entry.offset + entry.size - segments[index].start
        steps = walk(segments, index, position, framed_from=self._log.framed_from)
        for item in islice(single_items(steps), _LOOK_AHEAD):
            other = item.entry
            if (
                other is not None
                and (other.topic, other.queue_id) == (entry.topic, entry.queue_id)
                and other.sys_flag & TRANSACTION_BITS not in {PREPARED, ROLLBACK}
            ):
                return other.queue_offset
        return None

    def _leave_out(self, entry: LogEntry, reason: str) -> None:
        self.wrong.append((entry.offset, entry.offset + entry.size))
        self.report.notes.append(
            f"the record at {entry.offset} of the commit log, {entry.topic!r}/{entry.queue_id}, is left out: {reason}"
        )


def impossible_place(topic: str, queue_id: int) -> str | None:
    """Return why no queue can have this topic and number; None when one can."""
    if queue_id < 0:
        return f"queue {queue_id} cannot be"
    return folder_name_problem(topic)
