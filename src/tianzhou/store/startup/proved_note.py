"""The notes of a broker in the store's folder; RocketMQ neither reads nor changes them.

`proved.json` has the offset up to which log and queues are on the disk, and the extent of the index. The broker writes
it while it runs and once more when it stops, always after the sync of the noted files. A start after a crash reads the
log from that offset, and detects files that are missing since. `damaged.json` lists the stretches of the log without an
intact record.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import msgspec.structs

from tianzhou.errors import StateLost
from tianzhou.file_modes import replace_file
from tianzhou.records.checksum import crc32
from tianzhou.store.dispatch.dispatch import Dispatcher
from tianzhou.store.files.config_file import JsonFile
from tianzhou.store.index.index import Index
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.queues import QueueTable, each_queue
from tianzhou.watermark import Watermark

logger = logging.getLogger(__name__)

NOTE_NAME: Final = "proved.json"
DAMAGE_NAME: Final = "damaged.json"
NOTE_BYTES: Final = 64 << 20
"""Growth of the log in bytes until the next note is due; a start after a crash reads about as much again."""
NOTE_BYTES_A_QUEUE: Final = 32 << 10
"""Additional growth in bytes for each queue with new units. A note needs a sync of all of them, and each synced page
costs a fault at its next write. A start spends more time on opening a queue than on reading this much."""


class StoreNote(msgspec.Struct, frozen=True, rename="camel"):
    """The state that the disk is known to have.

    Attributes:
        lock: time of the last write of the file `lock`, ns. Other brokers write it when they lock the folder. Ours does
            not when the text is right, so another time means that RocketMQ had the store since.
        log_end: log offset before which the disk has every record, and the queue units of all of them.
        witness: offset, size and CRC of one of the last of these records; None when no queue has any.
        queues: per topic and queue number the first offset in its files and the next offset.
        indexed: log offset before which all records are in the index; -1 without an index.
        index_behind: whether older records than the newest were not indexed yet.
        index_files: name of each index file and the offset of its newest record, oldest file first.
    """

    lock: int
    log_end: int
    witness: tuple[int, int, int] | None
    queues: dict[str, dict[str, tuple[int, int]]]
    indexed: int
    index_behind: bool
    index_files: list[tuple[str, int]]

    @property
    def queue_ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """First offset in the files and next offset, by topic and queue number."""
        return {
            (topic, int(queue_id)): bounds
            for topic, of_topic in self.queues.items()
            for queue_id, bounds in of_topic.items()
        }

    @property
    def index_end(self) -> int:
        """Offset of the newest record in the index; -1 without one."""
        return self.index_files[-1][1] if self.index_files else -1

    def confirmed_by(self, log: CommitLog) -> bool:
        """Whether the log still has the note's witness record; without a witness the note is trusted."""
        if self.witness is None:
            return True
        offset, size, crc = self.witness
        segment = log.files.find(offset)
        at = offset - segment.start if segment is not None else 0
        return segment is not None and at + size <= segment.size and crc32(segment.view[at : at + size]) == crc


class _Envelope(msgspec.Struct):
    crc32: int
    note: msgspec.Raw


def lock_time(root: Path) -> int:
    """Return the time of the last write of a store's file `lock`, ns; -1 without the file."""
    try:
        return (root / "lock").stat().st_mtime_ns
    except OSError:
        return -1


def read_note(root: Path) -> StoreNote | None:
    """Return the note in a store's folder; None without one, or for an incomplete one."""
    try:
        envelope = msgspec.json.decode((root / NOTE_NAME).read_bytes(), type=_Envelope)
        if crc32(bytes(envelope.note)) != envelope.crc32:
            return None
        return msgspec.json.decode(envelope.note, type=StoreNote)
    except (OSError, msgspec.DecodeError):
        return None


def write_note(root: Path, note: StoreNote) -> None:
    """Write and sync a note.

    Raises:
        OSError: the disk refused the write; the previous note is still there.
    """
    text = msgspec.json.encode(note)
    replace_file(root / NOTE_NAME, msgspec.json.encode(_Envelope(crc32(text), msgspec.Raw(text))) + b"\n")


class NoteWriter:
    """Decides when a note is due, and collects its content.

    Args:
        root: root folder of the store.
        log: the commit log.
        dispatcher: has the log offset up to which the queues are filled.
        queues: all queues.
        index: None without an index.
        flushed: follows the synced end of the log.

    Attributes:
        indexed: returns the log offset before which the index has all records; None when it follows the dispatcher.
    """

    def __init__(
        self,
        root: Path,
        log: CommitLog,
        dispatcher: Dispatcher,
        queues: QueueTable,
        index: Index | None,
        flushed: Watermark,
    ) -> None:
        self._root = root
        self._log = log
        self._dispatcher = dispatcher
        self._queues = queues
        self._index = index
        self._flushed = flushed
        self._noted = -1
        self._noted_topics: dict[str, Any] = {}
        self._candidate: StoreNote | None = None
        self.indexed: Callable[[], int] | None = None

    @property
    def waiting(self) -> bool:
        """Whether a note waits for the sync of the log."""
        return self._candidate is not None

    @property
    def due(self) -> bool:
        """Whether all queues should be synced for a new note."""
        if self._candidate is not None:
            return False
        grown = self._dispatcher.position - self._noted
        if self._noted < 0 or grown >= NOTE_BYTES + NOTE_BYTES_A_QUEUE * len(self._dispatcher.dirty):
            return True
        # The next start must not treat a deleted topic as missing.
        return any(self._queues.get(topic) is not queues for topic, queues in self._noted_topics.items())

    def take(self) -> StoreNote:
        """Return the note that will be true once all present units, and the log up to the dispatcher, are synced."""
        position = self._dispatcher.position
        self._noted_topics = dict(self._queues)
        table: dict[str, dict[str, tuple[int, int]]] = {}
        for queue in each_queue(self._queues):
            if queue.files.segments:
                first = queue.files.segments[0].start // queue.unit_size
                table.setdefault(queue.topic, {})[str(queue.queue_id)] = (first, queue.max_offset)
        note = StoreNote(lock_time(self._root), position, self._witness(position), table, position, False, [])
        return self.about_index(note)

    def about_index(self, note: StoreNote | None) -> StoreNote:
        """Return a note with the present state of the index; without a given note, it has no other state.

        Args:
            note: its `indexed` is used for an index that follows the dispatcher.
        """
        note = note or StoreNote(lock_time(self._root), 0, None, {}, -1, False, [])
        index, behind = self._index, self.indexed is not None
        if index is None:
            return msgspec.structs.replace(note, indexed=-1)
        indexed = note.indexed if self.indexed is None else self.indexed()
        files = [(file.path.name, file.end_offset) for file in index.files]
        return msgspec.structs.replace(note, indexed=indexed, index_behind=behind, index_files=files)

    def index_complete(self) -> None:
        """Note that the index follows the dispatcher from now on."""
        self.indexed = None
        self._noted = -1

    def _witness(self, end: int) -> tuple[int, int, int] | None:
        newest = max(each_queue(self._queues), key=lambda queue: queue.max_physical, default=None)
        unit = newest.unit(newest.max_offset - 1) if newest is not None else None
        if newest is None or unit is None or unit[0] + unit[1] != newest.max_physical or newest.max_physical > end:
            return None
        record = self._log.read(unit[0], unit[1])
        return None if record is None else (unit[0], unit[1], crc32(record))

    def queues_synced(self, note: StoreNote) -> None:
        """Note that the queues are synced up to the state of the note."""
        self._candidate = note

    def proved(self) -> StoreNote | None:
        """Return the note, to be written, once the log is synced up to it as well; else None."""
        note = self._candidate
        if note is None or self._flushed.value < note.log_end:
            return None
        self._candidate = None
        self._noted = note.log_end
        return note


def read_damage(root: Path) -> list[tuple[int, int]]:
    """Return start and end of the damaged stretches of the log that earlier starts found.

    A damaged note is replaced by the previous version (docs/adr/0028).

    Args:
        root: the store's root.

    Raises:
        StoreUnreadable: this process may not read the note.
    """
    file, found = JsonFile(root / DAMAGE_NAME), list[list[tuple[int, int]]]()
    if not file.path.exists():
        return []
    try:
        file.load(
            lambda note: found.append([(int(start), int(stop)) for start, stop in note["damaged"]]), put_aside=True
        )
    except StateLost as error:
        logger.error("%s; reads find the damaged stretches of the log again", error)
        file.put_both_aside()
    return found[-1] if found else []


def write_damage(root: Path, damaged: list[tuple[int, int]]) -> None:
    """Write the note of damaged stretches, because a clean start does not read the log."""
    path = root / DAMAGE_NAME
    if damaged:
        JsonFile(path).write(json.dumps({"damaged": damaged}).encode() + b"\n")
    else:
        path.unlink(missing_ok=True)
