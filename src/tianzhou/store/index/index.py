"""The index of a store: its files, the newest file for new entries, and queries to all files (store.md §8)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tianzhou.model import names
from tianzhou.store.files.directories import make_directory, sync_directory
from tianzhou.store.files.lookup_steps import Steps
from tianzhou.store.files.retention import expired_index_files
from tianzhou.store.files.retired import RetiredSegment
from tianzhou.store.files.segments import Segment
from tianzhou.store.index.indexfile import HEADER_SIZE, IndexFile
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.hashing import index_hash
from tianzhou.wire.properties import get_property


class Index:
    """All index files of a store.

    Args:
        settings: sizes.

    Attributes:
        files: oldest first.
        newest: the file that takes new entries; None before the first.
        on_query: called by each query while entries are missing (see `IndexCatchUp`); None when none are.
        on_damage: called with a file that a query found damaged.
        store_time_steps: looks up the store time of the record at a log offset, ms, -1 without one; None where files
            are not compared with the log.
    """

    __slots__ = (
        "_cut_at", "_directory", "_full", "_settings", "files", "newest", "on_damage", "on_query", "store_time_steps",
    )  # fmt: skip

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._directory = settings.root / "index"
        self.files: list[IndexFile] = []
        self.on_query: Callable[[], None] | None = None
        self.on_damage: Callable[[IndexFile], None] | None = None
        self.store_time_steps: Callable[[int], Steps[int]] | None = None
        self.newest: IndexFile | None = None
        self._full: list[IndexFile] = []
        # The record whose entries may be split between an existing file and a deleted one.
        self._cut_at = -1

    def load(
        self, *, drop_after: int | None, store_time: Callable[[int], int] | None, synced_until: int = 0
    ) -> list[str]:
        """Open the files; files whose names are no numbers are ignored (store.md §8.5).

        Args:
            drop_after: after an abnormal exit, the checkpoint's index timestamp. A file that ends later was not
                completely written and is deleted. None when all written entries exist.
            store_time: after an abnormal exit without losses, returns the store time of the record at an offset for the
                repair of the newest file, -1 without one.
            synced_until: the checkpoint's index timestamp.

        Returns:
            Descriptions of deleted files, for the log.
        """
        found = self._directory.iterdir() if self._directory.is_dir() else []
        paths = sorted(path for path in found if path.name.isascii() and path.name.isdigit() and path.is_file())
        notes: list[str] = []
        for number, path in enumerate(paths):
            wrong = self._adopt(path, drop_after)
            if wrong is not None:
                # Entries of newer files would precede the rebuilt ones.
                later = len(paths) - number - 1
                further = f" with the {later} that are newer" if later else ""
                notes.append(f"index file {path} {wrong}; deleted{further}, to be rebuilt from the log")
                for deleted_path in reversed(paths[number:]):
                    deleted_path.unlink()
                break
        deleted = bool(notes)
        if len(self.files) > 1 and self.files[-1].untouched:
            # The file was created just before the exit, and its header does not have its predecessor's end yet.
            self.files.pop().delete()
            deleted = True
        if deleted:
            # The deleted files must not return after a power failure, because their records no longer exist.
            sync_directory(self._directory)
        self.newest = self.files[-1] if self.files else None
        if self.newest is not None and (deleted or drop_after is not None or store_time is not None):
            if store_time is not None:
                self.newest.repair(store_time)
                # The dead process may not have synced the other files.
                self._full = [file for file in self.files[:-1] if file.end_timestamp > synced_until]
            self._cut_at = self.newest.end_offset
        return notes

    def _adopt(self, path: Path, drop_after: int | None) -> str | None:
        """Add a file and return None, or return its fault. Arguments as for `load`."""
        length, size = path.stat().st_size, self._settings.index_file_size
        if length != size:
            keys = f"maxHashSlotNum={self._settings.max_hash_slot_num} and maxIndexNum={self._settings.max_index_num}"
            return f"is {length} bytes long, not the {size} of {keys}" if length else "is empty"
        file = IndexFile(Segment(path, 0, size), self._settings.max_hash_slot_num, self._settings.max_index_num)
        if not file.plausible:
            file.discard()
            return "does not say how much is in it"
        # A file that is not full was never synced as a whole, so its slots may be newer than its entries.
        if drop_after is not None and (
            not file.full
            or file.end_timestamp > drop_after
            or (file.end_timestamp == drop_after and self.files and self.files[-1].end_timestamp == drop_after)
        ):
            file.discard()
            return "was not complete"
        self.files.append(file)
        return None

    def drop_behind_gap(self, known: list[tuple[str, int]], smallest: int) -> bool:
        """Delete the files that are newer than a missing one.

        Args:
            known: name of each earlier file and the offset of its newest record, oldest first.
            smallest: start of the log; a file whose newest record is before it is not needed any more.

        Returns:
            Whether a file was missing; records from there on must be indexed again.
        """
        present = {file.path.name for file in self.files}
        missing = next((name for name, end in known if name not in present and end >= smallest), None)
        if missing is None:
            return False
        dropped = False
        while self.files and self.files[-1].path.name > missing:
            self.files.pop().delete()
            dropped = True
        if dropped:
            sync_directory(self._directory)
        self.newest = self.files[-1] if self.files else None
        self._full = [file for file in self._full if file in self.files]
        self._cut_at = self.end_offset
        return True

    def drop_behind(self, end: int) -> bool:
        """Delete the files with records at or after `end`, the new end of the log.

        Returns:
            Whether there were any; their earlier records must be indexed again.
        """
        dropped = False
        # The header of a file without entries has its predecessor's end.
        while self.files and self.files[-1].end_offset >= end and (self.files[-1].count > 1 or len(self.files) > 1):
            self.files.pop().delete()
            dropped = True
        self.newest = self.files[-1] if self.files else None
        if dropped:
            sync_directory(self._directory)
            self._full = [file for file in self._full if file in self.files]
            self._cut_at = self.end_offset
        return dropped

    def drop_from(self, file: IndexFile) -> list[RetiredSegment]:
        """Drop this index file and all newer ones. Their records must be re-indexed."""
        number = self.files.index(file)
        dropped, self.files = self.files[number:], self.files[:number]
        self.newest = self.files[-1] if self.files else None
        self._full = [one for one in self._full if one not in dropped]
        self._cut_at = self.end_offset
        return [one.retire() for one in dropped]

    def take_up(self, offset: int) -> None:
        """Mark the entries of the newest record as incomplete before records from `offset` on are indexed."""
        if offset <= self.end_offset:
            self._cut_at = self.end_offset

    @property
    def end_offset(self) -> int:
        """Offset of the newest indexed record; -1 without one."""
        newest = self.newest
        return newest.end_offset if newest is not None else -1

    @property
    def end_timestamp(self) -> int:
        """Store time of the newest indexed record, ms; 0 without one."""
        newest = self.newest
        return newest.end_timestamp if newest is not None else 0

    def put(self, topic: str, uniq_key: str, keys: str, physical_offset: int, store_timestamp: int) -> None:
        """Index one record by its unique key and then its keys (store.md §8.4).

        Raises:
            OSError: no file can be created, or the disk is full.
        """
        newest = self.newest
        if newest is None or newest.count >= newest.capacity:
            if not uniq_key and not keys.strip(" "):
                return
            newest = self._begin()
        if physical_offset <= newest.end_offset and newest.end_timestamp:
            # Recovery indexes records again.
            if physical_offset != self._cut_at:
                return
            self._cut_at = -1
        try:
            if uniq_key:
                newest.put(index_hash(topic, uniq_key), physical_offset, store_timestamp)
            if keys:
                for key in keys.split(" "):
                    if key:
                        if newest.count >= newest.capacity:
                            newest = self._begin()
                        newest.put(index_hash(topic, key), physical_offset, store_timestamp)
        except OSError:
            # A retry must index the whole record.
            self._cut_at = physical_offset
            raise

    def put_record(self, topic: str, properties: bytes, physical_offset: int, store_timestamp: int) -> None:
        """Index a record as `put`, with the keys of a property string."""
        uniq_key = get_property(properties, names.UNIQ_KEY) or ""
        keys = get_property(properties, names.KEYS) if b"KEYS\x01" in properties else None
        self.put(topic, uniq_key, keys or "", physical_offset, store_timestamp)

    def _begin(self) -> IndexFile:
        previous = self.newest
        if previous is not None:
            previous.write_header()
            self._full.append(previous)
        make_directory(self._directory)
        path = self._directory / _file_name()
        while path.exists():
            path = path.with_name(str(int(path.name) + 1))
        settings = self._settings
        segment = Segment.create(path, 0, settings.index_file_size)
        try:
            segment.reserve_range(0, HEADER_SIZE)
        except OSError:
            segment.delete()
            raise
        file = IndexFile(segment, settings.max_hash_slot_num, settings.max_index_num)
        if previous is not None:
            file.preset(previous)
        file.proved = file.own = True
        self.files.append(file)
        self.newest = file
        return file

    def expire(self, smallest_physical: int) -> list[RetiredSegment]:
        """Retire the oldest files, all of whose records are before an offset (store.md §8.7)."""
        count = expired_index_files([file.end_offset for file in self.files], smallest_physical)
        expired, self.files = self.files[:count], self.files[count:]
        self._full = [file for file in self._full if file not in expired]
        return [file.retire() for file in expired]

    def write_header(self) -> None:
        """Write the newest file's header with all inserted entries."""
        if self.newest is not None:
            self.newest.write_header()

    def take_full(self) -> list[IndexFile]:
        """Return the files that became full since the last call, to be synced."""
        full, self._full = self._full, []
        return full

    def give_back(self, files: list[IndexFile]) -> None:
        """Take back files of `take_full` whose sync failed; the next call returns them."""
        self._full = files + self._full

    def query_steps(
        self, topic: str, key: str, limit: int, begin: int, end: int, sources: dict[int, IndexFile] | None = None
    ) -> Steps[list[int]]:
        """Return log offsets of records with the key's hash and a store time in [begin, end] (store.md §8.6).

        Args:
            topic: topic.
            key: a unique key or one of the message's keys.
            limit: maximum number of offsets, and at most `maxMsgsNumBatch`.
            begin: ms.
            end: ms.
            sources: receives the file that had each offset.
        """
        if self.on_query is not None:
            self.on_query()
        limit = min(limit, self._settings.max_msgs_num_batch)
        key_hash = index_hash(topic, key)
        found: list[int] = []
        for file in tuple(reversed(self.files)):
            if file not in self.files:
                break  # The file was dropped meanwhile, with all older ones.
            if not file.proved and self.store_time_steps is not None:
                yield from file.prove_steps(self.store_time_steps)
            if file.overlaps(begin, end) or file.damaged:
                known = len(found)
                yield from file.find_steps(key_hash, limit, begin, end, found)
                if sources is not None:
                    sources.update(dict.fromkeys(found[known:], file))
                if file.damaged:
                    self.tell_damage(file)
            if file.begin_timestamp < begin or len(found) >= limit:
                break
        return found

    def tell_damage(self, file: IndexFile) -> None:
        """Report a file that disagrees with the log, so that it and all newer ones are rebuilt."""
        if self.on_damage is not None and file in self.files:
            self.on_damage(file)

    def sync(self) -> None:
        """Sync the newest file."""
        if self.newest is not None:
            self.newest.write_header()
            self.newest.sync()

    def close(self) -> None:
        """Write headers and unmap all files."""
        for file in self.files:
            file.close()
        self.files.clear()
        self.newest = None


def _file_name() -> str:
    now = time.time()
    return datetime.fromtimestamp(now).strftime("%Y%m%d%H%M%S") + f"{int(now * 1000) % 1000:03d}"  # noqa: DTZ006


def key_hashes(topic: str, properties: bytes) -> list[int]:
    """Return the hashes of a record's keys, in the order of their indexing (store.md §8.4)."""
    uniq = get_property(properties, names.UNIQ_KEY)
    keys = (get_property(properties, names.KEYS) or "").split(" ")
    return [index_hash(topic, key) for key in ([uniq] if uniq else []) + keys if key]
