"""A store folder as queues with bounds, and look-ups of messages by time and by key.

This module needs neither Spark nor a broker. It does not lock or write files. Beside a running broker a message counts
only if the broker has put it into its queue and its record is in its place in the log.
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
"""Name of the broker in positions and messages if none is given. A store's files do not contain the broker's name."""
_BACK: Final = 64
_BLANKS: Final = 4096
_PLAIN, _BATCHED = "consumequeue", "batchconsumequeue"


def place_text(start: int, physical: int) -> str:
    """Return a commit log offset as text for messages.

    Args:
        start: the beginning of its file.
        physical: the offset.
    """
    return f"commit-log file {start:020d}, position {physical - start}"


def root_of(folder: Path) -> Path:
    """Return the store of a folder: the folder itself, or the store inside a folder of `tianzhou serve --data`.

    Raises:
        StoreUnreadable: there is no store, or there are several.
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
        commit_logs: folders of commit log files; empty for `root/commitlog`.
        broker_name: name of the store's broker, "" if unknown.
        more: units that queues lack, by queue: the first slot and the bytes. None to find them in the log of a store
            that was not stopped cleanly, as a broker does when it starts after a crash.
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

    # --- the queues

    def topics(self) -> frozenset[str]:
        """Return all topics that have a queue, including system topics."""
        return frozenset(topic for topic, _ in self.places(None))

    def user_topics(self) -> frozenset[str]:
        """Return the topics that are not system topics."""
        # This module imports the whole store. A read of topics given by name does without it.
        from tianzhou.store.offline.import_export import visible_topics

        return visible_topics(StoreScan(self.root)) & self.topics()

    def queues(self, topics: Iterable[str]) -> list[MessageQueue]:
        """Return the queues of some topics, sorted."""
        name = self.broker_name or UNNAMED
        return [MessageQueue(topic, name, number) for topic, number in sorted(set(self.places(topics)))]

    def places(self, topics: Iterable[str] | None) -> Iterator[tuple[str, int]]:
        """Return topic and number of the queues of some topics, or of all. Some are returned twice."""
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
        """Return the files of a queue, as of their last listing."""
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
        """Whether a topic's queues are of type BatchCQ. False for a topic without queues."""
        return (self.root / _BATCHED / topic).is_dir()

    def look(self) -> None:
        """List the files again. Appended units are dropped if a broker has restarted after a crash and written them."""
        self.log.look()
        for files in self._queues.values():
            files.look()
        stopped = bool(self.more) and not is_held(self.root) and StoreFolder(self.root).stopped_cleanly
        for place in [place for place in self.more if stopped or self._caught_up(*place)]:
            del self.more[place]
            self.files(*place).drop_more()

    def _caught_up(self, topic: str, number: int) -> bool:
        """Whether a queue's files now contain all units that they lacked."""
        files = self.files(topic, number)
        if files.batched != self.is_batched(topic):  # The topic had no folder yet, so its type was unknown.
            del self._queues[topic, number]
            files = self.files(topic, number)
        queue = MessageQueue(topic, self.broker_name or UNNAMED, number)
        return self.proved(queue, files, files.written()) >= files.end(self.more[topic, number][0])

    # --- the readable part of a queue

    def slots(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the first slot whose record is in the log, and the slot after the last proved unit."""
        files = self.files(queue.topic, queue.queue_id)
        more = self.more.get((queue.topic, queue.queue_id))
        end = more[0] if more is not None else self.proved(queue, files, files.written())
        begin = self._behind_blanks(files, self.first(files, files.begin, end, self.log.begin), end)
        return begin, files.end(end) if more is not None else end

    def proved(self, queue: MessageQueue, files: MappedQueueFiles, end: int) -> int:
        """Return the slot after the last unit up to `end` whose record is in its place or was deleted from the log."""
        while end > files.begin:
            low = max(files.begin, end - _BACK)
            for units in reversed(list(files.units(low, end, _BACK))):
                known = units.blank | (units.physical < self.log.begin)
                for row in range(len(known) - 1, -1, -1):  # Usually the very last unit is proved.
                    if known[row] or self.place_problem(queue, units.where(slice(row, row + 1))) is None:
                        return end - (len(known) - 1 - row)
                end -= len(known)
            end = min(end, low)
        return files.begin

    def place_problem(self, queue: MessageQueue, unit: Units) -> str | None:
        """Return the reason why the record of a unit is not in its place; None if it is."""
        physical, size = int(unit.physical[0]), int(unit.size[0])
        if size <= 0:  # A placeholder for lost records, or never written.
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
        """Return the first slot of a range whose commit log offset is `physical` or more; `end` without such a slot."""

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
        """Return the first slot of a range whose unit ends after a queue offset; `end` without such a slot."""
        files = self.files(queue.topic, queue.queue_id)
        if not files.batched:
            return min(max(offset, begin), end)

        def ends_behind(slot: int) -> bool:
            unit = files.at(slot)
            return unit is not None and bool(unit.base[0] + unit.count[0] > offset)

        return begin + bisect_left(range(begin, end), True, key=ends_behind)

    def offsets_of(self, queue: MessageQueue, begin: int, end: int) -> tuple[int, int]:
        """Return the queue offsets of a non-empty range of slots."""
        files = self.files(queue.topic, queue.queue_id)
        first, last = files.at(begin), files.at(end - 1)
        low = begin if first is None else int(first.base[0])
        return low, low if last is None else int(last.base[0] + last.count[0])

    def bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueBounds]:
        """Return first and next offset of each queue."""
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

    # --- look-ups by time and key

    def offsets_by_time(self, queues: Iterable[MessageQueue], timestamp_ms: int) -> Positions:
        """Return the first offset of each queue stored at a time or later.

        It is the queue's end if all messages are older.
        """
        result = {}
        for queue, limits in self.bounds(queues).items():
            files = self.files(queue.topic, queue.queue_id)
            low, end = self.slots(queue)
            low = self.slot_by_time(files, low, end, timestamp_ms)
            unit = files.at(low) if low < end else None
            result[queue] = limits.maximum if unit is None else int(unit.base[0])
        return result

    def store_times(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return store times of the messages at one offset of each queue, ms since the epoch.

        Queues without a message at their offset are left out.
        """
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
        """Return the first slot of a range whose message was stored at a time or later; `high` without such a slot."""
        while low < high:
            middle = (low + high) // 2
            # Skip blank units and damaged records, which have no time.
            at = next((slot for slot in range(middle, high) if self.time(files, slot) is not None), high)
            if at < high and (self.time(files, at) or 0) < timestamp_ms:
                low = at + 1
            else:
                high = middle
        return low

    def time(self, files: MappedQueueFiles, slot: int) -> int | None:
        """Return the store time in ms of a slot's message; None if it has no intact record."""
        unit = files.at(slot)
        if unit is None or unit.blank[0]:
            return None
        entry = self._entry(int(unit.physical[0]))
        return None if entry is None else entry.store_timestamp

    def _entry(self, physical: int) -> LogEntry | None:
        """Return the record at a commit log offset."""
        index = int(self.log.index_of(np.array([physical]))[0])
        start = int(self.log.starts[index]) if index >= 0 else 0
        mapped = self.log.get(start) if index >= 0 else None
        if mapped is None or physical - start >= len(mapped.raw):
            return None
        return read_item(mapped.view, physical - start, start, check_crc=False).entry

    def find(
        self, queue: MessageQueue, hits: Sequence[LogEntry], indexed: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Return ranges of slots of a queue in which messages with a key may be.

        Args:
            queue: the queue.
            hits: the index's records for the key, see `lookup`.
            indexed: ranges of the log that the index covers completely.
        """
        begin, end = self.slots(queue)
        if is_light(queue.topic):  # The index contains a record under its own topic only.
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
        """Look up a key in the index (store.md §8).

        Returns:
            The topic's records with the key's hash, and the ranges of the log that the index covers completely. The
                index may begin later than the log, and some of its files may be missing or unreadable.
        """
        wanted = index_hash(topic, key)
        hits: list[LogEntry] = []
        indexed = []
        for header in read_index_headers(self.root):
            if header.count <= 1:
                continue
            file = ReadOnlySegment(header.path)
            slots = slots_of(header, file)
            if slots is None:  # A file of unknown layout.
                continue
            indexed.append((header.begin_offset, header.end_offset + 1))
            entries = HEADER_SIZE + 4 * slots
            # Beside a running broker the file may contain more entries than its header says.
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
