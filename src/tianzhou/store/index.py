"""Index files: from a hash of topic and key to commit-log offsets (store.md §8)."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from tianzhou.errors import StoreUnreadable
from tianzhou.store.retention import expired_index_files
from tianzhou.store.segments import RetiredSegment, Segment, make_directory, sync_directory
from tianzhou.store.settings import StoreSettings
from tianzhou.store.stepwise import Steps, at_once
from tianzhou.wire.hashing import index_hash

logger = logging.getLogger(__name__)

HEADER: Final = struct.Struct(">qqqqii")
HEADER_SIZE: Final = 40
SLOT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">iqii")
ENTRY_SIZE: Final = 20
_MAX_DIFF: Final = 0x7FFFFFFF
_PAGE_BITS: Final = 12
_ENTRY_STEP: Final = 64 << 10


class IndexFile:
    """One index file: header, slots, entries.

    The header in the file is brought up to date by `write_header`, not by each insert.

    Args:
        segment: the mapped file.
        slots: number of hash slots.
        capacity: number of entries, of which number 0 is never used.
    """

    __slots__ = (
        "_entries",
        "_map",
        "_reserved",
        "_segment",
        "_touched",
        "begin_offset",
        "begin_timestamp",
        "capacity",
        "count",
        "end_offset",
        "end_timestamp",
        "slot_count",
        "slots",
    )

    def __init__(self, segment: Segment, slots: int, capacity: int) -> None:
        self.begin_timestamp: int
        self.end_timestamp: int
        self.begin_offset: int
        self.end_offset: int
        self.slot_count: int
        self.count: int
        self._segment = segment
        self._map = segment.map
        self.slots = slots
        self.capacity = capacity
        self._entries = HEADER_SIZE + 4 * slots
        # Which pages of the slot table have been given disk space, and up to where the entries have.
        self._touched = bytearray((self._entries >> _PAGE_BITS) + 1)
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.slot_count,
            self.count,
        ) = HEADER.unpack_from(self._map, 0)
        self.count = max(self.count, 1)
        self._reserved = self._entries + ENTRY_SIZE * self.count

    @property
    def path(self) -> Path:
        """The file."""
        return self._segment.path

    @property
    def full(self) -> bool:
        """Whether no entry fits any more."""
        return self.count >= self.capacity

    @property
    def plausible(self) -> bool:
        """Whether the header can be what was written."""
        return (
            self.count <= self.capacity
            and 0 <= self.slot_count <= self.slots
            and 0 <= self.begin_offset <= self.end_offset
            and self.begin_timestamp >= 0
            and self.end_timestamp >= 0
        )

    @property
    def untouched(self) -> bool:
        """Whether nothing was ever written into the file."""
        return self.count <= 1 and self.end_timestamp == 0 and not any(self._map[self._entries : self._entries + 40])

    def preset(self, previous: IndexFile) -> None:
        """Begin where the previous file ends (store.md §8.3)."""
        self.begin_timestamp = self.end_timestamp = previous.end_timestamp
        self.begin_offset = self.end_offset = previous.end_offset
        self.write_header()

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> None:
        """Add an entry; the file must not be full (store.md §8.3).

        Raises:
            OSError: the disk is full.
        """
        memory = self._map
        count = self.count
        slot_at = HEADER_SIZE + 4 * (key_hash % self.slots)
        if not self._touched[slot_at >> _PAGE_BITS]:
            self._touch(slot_at)
        previous = SLOT.unpack_from(memory, slot_at)[0]
        if previous <= 0 or previous > count:
            previous = 0
            self.slot_count += 1
        begin = self.begin_timestamp
        if begin <= 0:
            difference = 0
        else:
            difference = (store_timestamp - begin) // 1000
            if not 0 <= difference <= _MAX_DIFF:
                difference = 0 if difference < 0 else _MAX_DIFF
        entry_at = self._entries + ENTRY_SIZE * count
        if entry_at + ENTRY_SIZE > self._reserved:
            self._reserve(entry_at)
        ENTRY.pack_into(memory, entry_at, key_hash, physical_offset, difference, previous)
        SLOT.pack_into(memory, slot_at, count)
        if count <= 1:
            self.begin_offset = physical_offset
            self.begin_timestamp = store_timestamp
        self.count = count + 1
        self.end_offset = physical_offset
        self.end_timestamp = store_timestamp

    def _touch(self, slot_at: int) -> None:
        self._segment.reserve_range(slot_at, slot_at + 4)
        self._touched[slot_at >> _PAGE_BITS] = 1

    def _reserve(self, entry_at: int) -> None:
        upto = min(self._segment.size, entry_at + (_ENTRY_STEP if self.count > 1000 else 4096))
        self._segment.reserve_range(entry_at, upto)
        self._reserved = upto

    def write_header(self) -> None:
        """Make the header in the file say what was inserted."""
        HEADER.pack_into(
            self._map,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.slot_count,
            self.count,
        )

    def repair(self, store_time: Callable[[int], int]) -> None:
        """Take in entries that were inserted after the header was written last.

        The process may have died anywhere: in an entry, between an entry and its slot, in the header.

        Args:
            store_time: of the record at a commit-log offset, ms; -1 when no record begins there.
        """
        number = self.count
        last = -1
        if number > 1:
            last = ENTRY.unpack_from(self._map, self._entries + ENTRY_SIZE * (number - 1))[1]
        while number < self.capacity:
            entry_at = self._entries + ENTRY_SIZE * number
            key_hash, offset, _, previous = ENTRY.unpack_from(self._map, entry_at)
            newest = SLOT.unpack_from(self._map, HEADER_SIZE + 4 * (key_hash % self.slots))[0]
            if key_hash < 0 or newest < number or offset < last or store_time(offset) < 0:
                # Without its slot an entry was not completed, and its record will be indexed again.
                ENTRY.pack_into(self._map, entry_at, 0, 0, 0, 0)
                break
            self.slot_count += previous == 0
            if number == 1:
                self.begin_offset, self.begin_timestamp = offset, store_time(offset)
            last = offset
            number += 1
        self.count = number
        if number > 1:
            self.end_offset, self.end_timestamp = last, max(store_time(last), self.begin_timestamp)
        self.write_header()

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether the file's time range and [begin, end] have a moment in common."""
        return self.begin_timestamp <= end and self.end_timestamp >= begin

    def find_steps(self, key_hash: int, limit: int, begin: int, end: int, found: list[int]) -> Steps[None]:
        """Collect offsets of entries with the hash and a time in [begin, end], newest first, up to `limit`."""
        if self.count <= 1:
            return
        segment = self._segment
        with memoryview(self._map) as memory:  # keeps the map from being closed meanwhile
            at = HEADER_SIZE + 4 * (key_hash % self.slots)
            yield segment, at, at + SLOT.size
            number = SLOT.unpack_from(memory, at)[0]
            if number <= 0 or number > self.count:
                return
            while len(found) < limit:
                at = self._entries + ENTRY_SIZE * number
                yield segment, at, at + ENTRY_SIZE
                entry_hash, offset, difference, previous = ENTRY.unpack_from(memory, at)
                if difference < 0:
                    return
                when = self.begin_timestamp + difference * 1000
                if entry_hash == key_hash and begin <= when <= end and offset not in found:
                    found.append(offset)
                if previous <= 0 or previous > self.count or previous == number or when < begin:
                    return
                number = previous

    def sync(self) -> None:
        """Bring the file to the disk; may run on another thread."""
        self._segment.sync(0, self._entries)
        self._segment.sync(self._entries, min(self._segment.size, self._entries + ENTRY_SIZE * self.count))

    def close(self) -> None:
        """Write the header and let go of the map."""
        self.write_header()
        self._segment.close()

    def retire(self) -> RetiredSegment:
        """Let go of the file; removing it is left to the caller."""
        del self._map
        return self._segment.retire()

    def delete(self) -> None:
        """Remove the file."""
        self._segment.delete()


class Index:
    """All index files of a store, and which of them takes new entries.

    Args:
        settings: sizes.
    """

    __slots__ = ("_cut_at", "_directory", "_full", "_newest", "_settings", "files")

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._directory = settings.root / "index"
        self.files: list[IndexFile] = []
        self._newest: IndexFile | None = None
        self._full: list[IndexFile] = []
        # The record whose entries may be split between a file that is here and one that was deleted.
        self._cut_at = -1

    def load(
        self, *, drop_after: int | None, store_time: Callable[[int], int] | None, synced_until: int = 0
    ) -> list[str]:
        """Open the files; names that are no numbers are left alone (store.md §8.5).

        Args:
            drop_after: after an abnormal exit, the checkpoint's index timestamp: a file that ends later was not
                completely written and is deleted. None when everything that was written is there.
            store_time: after an abnormal exit that lost nothing, tells the newest file's repair the store time of
                the record at an offset, -1 without one.
            synced_until: the checkpoint's index timestamp.

        Returns:
            What was deleted, for the log.

        Raises:
            StoreUnreadable: a file has another length than the settings say.
        """
        notes = []
        deleted = False
        size = self._settings.index_file_size
        paths = sorted(self._directory.iterdir()) if self._directory.is_dir() else []
        sizes = {path.stat().st_size for path in paths if path.name.isdigit() and path.is_file()} - {0}
        for path in paths:
            if not (path.name.isascii() and path.name.isdigit()) or not path.is_file():
                continue
            length = path.stat().st_size
            if length == 0:
                path.unlink()
                deleted = True
                notes.append(f"empty index file {path} deleted")
                continue
            if length != size and sizes != {length}:
                path.unlink()
                deleted = True
                notes.append(f"index file {path} is {length} bytes long, not {size}; deleted, to be made anew")
                continue
            if length != size:
                raise StoreUnreadable(
                    f"{path} is {length} bytes long, not the {size} of maxHashSlotNum="
                    f"{self._settings.max_hash_slot_num} and maxIndexNum={self._settings.max_index_num}; set the "
                    "two keys the folder was written with, or delete the folder `index`: it is made anew from the log"
                )
            file = IndexFile(Segment(path, 0, size), self._settings.max_hash_slot_num, self._settings.max_index_num)
            if not file.plausible:
                file.delete()
                deleted = True
                notes.append(f"index file {path} does not say how much is in it; deleted, to be made anew from the log")
                continue
            # One that is not full was never brought to the disk as a whole: its slots may be newer than its entries.
            if drop_after is not None and (
                not file.full
                or file.end_timestamp > drop_after
                or (file.end_timestamp == drop_after and self.files and self.files[-1].end_timestamp == drop_after)
            ):
                file.delete()
                deleted = True
                notes.append(f"index file {path} was not complete; deleted, to be made anew from the log")
                continue
            self.files.append(file)
        if len(self.files) > 1 and self.files[-1].untouched:
            # Made in the last moment; it does not even say yet where its predecessor ends.
            self.files.pop().delete()
            deleted = True
        if deleted:
            # They must not come back with the power: their entries are of records that are no more.
            sync_directory(self._directory)
        self._newest = self.files[-1] if self.files else None
        if self._newest is not None and (deleted or drop_after is not None or store_time is not None):
            if store_time is not None:
                self._newest.repair(store_time)
                # The dead process may not have brought the others to the disk.
                self._full = [file for file in self.files[:-1] if file.end_timestamp > synced_until]
            self._cut_at = self._newest.end_offset
        return notes

    def drop_behind(self, end: int) -> bool:
        """Delete the files that know records at or behind `end`, which is where the log ends now.

        Returns:
            Whether there were any; what they knew of earlier records has to be indexed again.
        """
        dropped = False
        # A file that has no entry yet says where its predecessor ends.
        while self.files and self.files[-1].end_offset >= end and (self.files[-1].count > 1 or len(self.files) > 1):
            self.files.pop().delete()
            dropped = True
        self._newest = self.files[-1] if self.files else None
        if dropped:
            sync_directory(self._directory)
            self._cut_at = self.end_offset
        return dropped

    @property
    def end_offset(self) -> int:
        """Offset of the newest indexed record; -1 when there is none."""
        newest = self._newest
        return newest.end_offset if newest is not None else -1

    @property
    def end_timestamp(self) -> int:
        """Store time of the newest indexed record, ms; 0 when there is none."""
        newest = self._newest
        return newest.end_timestamp if newest is not None else 0

    def put(self, topic: str, uniq_key: str, keys: str, physical_offset: int, store_timestamp: int) -> None:
        """Index one record by its unique key and then its keys (store.md §8.4).

        Raises:
            OSError: no file can be made, or the disk is full.
        """
        newest = self._newest
        if newest is None or newest.count >= newest.capacity:
            if not uniq_key and not keys.strip(" "):
                return
            newest = self._begin()
        if physical_offset <= newest.end_offset and newest.end_timestamp:
            # Recovery goes over records again.
            if physical_offset != self._cut_at:
                return
            self._cut_at = -1
        if uniq_key:
            newest.put(index_hash(topic, uniq_key), physical_offset, store_timestamp)
        if keys:
            for key in keys.split(" "):
                if key:
                    if newest.count >= newest.capacity:
                        newest = self._begin()
                    newest.put(index_hash(topic, key), physical_offset, store_timestamp)

    def _begin(self) -> IndexFile:
        previous = self._newest
        if previous is not None:
            previous.write_header()
            self._full.append(previous)
        make_directory(self._directory)
        path = self._directory / _file_name()
        while path.exists():
            path = path.with_name(str(int(path.name) + 1))
        settings = self._settings
        segment = Segment.create(path, 0, settings.index_file_size)
        segment.reserve_range(0, HEADER_SIZE)
        file = IndexFile(segment, settings.max_hash_slot_num, settings.max_index_num)
        if previous is not None:
            file.preset(previous)
        self.files.append(file)
        self._newest = file
        return file

    def expire(self, smallest_physical: int) -> list[RetiredSegment]:
        """Let go of the oldest files that know only records before an offset (store.md §8.7)."""
        count = expired_index_files([file.end_offset for file in self.files], smallest_physical)
        expired, self.files = self.files[:count], self.files[count:]
        self._full = [file for file in self._full if file not in expired]
        return [file.retire() for file in expired]

    def write_header(self) -> None:
        """Make the newest file's header say what was inserted."""
        if self._newest is not None:
            self._newest.write_header()

    def take_full(self) -> list[IndexFile]:
        """Files that became full since the last call; they are to be brought to the disk."""
        full, self._full = self._full, []
        return full

    def query(self, topic: str, key: str, limit: int, begin: int, end: int) -> list[int]:
        """Commit-log offsets of records with the key's hash and a store time in [begin, end] (store.md §8.6)."""
        return at_once(self.query_steps(topic, key, limit, begin, end))

    def query_steps(self, topic: str, key: str, limit: int, begin: int, end: int) -> Steps[list[int]]:
        """As `query`."""
        limit = min(limit, self._settings.max_msgs_num_batch)
        key_hash = index_hash(topic, key)
        found: list[int] = []
        for file in tuple(reversed(self.files)):
            if file not in self.files:
                break  # gone meanwhile, and with it all that are older
            if file.overlaps(begin, end):
                yield from file.find_steps(key_hash, limit, begin, end, found)
            if file.begin_timestamp < begin or len(found) >= limit:
                break
        return found

    def sync(self) -> None:
        """Bring the newest file to the disk."""
        if self._newest is not None:
            self._newest.write_header()
            self._newest.sync()

    def close(self) -> None:
        """Write headers and let go of all maps."""
        for file in self.files:
            file.close()
        self.files.clear()
        self._newest = None


def _file_name() -> str:
    now = time.time()
    return datetime.fromtimestamp(now).strftime("%Y%m%d%H%M%S") + f"{int(now * 1000) % 1000:03d}"  # noqa: DTZ006
