"""Opening a store folder: load what is there, find the log's end, fill what queues and index lack (store.md §10)."""

from __future__ import annotations

import json
import logging
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tianzhou.errors import StoreUnreadable
from tianzhou.model import names
from tianzhou.store.admission import INNER_BATCH, inner_count
from tianzhou.store.batchqueue import BatchQueue
from tianzhou.store.checkpoint import Checkpoint
from tianzhou.store.commitlog import FILLER_TOPIC, CommitLog
from tianzhou.store.config_file import JsonFile
from tianzhou.store.consumequeue import ConsumeQueue
from tianzhou.store.extension import ExtendedQueue
from tianzhou.store.index import Index
from tianzhou.store.light import is_light, stored_places
from tianzhou.store.logscan import (
    PREPARED,
    ROLLBACK,
    TRANSACTION_BITS,
    Finding,
    LogEntry,
    queue_tags_code,
    read_item,
)
from tianzhou.store.queues import BATCH_QUEUES, QUEUES, QueueMaker, QueueTable, batch_topics_in
from tianzhou.store.recovery import (
    OffsetVerdict,
    SegmentHead,
    half_written,
    judge_offset,
    judge_sizes,
    rebuild_start,
    start_after_crash,
    start_after_stop,
    survey,
)
from tianzhou.store.segments import Segment, segment_name, sync_directory
from tianzhou.store.settings import StoreSettings, parse_delay_levels
from tianzhou.store.usual import UsualRecords
from tianzhou.wire.properties import get_property
from tianzhou.wire.record import OVERHEAD

logger = logging.getLogger(__name__)

MARKER_NAME: Final = "clean.json"
DAMAGE_NAME: Final = "damaged.json"
BATCH_ENTRY_BYTES: Final = 22
_LONGEST_TOPIC: Final = 255
_LOOK_AHEAD: Final = 100_000
_HEAD: Final = struct.Struct(">ii")
_PLACE: Final = struct.Struct(">ii20xq")


@dataclass
class OpeningReport:
    """What opening a store found and did.

    Attributes:
        clean: the last stop was clean.
        read_from: log offset from which records were looked at.
        end: the log's end.
        records: how many were looked at.
        dispatched: how many of them queues or index did not have.
        damaged: start and end of stretches of the log that hold no intact record, though intact ones follow.
        notes: repairs, in words.
    """

    clean: bool = True
    read_from: int = 0
    end: int = 0
    records: int = 0
    dispatched: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


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
        self._delays = parse_delay_levels(settings.message_delay_level)
        self._accepted_gaps: set[ConsumeQueue] = set()
        self._read_at_least_from = 1 << 63
        self._doubted_from: int | None = None
        self._wrong: list[tuple[int, int]] = []
        self._torn: list[tuple[int, int, int]] = []
        self._filled = 0
        self.report = OpeningReport()

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
        self._kinds.batch_topics |= batch_topics_in(self._settings.root)
        self._load_log()
        report.notes += self._checkpoint.load()
        if not clean and not pages_survived:
            self._doubted_from = self._checkpoint.physic_msg_timestamp
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
        settings = self._settings
        lacking = self._load_queues(QUEUES, settings.queue_segment_size, "mappedFileSizeConsumeQueue")
        lacking += self._load_queues(BATCH_QUEUES, settings.batch_queue_segment_size, "mapperFileSizeBatchConsumeQueue")
        marker = self._read_marker() if clean else None
        for queue in self._all_queues():
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
        for queue in self._all_queues():
            queue.next_offset = queue.max_offset
            if smallest >= 0:
                queue.correct_min_offset(smallest)
        self._drop_marker()
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

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made when it is not there yet."""
        of_topic = self._queues.setdefault(topic, {})
        queue = of_topic.get(queue_id)
        if queue is None:
            queue = of_topic[queue_id] = self._kinds.make(topic, queue_id)
        return queue

    def _all_queues(self) -> Iterator[ConsumeQueue]:
        for of_topic in self._queues.values():
            yield from of_topic.values()

    # loading

    def _load_log(self) -> None:
        settings = self._settings
        size = settings.mapped_file_size_commit_log
        found: list[tuple[int, Path, int]] = []
        for directory in dict.fromkeys(settings.commit_log_directories + settings.read_only_directories):
            found += _segment_files(directory)
        found.sort()
        if found and found[-1][2] == 0:
            found.pop()[1].unlink()
        verdict = judge_sizes([(start, length) for start, _, length in found], size)
        if verdict.written_with is not None:
            raise StoreUnreadable(
                f"{found[0][1].parent}: written with mappedFileSizeCommitLog={verdict.written_with}, configured is "
                f"{size}; set mappedFileSizeCommitLog={verdict.written_with}"
            )
        for number in verdict.damaged:
            start, path, length = found[number]
            self._read_at_least_from = min(self._read_at_least_from, start)
            os.truncate(path, size)
            self.report.notes.append(f"{path} was cut short at {length} bytes; lengthened to {size} with zeros")
        expected = found[0][0] if found else 0
        for start, path, _ in found:
            if start < expected:
                raise StoreUnreadable(
                    f"{path}: a segment of this offset is in another commit-log directory, too; remove one of them"
                )
            if start > expected:
                missing = path.with_name(segment_name(expected))
                raise StoreUnreadable(
                    f"{missing} is missing between its neighbours; put it back, or, to go on without its messages, "
                    f"put zeros there: truncate -s {size} {missing}; touch {self._settings.root}/abort"
                )
            self._log.files.adopt(Segment(path, start, size))
            expected = start + size

    def _load_queues(self, family: str, size: int, key: str) -> list[ConsumeQueue]:
        """Load the queues of one kind; those of which a file had to be given up are returned.

        Args:
            family: folder below the root.
            size: bytes of their segments.
            key: the setting that says so.
        """
        root = self._settings.root / family
        found: dict[tuple[str, int], list[tuple[int, Path, int]]] = {}
        if root.is_dir():
            for topic_directory in sorted(root.iterdir()):
                if not topic_directory.is_dir():
                    continue
                for directory in topic_directory.iterdir():
                    if directory.is_dir() and directory.name.isascii() and directory.name.isdigit():
                        files = sorted(_segment_files(directory))
                        found[topic_directory.name, int(directory.name)] = files
        self._refuse_other_queue_size(root, found, size, key)
        lacking = []
        for (topic, queue_id), files in sorted(found.items()):
            if files and (topic in self._kinds.batch_topics) != (family == BATCH_QUEUES):
                kind, right = ("SimpleCQ", QUEUES) if family == BATCH_QUEUES else ("BatchCQ", BATCH_QUEUES)
                raise StoreUnreadable(
                    f"{root / topic}: the topic's queue type is {kind}, its queues belong into {right}; "
                    "delete this folder: what the log has is made anew from it"
                )
            queue = self.queue(topic, queue_id)
            if isinstance(queue, ExtendedQueue):
                self._load_extension(queue)
            expected = files[0][0] if files else 0
            for number, (start, path, length) in enumerate(files):
                if length == size and start == expected:
                    queue.files.adopt(Segment(path, start, size))
                    expected = start + size
                    continue
                # What follows is of no use without it, and all of it can be had from the log again.
                for _, later, _ in files[number:]:
                    later.unlink()
                sync_directory(path.parent)
                if length or number + 1 < len(files):
                    lacking.append(queue)
                    what = "is missing" if start != expected else f"is {length} bytes long instead of {size}"
                    which = path.with_name(f"{expected:020d}") if start != expected else path
                    self.report.notes.append(f"queue file {which} {what}; the queue is made anew from the log")
                break
        return lacking

    def _load_extension(self, queue: ExtendedQueue) -> None:
        files = queue.extension.files
        (directory,) = files.directories
        expected = None
        for start, path, length in sorted(_segment_files(directory)):
            if length == files.size and expected in {None, start}:
                files.adopt(Segment(path, start, length))
                expected = start + length
            else:
                # Should anything point there, the queue is made anew.
                path.unlink()

    def _refuse_other_queue_size(
        self, root: Path, found: dict[tuple[str, int], list[tuple[int, Path, int]]], size: int, key: str
    ) -> None:
        lengths = {length for files in found.values() for _, _, length in files if length}
        if lengths and size not in lengths and len(lengths) == 1:
            (other,) = lengths
            if other % (46 if root.name == BATCH_QUEUES else 20) == 0:
                raise StoreUnreadable(
                    f"{root}: the queues were written with {key}={other}, configured is {size}; "
                    f"set {key}={other}, or delete the folder: it is made anew from the log"
                )
        if any(length > size for length in lengths):
            raise StoreUnreadable(
                f"{root}: there are queue files of {max(lengths)} bytes, {key}={size}; "
                "set the size the folder was written with, or delete the folder: it is made anew from the log"
            )

    # recovery

    def _lacks_its_beginning(self, queue: ConsumeQueue, marker: dict[str, Any] | None) -> bool:
        """Whether the queue begins later than the log: expiry keeps the file that crosses the log's beginning."""
        if not queue.files.segments or queue.files.segments[0].start == 0:
            return False
        start = queue.files.segments[0].start // queue.unit_size
        if marker is not None and _marked_queues(marker).get((queue.topic, queue.queue_id), (start, 0))[0] == start:
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
        begin = min(begin, self._read_at_least_from, *[max(queue.max_physical, first) for queue in lacking])
        if begin > segments[-1].end:
            self.report.notes.append(f"the commit log's segment at {segments[-1].end} has gone; its messages are lost")
            begin = segments[-1].start
        if index_lost and self._index is not None:
            begin = min(begin, max(self._index.end_offset, first))
        return begin, trusted_end

    def _dispatched_end(self) -> int:
        return max((queue.max_physical for queue in self._all_queues()), default=-1)

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
        for queue in self._all_queues():
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
            for queue in self._all_queues():
                queue.reset()
            if self._index is not None:
                self._index.drop_behind(0)
            self._log.resume(0)
            return
        again: int | None = begin
        while again is not None:
            again = self._replay(begin := again, trusted_end)
        end = report.end
        for start, stop, timestamp in self._torn:
            self._log.fill(start, stop, timestamp)
        # Nothing behind the end is anything's place any more.
        report.damaged = [(start, min(stop, end)) for start, stop in report.damaged if start < end]
        if self._index is not None and self._index.drop_behind(end):
            report.notes.append(f"the index knows records behind the log's end {end}; its last part is made anew")
            damaged = list(report.damaged)
            self._replay(max(self._index.end_offset, segments[0].start), end)
            report.damaged, report.end = damaged, end
        if self._dispatched_end() > end:
            report.notes.append(f"queues point behind the log's end {end}; those units are dropped")
            for queue in self._all_queues():
                if queue.max_physical > end:
                    queue.recover(end)
        self._log.resume(end)
        self._log.damaged = merged(report.damaged + self._known_damage(end))
        self._remember_damage()

    def _known_damage(self, end: int) -> list[tuple[int, int]]:
        """Damaged stretches that earlier starts found and this one did not read again."""
        try:
            told = json.loads(self._damage_path.read_bytes())
            known = [(int(start), int(stop)) for start, stop in told["damaged"]]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        segments = self._log.files.segments
        still = []
        for start, stop in known:
            segment = self._log.files.find(start)
            if segment is None or not segments[0].start <= start < stop <= end:
                continue
            item = next(survey([segment], 0, start - segment.start), None)
            entry = item.entry if item is not None else None
            if entry is None or impossible_place(entry.topic, entry.queue_id) is not None:
                still.append((start, stop))
        return still

    @property
    def _damage_path(self) -> Path:
        return self._settings.root / DAMAGE_NAME

    def _remember_damage(self) -> None:
        """Leave a note of the damaged stretches: a clean start does not read the log."""
        if self._log.damaged:
            text = json.dumps({"damaged": self._log.damaged}) + "\n"
            JsonFile(self._damage_path).write(text.encode())
        else:
            self._damage_path.unlink(missing_ok=True)

    def _begin_after_stop(self, marker: dict[str, Any] | None, dispatched_end: int) -> tuple[int, int | None]:
        """Where to read from after a clean stop, and what the log reaches to at least."""
        segments = self._log.files.segments
        first = segments[0].start
        if marker is None or marker["logEnd"] < dispatched_end:
            # Left by RocketMQ, or used by it since.
            index = start_after_stop([segment.start for segment in segments], dispatched_end)
            return segments[index].start, max(dispatched_end, first)
        found = {(q.topic, q.queue_id): (q.max_offset, q.max_physical) for q in self._all_queues()}
        behind = rebuild_start({key: maximum for key, (_, maximum) in _marked_queues(marker).items()}, found)
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
        newest = max(self._all_queues(), key=lambda queue: queue.max_physical, default=None)
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

    def _replay(self, begin: int, trusted_end: int | None) -> int | None:
        """Dispatch records from `begin` on; an earlier offset when it turns out that one has to begin there."""
        settings = self._settings
        segments = self._log.files.segments
        report = self.report
        report.read_from = report.end = begin
        report.records = report.dispatched = 0
        report.damaged.clear()
        self._wrong.clear()
        self._torn.clear()
        self._filled = 0
        unsure: list[tuple[int, int]] = []
        index = max(self._log.files.index_of(begin), 0)
        position = begin - segments[index].start
        usual = UsualRecords(self._queues, self._index, self._delays, check_crc=settings.check_crc_on_recover)
        short_way = not settings.force_verify_prop_crc and not settings.enable_multi_dispatch
        while True:
            if short_way and not unsure:
                passed = usual.run(segments[index], position)
                if passed != position:
                    position = passed
                    report.end = segments[index].start + position
            item = next(
                survey(
                    segments,
                    index,
                    position,
                    trusted_end=trusted_end,
                    check_crc=settings.check_crc_on_recover,
                    force_record_crc=settings.force_verify_prop_crc,
                    newest=usual.newest,
                    doubted_from=self._doubted_from,
                ),
                None,
            )
            if item is None:
                break
            following = item.offset + item.size
            index = max(self._log.files.index_of(following), 0)
            position = following - segments[index].start
            if item.finding is Finding.DAMAGED:
                report.damaged.append((item.offset, following))
                unsure.append(report.damaged[-1])
                continue
            entry = item.entry
            assert entry is not None
            usual.newest = max(usual.newest, entry.store_timestamp)
            if unsure:
                if self._doubted_from is not None and entry.store_timestamp >= self._doubted_from:
                    self._torn += [(start, stop, entry.store_timestamp) for start, stop in unsure]
                unsure.clear()
            report.records += 1
            report.end = following
            earlier = self._dispatch(entry, begin)
            if earlier is not None:
                return earlier
        report.records += usual.records
        report.dispatched += usual.dispatched
        for start, stop in report.damaged:
            report.notes.append(
                f"bytes {start} to {stop} of the commit log hold no intact record; they are passed over"
            )
        report.damaged = sorted(report.damaged + self._wrong)
        if self._index is not None:
            self._index.write_header()
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
                # No other topic can have such records, whatever has become of the topic's settings.
                self._kinds.batch_topics.add(entry.topic)
            queue = self.queue(entry.topic, entry.queue_id)
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
        if self._index is not None and kind != ROLLBACK:
            self._index.put(
                entry.topic,
                get_property(entry.properties, names.UNIQ_KEY) or "",
                get_property(entry.properties, names.KEYS) or "",
                entry.offset,
                entry.store_timestamp,
            )
        return None

    def _dispatch_further(self, entry: LogEntry, begin: int) -> int | None:
        """Units of a record in the further queues it names (store.md §7); as `_dispatch`."""
        for topic, queue_id, offset in stored_places(entry.topic, entry.queue_id, entry.properties):
            if impossible_place(topic, queue_id) is not None or topic in self._kinds.batch_topics:
                continue
            queue = self.queue(topic, queue_id)
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
        """Bytes of log in which records of a queue may have stood that are no more."""
        first = self._log.min_offset
        lost = self._filled + sum(stop - start for start, stop in self.report.damaged + self._wrong)
        return lost + (first if queue.max_physical < first else 0)

    def _is_wrong(self, entry: LogEntry, queue: ConsumeQueue, count: int) -> bool:
        """Whether the record's queue offset, the first of `count`, cannot be what was written."""
        before = self._lost_before(queue)
        following = self._next_in_queue(entry)
        if queue.batched:
            # Messages of an inner batch are smaller than records, and it takes many numbers at once.
            before = before * OVERHEAD // BATCH_ENTRY_BYTES
            following = None if following is None else following - count + 1
        return judge_offset(entry.queue_offset, queue.max_offset, following, before) is OffsetVerdict.WRONG

    def _next_in_queue(self, entry: LogEntry) -> int | None:
        """Queue offset that the next record of the same queue states."""
        segments = self._log.files.segments
        index = self._log.files.index_of(entry.offset)
        position = entry.offset + entry.size - segments[index].start
        for item in islice(survey(segments, index, position), _LOOK_AHEAD):
            other = item.entry
            if (
                other is not None
                and (other.topic, other.queue_id) == (entry.topic, entry.queue_id)
                and other.sys_flag & TRANSACTION_BITS not in {PREPARED, ROLLBACK}
            ):
                return other.queue_offset
        return None

    def _leave_out(self, entry: LogEntry, reason: str) -> None:
        self._wrong.append((entry.offset, entry.offset + entry.size))
        self.report.notes.append(
            f"the record at {entry.offset} of the commit log, {entry.topic!r}/{entry.queue_id}, is left out: {reason}"
        )

    # the note a clean stop leaves

    def _read_marker(self) -> dict[str, Any] | None:
        try:
            marker = json.loads(self._settings.root.joinpath(MARKER_NAME).read_bytes())
            _marked_queues(marker)
            return {**marker, "logEnd": int(marker["logEnd"]), "indexEnd": int(marker["indexEnd"])}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _drop_marker(self) -> None:
        self._settings.root.joinpath(MARKER_NAME).unlink(missing_ok=True)


def write_marker(settings: StoreSettings, log_end: int, queues: QueueTable, index: Index | None) -> None:
    """Leave a note of what a clean stop left, so that the next start can tell what has gone missing since."""
    table: dict[str, dict[str, list[int]]] = {}
    for topic, of_topic in queues.items():
        for queue_id, queue in of_topic.items():
            if queue.files.segments:
                first = queue.files.segments[0].start // queue.unit_size
                table.setdefault(topic, {})[str(queue_id)] = [first, queue.max_offset]
    marker = {"logEnd": log_end, "indexEnd": index.end_offset if index is not None else -1, "queues": table}
    settings.root.joinpath(MARKER_NAME).write_text(json.dumps(marker) + "\n")


def merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same places, in order, without repeats and overlaps."""
    result: list[tuple[int, int]] = []
    for start, stop in sorted(stretches):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result


def impossible_place(topic: str, queue_id: int) -> str | None:
    """Why no queue can have this topic and number; None when one can."""
    if queue_id < 0:
        return f"queue {queue_id} cannot be"
    length = len(topic.encode("utf-8", "surrogatepass"))
    if not length or length > _LONGEST_TOPIC or "/" in topic or "\0" in topic or topic in {".", ".."}:
        return f"no folder can have the name {topic!r}"
    return None


def _marked_queues(marker: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int]]:
    """First offset in the files and max offset of each queue at the stop."""
    return {
        (topic, int(queue_id)): (int(first), int(maximum))
        for topic, of_topic in marker["queues"].items()
        for queue_id, (first, maximum) in of_topic.items()
    }


def _segment_files(directory: Path) -> list[tuple[int, Path, int]]:
    """Start offset, path and length of the segment files in a directory; everything else is left alone."""
    if not directory.is_dir():
        return []
    return [
        (int(path.name), path, path.stat().st_size)
        for path in directory.iterdir()
        if len(path.name) == 20 and path.name.isascii() and path.name.isdigit() and path.is_file()
    ]


def _head_of(segment: Segment) -> SegmentHead:
    view = segment.view
    _, magic = _HEAD.unpack_from(view, 0)
    timestamp = 0
    if magic:
        (sys_flag,) = struct.unpack_from(">i", view, 36)
        (timestamp,) = struct.unpack_from(">q", view, 68 if sys_flag & 0x10 else 56)
    return SegmentHead(segment.start, magic, timestamp)
