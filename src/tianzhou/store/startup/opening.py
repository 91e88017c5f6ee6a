"""The opening of a store folder: the begin of the read, the trust in queues, the end of the log (store.md §10).

`tianzhou.store.startup.loading` has found the files, and `tianzhou.store.startup.replay` reads the records.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from tianzhou.records.codec import store_time
from tianzhou.records.entry import HEADER_SIZE
from tianzhou.records.layout import MAGICS, SIZE_MAGIC, UP_TO_STORE_TIME
from tianzhou.records.walk import Finding, half_written, read_item, single_items, walk
from tianzhou.store.entries.entry_recovery import EntryRecovery
from tianzhou.store.entries.framed_log import FramedLog
from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.store.files.segments import Segment
from tianzhou.store.index.index import Index
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.recovery import OpeningReport, SegmentHead, rebuild_start, start_after_crash, start_after_stop
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.extension import ExtendedQueue
from tianzhou.store.queues.multi_dispatch import is_light
from tianzhou.store.queues.queues import QueueMaker, QueueTable, each_queue
from tianzhou.store.settings import StoreSettings
from tianzhou.store.startup.loading import StoreLoader
from tianzhou.store.startup.marked_cut import Mark, cut_log
from tianzhou.store.startup.proved_note import NOTE_BYTES, StoreNote, lock_time, read_damage, read_note, write_damage
from tianzhou.store.startup.replay import LogReplay, impossible_place
from tianzhou.store.startup.wrong_ends import WrongEnds

logger = logging.getLogger(__name__)

_LOOKED_AT: Final = 4096


class StoreOpener:
    """Loads the files of a store into its parts.

    Args:
        settings: settings of the store.
        log: the commit log, empty.
        queues: filled with the queues found.
        index: the index, empty; None without one.
        checkpoint: filled from the disk.
        kinds: creates the queues; gets the topics of queue type BatchCQ in the folder.

    Attributes:
        entries: recovery of the log's entries; None in a plain store.
        report: results of the opening.
        note: the note in the folder, when no other broker has had the store since and the log agrees with it.
    """

    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        checkpoint: Checkpoint,
        kinds: QueueMaker,
    ) -> None:
        self._settings = settings
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._kinds = kinds
        self.report = report = OpeningReport()
        self.note: StoreNote | None = None
        self._loader = StoreLoader(settings, log, queues, kinds, report.notes)
        self.entries = EntryRecovery(log, settings) if isinstance(log, FramedLog) else None
        self._wrong_ends = WrongEnds(log, report.notes)
        self._replay = LogReplay(settings, log, queues, index, kinds, report, self.entries)

    def open(self, *, clean: bool, pages_survived: bool = False, mark: Mark | None = None) -> OpeningReport:
        """Load and recover the store.

        Args:
            clean: whether the last stop was clean.
            pages_survived: whether all writes exist although the last stop was not clean.
            mark: cut of the log to make first, if any.

        Raises:
            StoreUnreadable: a file cannot be used; the text has its name and the remedy.
        """
        report = self.report
        self._loader.load_log()
        if mark is not None and cut_log(self._log, mark):
            # Queues, index and notes are ahead of the log, as after a power failure.
            clean = pages_survived = False
        report.clean = clean
        if self.entries is not None:
            self.entries.load()
        report.notes += self._checkpoint.load()
        if not clean and not pages_survived:
            self._replay.doubted_from = self._checkpoint.physic_msg_timestamp
        note = read_note(self._settings.root)
        ours = note is not None and note.lock == lock_time(self._settings.root)
        indexed = self._load_index(note, ours=ours, clean=clean, pages_survived=pages_survived)
        self._loader.load_queues(torn=not clean and not pages_survived)
        incomplete = self._loader.incomplete
        if ours and note is not None and note.confirmed_by(self._log):
            self.note = note
        # After a clean stop the note is valid whichever broker had the folder since, unless it is evidently outdated.
        trusted = note if clean else self.note
        noted = trusted.queue_ends if trusted is not None else {}
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for queue in each_queue(self._queues):
            proved = noted.get((queue.topic, queue.queue_id))
            queue.recover(thorough=not clean, proved=proved[1] if proved is not None else 0)
            if isinstance(queue, ExtendedQueue) and queue.lacks_extension:
                report.notes.append(
                    f"queue {queue.topic}/{queue.queue_id} has lost its extension; rebuilt from the log"
                )
                queue.reset()
                incomplete.append(queue)
                continue
            if self._lacks_its_beginning(queue, proved):
                report.notes.append(
                    f"queue {queue.topic}/{queue.queue_id} has lost its first files; rebuilt from the log"
                )
                queue.reset()
                incomplete.append(queue)
            found[queue.topic, queue.queue_id] = (queue.max_offset, queue.max_physical)
            if self._wrong_ends.drop(queue, trusted.log_end if clean and trusted is not None else -1):
                incomplete.append(queue)
        dispatched = self._newest_record() if ours or (note is None and pages_survived) else -1
        begin, trusted_end = self._choose_begin(trusted, incomplete, found, clean=clean)
        if not clean:
            begin = self._distrust_units(begin, noted, pages_survived=pages_survived)
        if self.entries is not None and self._log.files.segments:
            begin = self.entries.begin_at(begin, dispatched)
        certain = (
            clean and ours and note is not None and self.entries is None and self._loader.read_from >= note.log_end
        )
        certain_end = note.log_end if certain and note is not None else -1
        self._recover_log(begin, trusted_end, indexed, certain_end)
        smallest = self._log.min_offset
        for queue in each_queue(self._queues):
            queue.next_offset = queue.trusted_from = queue.max_offset
            if smallest >= 0:
                queue.correct_min_offset(smallest)
        if not clean:
            logger.warning(
                "%s: not stopped cleanly, %s; %d records from %d to %d read again, %d of them put into queues, "
                "%d places without an intact record",
                self._settings.root,
                "by the death of its process" if pages_survived else "perhaps by a loss of power",
                report.records,
                report.read_from,
                report.end,
                report.dispatched,
                len(report.damaged),
            )
        report.notes = list(dict.fromkeys(report.notes))
        for text in report.notes:
            logger.warning("%s: %s", self._settings.root, text)
        return report

    def _load_index(self, note: StoreNote | None, *, ours: bool, clean: bool, pages_survived: bool) -> int | None:
        """Load the index; return the log offset before which it is complete, None when it is as complete as the queues.

        Args:
            note: the note found, if any.
            ours: whether no other broker has had the store since the note was written.
            clean: whether the last stop was clean.
            pages_survived: whether all writes exist although the last stop was not clean.
        """
        index, checkpoint = self._index, self._checkpoint
        if index is None:
            return None
        lost = index.load(
            drop_after=None if clean or pages_survived else checkpoint.index_msg_timestamp,
            store_time=self._store_time if pages_survived and not clean else None,
            synced_until=checkpoint.index_msg_timestamp,
        )
        if note is not None and not ours and note.index_behind and index.drop_behind(note.index_end + 1):
            lost.append("the index was not complete when another broker added to it; its end is rebuilt from the log")
        if note is not None and ours and index.drop_behind_gap(note.index_files, self._log.min_offset) and not lost:
            lost.append("index files have gone; they and what was newer are rebuilt from the log")
        self.report.notes += lost
        if checkpoint.index_msg_timestamp > index.end_timestamp:
            # The checkpoint vouches for index files, which rebuilt ones do not deserve yet.
            checkpoint.index_msg_timestamp = index.end_timestamp
            checkpoint.write()
        if not lost and note is not None and (ours or clean):
            if index.end_offset < note.index_end:
                self.report.notes.append("the index has lost entries; they are rebuilt from the log")
            elif ours:
                return max(note.indexed, index.end_offset)
            else:
                return None
        return None if clean and not lost and note is None else index.end_offset

    def _lacks_its_beginning(self, queue: ConsumeQueue, noted: tuple[int, int] | None) -> bool:
        """Whether the queue begins later than the log. Expiry never deletes the file across the log's beginning."""
        if not queue.files.segments or queue.files.segments[0].start == 0:
            return False
        if noted is not None and noted[0] == queue.files.segments[0].start // queue.unit_size:
            return False
        physical = queue.first_physical()
        return physical is not None and physical > self._log.min_offset >= 0

    def _choose_begin(
        self,
        note: StoreNote | None,
        incomplete: list[ConsumeQueue],
        found: Mapping[tuple[str, int], tuple[int, int]],
        *,
        clean: bool,
    ) -> tuple[int, int | None]:
        """Return the log offset to read from, and the minimum end of the log (None if unknown).

        Args:
            note: the trusted note.
            incomplete: queues to complete.
            found: next offset and end of the last record of each queue on the disk.
            clean: whether the last stop was clean.
        """
        segments = self._log.files.segments
        if not segments:
            return 0, None
        first = segments[0].start
        trusted_end = None
        if clean:
            begin, trusted_end = self._begin_after_stop(note, found)
        else:
            behind = [one for one in reversed(segments) if note is None or one.end > note.log_end]
            begin = start_after_crash(map(self._head_of, behind), self._checkpoint.min_timestamp)
            if note is not None:
                begin = min([max(begin, note.log_end), *self._lost_units(note, found)])
                self._replay.newest = self._store_time(note.witness[0]) if note.witness is not None else 0
        begin = min(begin, self._loader.read_from, *[max(queue.max_physical, first) for queue in incomplete])
        if begin > segments[-1].end:
            self.report.notes.append(f"the commit log's segment at {segments[-1].end} has gone; its messages are lost")
            begin = segments[-1].start
        return max(begin, first), trusted_end

    def _lost_units(self, note: StoreNote, found: Mapping[tuple[str, int], tuple[int, int]]) -> list[int]:
        """Return log offsets from which to fill queues that have fewer units than noted."""
        behind = rebuild_start({queue: maximum for queue, (_, maximum) in note.queue_ends.items()}, found)
        for topic, queue_id in behind:
            self.report.notes.append(f"queue {topic}/{queue_id} has lost units; they are rebuilt from the log")
        return list(behind.values())

    def _dispatched_end(self) -> int:
        return max((queue.max_physical for queue in each_queue(self._queues)), default=-1)

    def _newest_record(self) -> int:
        """Return the offset of the last record in a queue or the index; -1 without one."""
        newest = max(each_queue(self._queues), key=lambda queue: queue.max_physical, default=None)
        unit = newest.unit(newest.max_offset - 1) if newest is not None else None
        indexed = -1 if self._index is None else self._index.end_offset
        return indexed if unit is None else max(unit[0], indexed)

    def _distrust_units(
        self, begin: int, noted: Mapping[tuple[str, int], tuple[int, int]], *, pages_survived: bool
    ) -> int:
        """Drop the units that the crash may have torn; the log rebuilds all of them.

        Returns:
            Log offset to read from: `begin`, or the earlier record of a wrong unit.
        """
        newest = self._dispatched_end()
        first = self._log.files.segments[0].start if self._log.files.segments else 0
        start = begin
        for queue in each_queue(self._queues):
            if queue.max_physical <= begin or (is_light(queue.topic) and not self._settings.enable_multi_dispatch):
                continue
            if not pages_survived:
                queue.recover(begin, proved=noted.get((queue.topic, queue.queue_id), (0, 0))[1])
                # A queue's last unit defines its end: a wrong one would block the records read now.
                if self._wrong_ends.drop(queue, -1):
                    start = min(start, max(queue.max_physical, first))
                continue
            # The dead process may not have synced them.
            queue.doubt(begin)
            if queue.max_physical == newest:
                # Only the last write of the dead process can be incomplete.
                unit = queue.unit(queue.max_offset - 1)
                if unit is not None and unit[0] >= begin:
                    queue.recover(unit[0])
                    if self._wrong_ends.drop(queue, -1):
                        start = min(start, max(queue.max_physical, first))
        return start

    def _recover_log(self, begin: int, trusted_end: int | None, indexed: int | None, certain_end: int) -> None:
        report, segments = self.report, self._log.files.segments
        if not segments:
            if self._dispatched_end() >= 0:
                report.notes.append("there is no commit log; the queues that point into it are deleted")
            for queue in each_queue(self._queues):
                queue.reset()
            if self._index is not None:
                self._index.drop_behind(0)
            self._log.resume(0)
            if self.entries is not None:
                self._resume_entries(self.entries, 0)
            return
        first = segments[0].start
        # The missing index entries of records that are read anyway are added at once, up to a limit; the rest while the
        # store serves.
        indexed = max(first, (trusted_end or begin) if indexed is None else indexed)
        whole = indexed >= begin
        inline_end = indexed + NOTE_BYTES if whole else 0
        self._replay.index_until = inline_end
        if self._index is not None:
            self._index.take_up(indexed)
        for segment in segments[max(self._log.files.index_of(begin), 0) :]:
            # The bytes after the last record are checked, too.
            end = segment.written(max(begin - segment.start, 0))
            if end < segment.size:
                segment.reserve_range(end, min(end + _LOOKED_AT, segment.size))
        again: int | None = begin
        while again is not None:
            again = self._replay.run(begin := again, trusted_end)
        if report.end < certain_end <= segments[-1].end:
            # A clean stop left records up to there. They are broken, and new records must not reuse their offsets.
            report.damaged.append((report.end, certain_end))
            report.notes.append(f"the log's end, bytes {report.end} to {certain_end}, holds no intact record")
            report.end = certain_end
        end = report.end
        if self.entries is not None and self._log.framed_from < end:
            # The group decides about uncommitted entries; queues and index never had them.
            self.entries.passed(self._replay.trail)
            end = max(min(end, self.entries.committed_end), self._log.framed_from)
        for start, stop, timestamp in self._replay.torn:
            self._log.fill(start, stop, timestamp)
        # No record after the end exists any more.
        report.damaged = [(start, min(stop, end)) for start, stop in report.damaged if start < end]
        report.indexed = end if self._index is None else min(end, inline_end) if whole else indexed
        self._drop_what_points_behind(end, first)
        self._log.resume(report.end)
        if self.entries is not None:
            self._resume_entries(self.entries, report.end)
        self._log.damaged = merged(report.damaged + self._known_damage(end))
        write_damage(self._settings.root, self._log.damaged)

    def _drop_what_points_behind(self, end: int, first: int) -> None:
        """Drop units and keys of records after a log offset; `first` is where the log begins."""
        report = self.report
        if self._index is not None and self._index.drop_behind(end):
            report.notes.append(f"the index knows records behind the log's end {end}; its last part is rebuilt")
            report.indexed = max(self._index.end_offset, first)
        if self._dispatched_end() > end:
            report.notes.append(f"queues point behind the log's end {end}; those units are dropped")
            for queue in each_queue(self._queues):
                if queue.max_physical > end:
                    queue.recover(end)

    def _resume_entries(self, entries: EntryRecovery, end: int) -> None:
        """Continue after the last entry; in the first life of a member, entries begin at the end of its plain log."""
        log = self._log
        assert isinstance(log, FramedLog)
        if not log.framed:
            log.begin_entries()
            end = self.report.end = log.end
            self.report.indexed = end
        self.report.notes += entries.finish(self._replay.trail, end, self.report.impaired)
        self.report.impaired = entries.loss.lost

    def _known_damage(self, end: int) -> list[tuple[int, int]]:
        """Return damaged stretches that earlier starts found and this one did not read again."""
        segments = self._log.files.segments
        still = []
        for start, stop in read_damage(self._settings.root):
            segment = self._log.files.find(start)
            if segment is None or not segments[0].start <= start < stop <= end:
                continue
            steps = walk([segment], 0, start - segment.start, most=1, framed_from=self._log.framed_from)
            item = next(single_items(steps), None)
            entry = item.entry if item is not None else None
            if entry is None or impossible_place(entry.topic, entry.queue_id) is not None:
                still.append((start, stop))
        return still

    def _begin_after_stop(
        self, note: StoreNote | None, found: Mapping[tuple[str, int], tuple[int, int]]
    ) -> tuple[int, int | None]:
        segments = self._log.files.segments
        first = segments[0].start
        dispatched_end = self._dispatched_end()
        if note is None or note.log_end < dispatched_end:
            # The folder was last used by RocketMQ.
            index = start_after_stop([segment.start for segment in segments], dispatched_end)
            return segments[index].start, max(dispatched_end, first)
        begin = min([note.log_end, *self._lost_units(note, found)])
        if not self._ends_intact(note.log_end):
            self.report.notes.append(
                f"the commit log is not intact at its end {note.log_end}, though the last stop was a clean one"
            )
            index = start_after_stop([segment.start for segment in segments], dispatched_end - 1)
            return max(min(begin, segments[index].start), first), None
        return max(begin, first), note.log_end

    def _ends_intact(self, log_end: int) -> bool:
        """Whether the log has records from the last dispatched one up to `log_end`."""
        newest = max(each_queue(self._queues), key=lambda queue: queue.max_physical, default=None)
        unit = newest.unit(newest.max_offset - 1) if newest is not None else None
        if newest is None or unit is None or unit[0] + unit[1] != newest.max_physical:
            return True
        offset = unit[0]
        if offset >= self._log.framed_from:
            return self._entries_reach(offset, log_end)
        while offset < log_end:
            segment = self._log.files.find(offset)
            if segment is None:
                return False
            item = read_item(segment.view, offset - segment.start, segment.start)
            if item.finding is Finding.BLANK:
                offset = segment.end
                continue
            if item.finding is not Finding.RECORD or half_written(item, segment):
                return False
            offset += item.size
        return True

    def _entries_reach(self, offset: int, log_end: int) -> bool:
        """Whether the log has entries from a record on up to `log_end`."""
        segments, index = self._log.files.segments, self._log.files.index_of(offset)
        steps = walk(segments, index, offset - segments[index].start, trusted_end=0, framed_from=self._log.framed_from)
        return any(item.offset + item.size >= log_end for item in single_items(steps))

    def _head_of(self, segment: Segment) -> SegmentHead:
        at = HEADER_SIZE if segment.start >= self._log.framed_from else 0
        view = segment.read(at, at + UP_TO_STORE_TIME)
        _, magic = SIZE_MAGIC.unpack_from(view, 0)
        return SegmentHead(segment.start, magic, store_time(view) if magic in MAGICS else 0)

    def _store_time(self, offset: int) -> int:
        segment = self._log.files.find(offset)
        if segment is None:
            return -1
        item = read_item(segment.view, offset - segment.start, segment.start, check_crc=False)
        return -1 if item.entry is None else item.entry.store_timestamp


def merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same stretches in order, merged where they overlap."""
    result: list[tuple[int, int]] = []
    for start, stop in sorted(stretches):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result
