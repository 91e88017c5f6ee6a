"""A store folder as queues with bounds: what can be read, from where, found by time and by key.

Needs no Spark and no broker, and neither locks nor writes. Beside a running broker only that is taken as there
which the broker has put into a queue and whose record is in its place in the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tianzhou.data_folder import stores_in, which_of
from tianzhou.errors import StoreUnreadable
from tianzhou.model import MessageQueue
from tianzhou.records.walk import LogEntry, read_item
from tianzhou.spark.source.offsets import Positions, QueueBounds
from tianzhou.spark.store.log_tail import undispatched
from tianzhou.spark.store.mapped_files import MappedFiles, MappedQueueFiles, Units
from tianzhou.store.files.folder import StoreFolder, is_held
from tianzhou.store.index.indexfile import ENTRY, ENTRY_SIZE, HEADER_SIZE, SLOT
from tianzhou.store.offline.files import ReadOnlySegment
from tianzhou.store.offline.index_files import read_index_headers, slots_of
from tianzhou.store.offline.scan import StoreScan, log_directories
from tianzhou.store.queues.multi_dispatch import is_light, stored_places
from tianzhou.wire.hashing import index_hash

UNNAMED: Final = "store"
"""Stands for the broker's name in positions and messages when no name is set: a store does not say whose it is."""
_BACK: Final = 64
_BLANKS: Final = 4096
_PLAIN, _BATCHED = "consumequeue", "batchconsumequeue"


def place_text(start: int, physical: int) -> str:
    """A commit-log offset, for messages.

    Args:
        start: where its file begins.
        physical: the offset.
    """
    return f"commit-log file {start:020d}, position {physical - start}"


def root_of(folder: Path) -> Path:
    """The store of a folder: the folder itself, or what `tianzhou serve --data` keeps in it.

    Raises:
        StoreUnreadable: there is none, or there are several.
    """
    if not folder.is_dir():
        raise StoreUnreadable(f"{folder}: no such folder; name a storePathRootDir or a --data folder")
    stores = stores_in(folder)
    if len(stores) > 1:
        raise StoreUnreadable(which_of(folder, stores))
    root = stores[0]
    if not (root / "commitlog").is_dir() and not (root / "checkpoint").exists():
        raise StoreUnreadable(
            f"{folder}: is no store, it has neither commitlog/ nor checkpoint; "
            "name a storePathRootDir or a --data folder"
        )
    return root


class StoreFiles:
    """The queues of a store folder.

    Args:
        root: the store (see `root_of`).
        commit_logs: directories of commit-log files; none for `root/commitlog`.
        broker_name: whose store it is, "" when that is not known.
        more: units that queues lack, by queue: first slot and bytes; None to find them in the log, as a broker does
            that starts on the store after a crash.
    """

    def __init__(
        self,
        root: Path,
        commit_logs: Sequence[Path] = (),
        broker_name: str = "",
        more: Mapping[tuple[str, int], tuple[int, bytes]] | None = None,
    ) -> None:
        self.root = root
        self.broker_name = broker_name
        self._commit_logs = list(commit_logs) or log_directories(root)
        self.log = MappedFiles(self._commit_logs)
        self._queues: dict[tuple[str, int], MappedQueueFiles] = {}
        self.more = dict(more) if more is not None else {}
        if more is None and not is_held(root) and not StoreFolder(root).stopped_cleanly:
            self.more = undispatched(self, StoreScan(root, self._commit_logs))
            self._queues.clear()

    # --- which queues

    def topics(self) -> frozenset[str]:
        """All topics that have a queue, those of the system included."""
        return frozenset(topic for topic, _ in self.places(None))

    def user_topics(self) -> frozenset[str]:
        """The topics that are not the system's own."""
        # Comes with the store that serves, which a read of topics that are named does without.
        from tianzhou.store.offline.import_export import visible_topics

        return visible_topics(StoreScan(self.root)) & self.topics()

    def queues(self, topics: Iterable[str]) -> list[MessageQueue]:
        """The queues of some topics, sorted."""
        name = self.broker_name or UNNAMED
        return [MessageQueue(topic, name, number) for topic, number in sorted(set(self.places(topics)))]

    def places(self, topics: Iterable[str] | None) -> Iterator[tuple[str, int]]:
        """Topic and number of the queues of some topics, or of all; some come twice."""
        wanted = None if topics is None else set(topics)
        for family in (_PLAIN, _BATCHED):
            folder = self.root / family
            present = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
            for topic in present if wanted is None else wanted.intersection(present):
                for path in (folder / topic).iterdir():
                    if path.name.isascii() and path.name.isdigit():
                        yield topic, int(path.name)
        yield from (place for place in self.more if wanted is None or place[0] in wanted)

    def files(self, topic: str, queue_id: int) -> MappedQueueFiles:
        """The files of a queue, as they were when last looked at."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            batched = self.is_batched(topic)
            slot, more = self.more.get((topic, queue_id), (0, b""))
            directory = self.root / (_BATCHED if batched else _PLAIN) / topic / str(queue_id)
            found = self._queues[topic, queue_id] = MappedQueueFiles(directory, batched, more)
            if more:
                found.append(slot)
        return found

    def is_batched(self, topic: str) -> bool:
        """Whether a topic's queues are of type BatchCQ, as far as there are any."""
        return (self.root / _BATCHED / topic).is_dir()

    def look(self) -> None:
        """Take notice of what was added and removed since, also of a broker that has come back after a crash."""
        self.log.look()
        for files in self._queues.values():
            files.look()
        stopped = bool(self.more) and not is_held(self.root) and StoreFolder(self.root).stopped_cleanly
        for place in [place for place in self.more if stopped or self._caught_up(*place)]:
            del self.more[place]
            self.files(*place).drop_more()

    def _caught_up(self, topic: str, number: int) -> bool:
        """Whether a queue's files have all the units that they lacked."""
        files = self.files(topic, number)
        if files.batched != self.is_batched(topic):  # of which kind the topic is was not to be seen
            del self._queues[topic, number]
            files = self.files(topic, number)
        queue = MessageQueue(topic, self.broker_name or UNNAMED, number)
        return self.proved(queue, files, files.written()) >= files.end(self.more[topic, number][0])

    # --- what of them can be read

    def slots(self, queue: MessageQueue) -> tuple[int, int]:
        """The first slot whose record the log has, and the one behind the last that is proved."""
        files = self.files(queue.topic, queue.queue_id)
        more = self.more.get((queue.topic, queue.queue_id))
        end = more[0] if more is not None else self.proved(queue, files, files.written())
        begin = self._behind_blanks(files, self.first(files, files.begin, end, self.log.begin), end)
        return begin, files.end(end) if more is not None else end

    def proved(self, queue: MessageQueue, files: MappedQueueFiles, end: int) -> int:
        """The slot behind the last unit up to `end` whose record is in its place, or was once."""
        while end > files.begin:
            low = max(files.begin, end - _BACK)
            for units in reversed(list(files.units(low, end, _BACK))):
                known = units.blank | (units.physical < self.log.begin)
                for row in range(len(known) - 1, -1, -1):  # the very last one will do, nearly always
                    if known[row] or self.place_problem(queue, units.where(slice(row, row + 1))) is None:
                        return end - (len(known) - 1 - row)
                end -= len(known)
            end = min(end, low)
        return files.begin

    def place_problem(self, queue: MessageQueue, unit: Units) -> str | None:
        """Why one unit has no record of the queue in its place; None when it has."""
        physical, size = int(unit.physical[0]), int(unit.size[0])
        if size <= 0:  # made where the log has nothing, or never written
            return "neither its queue nor the log has anything of it"
        index = int(self.log.index_of(unit.physical)[0])
        start = int(self.log.starts[index]) if index >= 0 else -1
        mapped = self.log.get(start) if index >= 0 else None
        if mapped is None or physical >= start + len(mapped.raw):
            if physical < self.log.begin:
                return f"the commit log now begins at {self.log.begin}"
            return f"no file of the commit log holds position {physical}"
        where = place_text(start, physical)
        item = read_item(mapped.view, physical - start, start, check_crc=False)
        if item.entry is None:
            return f"{where}: {item.reason or 'no record'}"
        entry = item.entry
        if entry.size != size:
            return f"{where}: the record has {entry.size} bytes, the queue says {size}"
        own = (entry.topic, entry.queue_id, entry.queue_offset)
        wanted = (queue.topic, queue.queue_id, int(unit.base[0]))
        if own != wanted and wanted not in stored_places(entry.topic, entry.queue_id, entry.properties):
            return f"{where}: the record there is offset {own[2]} of {own[0]}/{own[1]}"
        return None

    def first(self, files: MappedQueueFiles, begin: int, end: int, physical: int) -> int:
        """The first slot of a range whose record lies at a commit-log offset or behind it; `end` without one."""

        def reaches(slot: int) -> bool:
            unit = files.at(slot)
            return unit is not None and bool(unit.physical[0] >= physical)

        return begin + bisect_left(range(begin, end), True, key=reaches)

    def _behind_blanks(self, files: MappedQueueFiles, begin: int, end: int) -> int:
        """Return the first slot of a range whose unit is not blank; `end` without such a unit."""
        if files.batched:
            return begin
        for units in files.units(begin, end, _BLANKS):
            written = np.flatnonzero(~units.blank)
            if len(written):
                return int(units.base[written[0]])
        return end

    def slot_of(self, queue: MessageQueue, offset: int, begin: int, end: int) -> int:
        """The first slot of a range whose unit ends behind a queue offset; `end` without one."""
        files = self.files(queue.topic, queue.queue_id)
        if not files.batched:
            return min(max(offset, begin), end)

        def ends_behind(slot: int) -> bool:
            unit = files.at(slot)
            return unit is not None and bool(unit.base[0] + unit.count[0] > offset)

        return begin + bisect_left(range(begin, end), True, key=ends_behind)

    def offsets_of(self, queue: MessageQueue, begin: int, end: int) -> tuple[int, int]:
        """The queue offsets that a range of slots covers, which is not empty."""
        files = self.files(queue.topic, queue.queue_id)
        first, last = files.at(begin), files.at(end - 1)
        low = begin if first is None else int(first.base[0])
        return low, low if last is None else int(last.base[0] + last.count[0])

    def bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueBounds]:
        """First and next offset of each queue."""
        result = {}
        for queue in queues:
            begin, end = self.slots(queue)
            files = self.files(queue.topic, queue.queue_id)
            if not files.batched:
                result[queue] = QueueBounds(begin, end)
                continue
            last = files.at(end - 1) if end > files.begin else None
            maximum = 0 if last is None else int(last.base[0] + last.count[0])
            first = files.at(begin) if begin < end else None
            result[queue] = QueueBounds(maximum if first is None else int(first.base[0]), maximum)
        return result

    # --- by time and key

    def offsets_by_time(self, queues: Iterable[MessageQueue], timestamp_ms: int) -> Positions:
        """The first offset of each queue stored at a time or later; its end when all are older."""
        result = {}
        for queue, limits in self.bounds(queues).items():
            files = self.files(queue.topic, queue.queue_id)
            low, end = self.slots(queue)
            low = self.slot_by_time(files, low, end, timestamp_ms)
            unit = files.at(low) if low < end else None
            result[queue] = limits.maximum if unit is None else int(unit.base[0])
        return result

    def store_times(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Store times of the messages at one offset of each queue, ms; queues without a message there are left out."""
        result = {}
        for queue, offset in places.items():
            files = self.files(queue.topic, queue.queue_id)
            begin, end = self.slots(queue)
            slot = self.slot_of(queue, offset, begin, end)
            unit = files.at(slot) if slot < end else None
            at_ms = self.time(files, slot) if unit is not None and int(unit.base[0]) <= offset else None
            if at_ms is not None:
                result[queue] = at_ms
        return result

    def slot_by_time(self, files: MappedQueueFiles, low: int, high: int, timestamp_ms: int) -> int:
        """The first slot of a range whose message was stored at a time or later; its end without one."""
        while low < high:
            middle = (low + high) // 2
            # What has no time, a blank unit or a damaged record, is passed over.
            at = next((slot for slot in range(middle, high) if self.time(files, slot) is not None), high)
            if at < high and (self.time(files, at) or 0) < timestamp_ms:
                low = at + 1
            else:
                high = middle
        return low

    def time(self, files: MappedQueueFiles, slot: int) -> int | None:
        """When the message of a slot was stored, ms; None when it has no intact record."""
        unit = files.at(slot)
        if unit is None or unit.blank[0]:
            return None
        entry = self._entry(int(unit.physical[0]))
        return None if entry is None else entry.store_timestamp

    def _entry(self, physical: int) -> LogEntry | None:
        """The record at a commit-log offset."""
        index = int(self.log.index_of(np.array([physical]))[0])
        start = int(self.log.starts[index]) if index >= 0 else 0
        mapped = self.log.get(start) if index >= 0 else None
        if mapped is None or physical - start >= len(mapped.raw):
            return None
        return read_item(mapped.view, physical - start, start, check_crc=False).entry

    def find(
        self, queue: MessageQueue, hits: Sequence[LogEntry], indexed: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Ranges of slots of a queue in which messages with a key may be.

        Args:
            queue: where.
            hits: what the index has of the key, see `lookup`.
            indexed: stretches of the log of which the index has everything.
        """
        begin, end = self.slots(queue)
        if is_light(queue.topic):  # the index knows a record under its own topic only
            return [(begin, end)]
        files, ranges, low = self.files(queue.topic, queue.queue_id), [], begin
        for first, last in [*sorted(indexed), (1 << 63, 1 << 63)]:
            high = self.first(files, low, end, first)
            if low < high:
                ranges.append((low, high))
            low = max(low, self.first(files, high, end, last))
        slots = {self.slot_of(queue, hit.queue_offset, begin, end) for hit in hits if hit.queue_id == queue.queue_id}
        alone = [slot for slot in slots if slot < end and not any(low <= slot < high for low, high in ranges)]
        return sorted([*ranges, *((slot, slot + 1) for slot in alone)])

    def lookup(self, topic: str, key: str) -> tuple[list[LogEntry], list[tuple[int, int]]]:
        """What the index says about a key (store.md §8).

        Returns:
            The topic's records with the key's hash, and the stretches of the log of which the index has everything:
            an index may begin later than the log, and files of it may be gone or not understood.
        """
        wanted = index_hash(topic, key)
        hits: list[LogEntry] = []
        indexed = []
        for header in read_index_headers(self.root):
            if header.count <= 1:
                continue
            file = ReadOnlySegment(header.path)
            slots = slots_of(header, file)
            if slots is None:  # not understood
                continue
            indexed.append((header.begin_offset, header.end_offset + 1))
            entries = HEADER_SIZE + 4 * slots
            # Beside a running broker there may be more entries than the header says.
            most = (len(file.view) - entries) // ENTRY_SIZE
            number = SLOT.unpack_from(file.view, HEADER_SIZE + 4 * (wanted % slots))[0]
            for _ in range(most):
                if not 0 < number < most:
                    break
                entry_hash, physical, _, previous = ENTRY.unpack_from(file.view, entries + ENTRY_SIZE * number)
                entry = self._entry(physical) if entry_hash == wanted else None
                if entry is not None and entry.topic == topic:
                    hits.append(entry)
                number = previous if previous != number else 0
        return hits, indexed
