"""Opening a store folder: where to read the log from, what of the queues to believe, where the log ends (store.md §10).

`tianzhou.store.loading` has found the files, `tianzhou.store.replay` goes over the records.
"""

from __future__ import annotations

import logging
import struct
from typing import Any, Final

from tianzhou.store.checkpoint import Checkpoint
from tianzhou.store.commitlog import CommitLog
from tianzhou.store.consumequeue import ConsumeQueue
from tianzhou.store.extension import ExtendedQueue
from tianzhou.store.index import Index
from tianzhou.store.light import is_light
from tianzhou.store.loading import StoreLoader
from tianzhou.store.logscan import Finding, read_item
from tianzhou.store.notes import MARKER_NAME, marked_queues, read_damage, read_marker, write_damage
from tianzhou.store.queues import QueueMaker, QueueTable, each_queue
from tianzhou.store.recovery import (
    OpeningReport,
    SegmentHead,
    half_written,
    rebuild_start,
    start_after_crash,
    start_after_stop,
    survey,
)
from tianzhou.store.replay import LogReplay, impossible_place
from tianzhou.store.segments import Segment
from tianzhou.store.settings import StoreSettings

logger = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">ii")
_PLACE: Final = struct.Struct(">ii20xq")


class StoreOpener:
    """Loads the files of a store into its parts.

    Args:
        settings: of the store.
        log: the commit log, empty.
        queues: filled with the queues found.
        index: the index, empty; None when there is none.
        checkpoint: filled with what is on disk.
        kinds: makes the queues; told of topics of queue type BatchCQ that the folder knows.
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
        self._loader = StoreLoader(settings, log, queues, kinds, report.notes)
        self._replay = LogReplay(settings, log, queues, index, kinds, report)

    def open(self, *, clean: bool, pages_survived: bool = False) -> OpeningReport:
        """Load and recover.

        Args:
            clean: the last stop was clean.
            pages_survived: it was not, but nothing that had been written is lost.

        Raises:
            StoreUnreadable: something is there that cannot be used; the text names it and the remedy.
        """
        report = self.report
        report.clean = clean
        self._loader.load_log()
        report.notes += self._checkpoint.load()
        if not clean and not pages_survived:
            self._replay.doubted_from = self._checkpoint.physic_msg_timestamp
        # What the index had only in memory when the power failed is gone with its files.
        index_lost = not clean and not pages_survived
        if self._index is not None:
            keep = clean or pages_survived
            notes = self._index.load(
                drop_after=None if keep else self._checkpoint.index_msg_timestamp,
                store_time=None if clean or not pages_survived else self._store_time,
                synced_until=self._checkpoint.index_msg_timestamp,
            )
            index_lost = index_lost or bool(notes)
            report.notes += notes
        self._loader.load_queues()
        lacking = self._loader.lacking
        marker = read_marker(self._settings.root) if clean else None
        for queue in each_queue(self._queues):
            queue.recover(thorough=not clean)
            if isinstance(queue, ExtendedQueue) and queue.lacks_extension:
                report.notes.append(
                    f"queue {queue.topic}/{queue.queue_id} has lost its extension; made anew from the log"
                )
                queue.reset()
                lacking.append(queue)
                continue
            if self._lacks_its_beginning(queue, marker):
                report.notes.append(
                    f"queue {queue.topic}/{queue.queue_id} has lost its first files; made anew from the log"
                )
                queue.reset()
                lacking.append(queue)
            if self._drop_wrong_end(queue, -1 if not clean else marker["logEnd"] if marker is not None else -1):
                lacking.append(queue)
        begin, trusted_end = self._choose_begin(marker, lacking, clean=clean, index_lost=index_lost)
        if not clean:
            self._distrust_units(begin, pages_survived=pages_survived)
        self._recover_log(begin, trusted_end)
        smallest = self._log.min_offset
        for queue in each_queue(self._queues):
            queue.next_offset = queue.max_offset
            if smallest >= 0:
                queue.correct_min_offset(smallest)
        self._settings.root.joinpath(MARKER_NAME).unlink(missing_ok=True)
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
        for note in report.notes:
            logger.warning("%s: %s", self._settings.root, note)
        return report

    def _lacks_its_beginning(self, queue: ConsumeQueue, marker: dict[str, Any] | None) -> bool:
        """Whether the queue begins later than the log: expiry keeps the file that crosses the log's beginning."""
        if not queue.files.segments or queue.files.segments[0].start == 0:
            return False
        start = queue.files.segments[0].start // queue.unit_size
        if marker is not None and marked_queues(marker).get((queue.topic, queue.queue_id), (start, 0))[0] == start:
            return False
        physical = queue.first_physical()
        return physical is not None and physical > self._log.min_offset >= 0

    def _choose_begin(
        self, marker: dict[str, Any] | None, lacking: list[ConsumeQueue], *, clean: bool, index_lost: bool
    ) -> tuple[int, int | None]:
        """Log offset to read from, and what the log reaches to at least (None: who knows)."""
        segments = self._log.files.segments
        if not segments:
            return 0, None
        first = segments[0].start
        trusted_end = None
        if clean:
            begin, trusted_end = self._begin_after_stop(marker, self._dispatched_end())
        else:
            begin = segments[start_after_crash([_head_of(s) for s in segments], self._checkpoint.min_timestamp)].start
        begin = min(begin, self._loader.read_from, *[max(queue.max_physical, first) for queue in lacking])
        if begin > segments[-1].end:
            self.report.notes.append(f"the commit log's segment at {segments[-1].end} has gone; its messages are lost")
            begin = segments[-1].start
        if index_lost and self._index is not None:
            begin = min(begin, max(self._index.end_offset, first))
        return begin, trusted_end

    def _dispatched_end(self) -> int:
        return max((queue.max_physical for queue in each_queue(self._queues)), default=-1)

    def _drop_wrong_end(self, queue: ConsumeQueue, believed: int) -> bool:
        """Drop a queue's last unit when the log has no such record: by it the queue knows what it has already.

        Args:
            queue: the queue.
            believed: a unit whose record ends here or earlier need not be compared with the log.
        """
        unit = queue.unit(queue.max_offset - 1)
        if queue.batched or unit is None or queue.max_physical <= believed or queue.max_physical != unit[0] + unit[1]:
            return False
        offset, size, _ = unit
        segments = self._log.files.segments
        if not segments or offset < segments[0].start:
            return False
        segment = self._log.files.find(offset)
        if segment is not None and offset - segment.start + _PLACE.size <= segment.size:
            stated, _, place = _PLACE.unpack_from(segment.view, offset - segment.start)
            if (stated, place) == (size, offset):
                return False
        queue.recover(offset)
        self.report.notes.append(
            f"the last unit of queue {queue.topic}/{queue.queue_id} points to {size} bytes at {offset}, where no such "
            "record is; dropped"
        )
        return True

    def _distrust_units(self, begin: int, *, pages_survived: bool) -> None:
        """Drop the units that the crash may have torn; all of them are made again from the log behind `begin`."""
        newest = self._dispatched_end()
        for queue in each_queue(self._queues):
            if queue.max_physical <= begin or (is_light(queue.topic) and not self._settings.enable_multi_dispatch):
                continue
            if not pages_survived:
                queue.recover(begin)
                continue
            # The dead process may not have brought them to the disk.
            queue.doubt(begin)
            if queue.max_physical == newest:
                # Only what the process was writing when it died can be half done.
                unit = queue.unit(queue.max_offset - 1)
                if unit is not None and unit[0] >= begin:
                    queue.recover(unit[0])
                    self._drop_wrong_end(queue, -1)

    def _recover_log(self, begin: int, trusted_end: int | None) -> None:
        report = self.report
        segments = self._log.files.segments
        if not segments:
            if self._dispatched_end() >= 0:
                report.notes.append("there is no commit log; the queues that point into it are deleted")
            for queue in each_queue(self._queues):
                queue.reset()
            if self._index is not None:
                self._index.drop_behind(0)
            self._log.resume(0)
            return
        again: int | None = begin
        while again is not None:
            again = self._replay.run(begin := again, trusted_end)
        end = report.end
        for start, stop, timestamp in self._replay.torn:
            self._log.fill(start, stop, timestamp)
        # Nothing behind the end is anything's place any more.
        report.damaged = [(start, min(stop, end)) for start, stop in report.damaged if start < end]
        if self._index is not None and self._index.drop_behind(end):
            report.notes.append(f"the index knows records behind the log's end {end}; its last part is made anew")
            damaged = list(report.damaged)
            self._replay.run(max(self._index.end_offset, segments[0].start), end)
            report.damaged, report.end = damaged, end
        if self._dispatched_end() > end:
            report.notes.append(f"queues point behind the log's end {end}; those units are dropped")
            for queue in each_queue(self._queues):
                if queue.max_physical > end:
                    queue.recover(end)
        self._log.resume(end)
        self._log.damaged = merged(report.damaged + self._known_damage(end))
        write_damage(self._settings.root, self._log.damaged)

    def _known_damage(self, end: int) -> list[tuple[int, int]]:
        """Damaged stretches that earlier starts found and this one did not read again."""
        segments = self._log.files.segments
        still = []
        for start, stop in read_damage(self._settings.root):
            segment = self._log.files.find(start)
            if segment is None or not segments[0].start <= start < stop <= end:
                continue
            item = next(survey([segment], 0, start - segment.start), None)
            entry = item.entry if item is not None else None
            if entry is None or impossible_place(entry.topic, entry.queue_id) is not None:
                still.append((start, stop))
        return still

    def _begin_after_stop(self, marker: dict[str, Any] | None, dispatched_end: int) -> tuple[int, int | None]:
        """Where to read from after a clean stop, and what the log reaches to at least."""
        segments = self._log.files.segments
        first = segments[0].start
        if marker is None or marker["logEnd"] < dispatched_end:
            # Left by RocketMQ, or used by it since.
            index = start_after_stop([segment.start for segment in segments], dispatched_end)
            return segments[index].start, max(dispatched_end, first)
        found = {(q.topic, q.queue_id): (q.max_offset, q.max_physical) for q in each_queue(self._queues)}
        behind = rebuild_start({key: maximum for key, (_, maximum) in marked_queues(marker).items()}, found)
        for topic, queue_id in behind:
            self.report.notes.append(f"queue {topic}/{queue_id} has lost units; they are made anew from the log")
        begin = min([marker["logEnd"], *behind.values()])
        if self._index is not None and self._index.end_offset < marker["indexEnd"]:
            self.report.notes.append("the index has lost entries; they are made anew from the log")
            begin = min(begin, self._index.end_offset)
        if not self._ends_intact(marker["logEnd"]):
            self.report.notes.append(
                f"the commit log is not intact at its end {marker['logEnd']}, though the last stop was a clean one"
            )
            index = start_after_stop([segment.start for segment in segments], dispatched_end - 1)
            return max(min(begin, segments[index].start), first), None
        return max(begin, first), marker["logEnd"]

    def _ends_intact(self, log_end: int) -> bool:
        """Whether the last dispatched record and what follows it are records up to `log_end`."""
        newest = max(each_queue(self._queues), key=lambda queue: queue.max_physical, default=None)
        unit = newest.unit(newest.max_offset - 1) if newest is not None else None
        if newest is None or unit is None or unit[0] + unit[1] != newest.max_physical:
            return True
        offset = unit[0]
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

    def _store_time(self, offset: int) -> int:
        segment = self._log.files.find(offset)
        if segment is None:
            return -1
        item = read_item(segment.view, offset - segment.start, segment.start, check_crc=False)
        return -1 if item.entry is None else item.entry.store_timestamp


def merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same places, in order, without repeats and overlaps."""
    result: list[tuple[int, int]] = []
    for start, stop in sorted(stretches):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result


def _head_of(segment: Segment) -> SegmentHead:
    view = segment.view
    _, magic = _HEAD.unpack_from(view, 0)
    timestamp = 0
    if magic:
        (sys_flag,) = struct.unpack_from(">i", view, 36)
        (timestamp,) = struct.unpack_from(">q", view, 68 if sys_flag & 0x10 else 56)
    return SegmentHead(segment.start, magic, timestamp)
