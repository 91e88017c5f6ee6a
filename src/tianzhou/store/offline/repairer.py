"""The execution of a repair plan, with copies of all cut or replaced data (`tianzhou store repair --apply`)."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tianzhou._hot.records import UNIT
from tianzhou.errors import StoreError, StoreUnreadable
from tianzhou.model import names
from tianzhou.model.name_rules import folder_name_problem
from tianzhou.records.codec import Record, encode_blank, encode_record
from tianzhou.records.layout import PREPARED, ROLLBACK, TRANSACTION_BITS
from tianzhou.records.walk import read_item
from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.store.files.config_file import JsonFile
from tianzhou.store.files.folder import StoreFolder
from tianzhou.store.files.segments import segment_name
from tianzhou.store.index.index import Index
from tianzhou.store.log import holes
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.check_report import CheckReport
from tianzhou.store.offline.files import ReadOnlySegment, segment_paths
from tianzhou.store.offline.index_files import read_index_headers, slots_of
from tianzhou.store.offline.repair import (
    FILLER_TOPIC,
    LEAST_FILLER,
    Cover,
    CutTail,
    DropMarker,
    Lengthen,
    MakeSegment,
    MoveOffset,
    Plan,
    RebuildIndex,
    RebuildQueue,
    RewriteCheckpoint,
    Step,
    plan,
)
from tianzhou.store.offline.scan import StoreScan, member_folder
from tianzhou.store.queues.batchqueue import BATCH_UNIT, NOT_COMPACTED, unit_of
from tianzhou.store.queues.multi_dispatch import stored_places
from tianzhou.store.queues.queues import BATCH_QUEUES, QUEUES, queue_folder
from tianzhou.store.queues.tags_code import queue_tags_code
from tianzhou.store.settings import StoreSettings, parse_delay_levels
from tianzhou.store.startup.proved_note import NOTE_NAME
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import get_property

_QUEUE_SIZE: Final = 6_000_000
_BATCH_SIZE: Final = 13_800_000
_ROUNDS: Final = 6
_BUFFER: Final = 1 << 16


@dataclass
class RepairOutcome:
    """The result of a repair.

    Attributes:
        done: descriptions of the executed steps.
        hopeless: damage that could not be repaired.
        copies: folder with the copies; None without changes.
        report: report of the check afterwards.
    """

    done: list[str] = field(default_factory=list)
    hopeless: tuple[str, ...] = ()
    copies: Path | None = None
    report: CheckReport = field(default_factory=CheckReport)


def repair(root: Path, slots: int | None = None, progress: Callable[[int], None] | None = None) -> RepairOutcome:
    """Check a store, repair it, and check it again, until no steps are left.

    Args:
        root: the store.
        slots: `maxHashSlotNum`; None to derive it from the files.
        progress: called with the number of checked bytes of the log.

    Raises:
        StoreLocked: a broker has locked the folder.
        StoreError: a step cannot be executed.
    """
    if not root.is_dir():
        raise StoreUnreadable(f"{root} is no folder; name the storePathRootDir of a broker")
    if (member := member_folder(root)) is not None:
        raise StoreUnreadable(
            f"{member} holds the log of a member of a DLedger group, which is not repaired here: start its broker, "
            "which rebuilds queues, index and units, and gets from its leader what its log has lost"
        )
    folder = StoreFolder(root)
    folder.lock()
    try:
        folder.lock_directories([path for path in (root, root / "commitlog") if path.is_dir()])
        outcome = RepairOutcome()
        for _ in range(_ROUNDS):
            outcome.report = check_store(StoreScan(root), slots, progress)
            todo = plan(outcome.report)
            outcome.hopeless = todo.hopeless
            steps = [step for step in todo.steps if str(step) not in outcome.done]
            if not steps:
                break
            if outcome.copies is None:
                outcome.copies = _make_copies_folder(root)
            Repairer(root, outcome.copies, slots).carry_out(Plan(tuple(steps), ()), outcome.report)
            outcome.done += [str(step) for step in steps]
        if outcome.copies is not None:
            outcome.copies.joinpath("steps.json").write_text(json.dumps(outcome.done, indent=1) + "\n")
        return outcome
    finally:
        folder.unlock()


def _make_copies_folder(root: Path) -> Path:
    name = time.strftime("repair-%Y%m%d-%H%M%S")
    for suffix in ["", *(f".{n}" for n in range(1, 100))]:
        path = root / (name + suffix)
        if not path.exists():
            path.mkdir()
            return path
    raise StoreError(f"{root / name} and 99 more are there already; move them away")


class Repairer:
    """Changes a store that is locked by the caller.

    Args:
        root: the store.
        copies: folder for copies.
        slots: `maxHashSlotNum`; None to derive it from the files.
    """

    def __init__(self, root: Path, copies: Path, slots: int | None = None) -> None:
        self._root = root
        self._copies = copies
        self._slots = slots

    def carry_out(self, todo: Plan, report: CheckReport) -> None:
        """Execute all steps of a plan.

        Raises:
            StoreError: a step cannot be executed.
        """
        rebuilt: list[RebuildQueue] = []
        index: Index | None = None
        for step in todo.steps:
            if isinstance(step, RebuildQueue):
                rebuilt.append(step)
            elif isinstance(step, RebuildIndex):
                index = self._empty_index()
            else:
                self._small_step(step, report)
        if rebuilt or index is not None:
            self._rebuild(rebuilt, index)
        if (self._root / NOTE_NAME).exists():
            self._move_away(NOTE_NAME)

    def _small_step(self, step: Step, report: CheckReport) -> None:
        paths = {segment.start: segment.path for segment in report.segments}
        match step:
            case Lengthen(start, length, size):
                self._note_length(f"commitlog/{segment_name(start)}.length", str(length))
                os.truncate(paths[start], size)
            case MakeSegment(start, size):
                directory = report.segments[0].path.parent
                path = directory / segment_name(start)
                path.write_bytes(encode_blank(size))
                os.truncate(path, size)
            case Cover():
                self._cover(step, report)
            case CutTail(start, end):
                self._cut(start, end, report)
            case MoveOffset(wrong):
                self._copy(wrong.path.relative_to(self._root))
                file = JsonFile(wrong.path)
                value = file.load()
                table = value[wrong.table]
                if wrong.key is not None:
                    table = table[wrong.key]
                key = next(key for key in table if str(key) == str(wrong.number))
                table[key] = wrong.maximum
                file.persist(value)
            case RewriteCheckpoint(newest):
                self._rewrite_checkpoint(newest)
            case DropMarker():
                self._move_away(NOTE_NAME)
            case _:  # pragma: no cover - the caller does those
                raise AssertionError(step)

    # copies

    def _copy(self, name: Path | str) -> None:
        source, target = self._root / name, self._copies / name
        if source.exists() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)

    def _move_away(self, name: Path | str) -> None:
        source, target = self._root / name, self._copies / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            number = 0
            while target.exists():
                number += 1
                target = (self._copies / name).with_name(f"{Path(name).name}.{number}")
            source.rename(target)

    def _note_length(self, name: str, text: str) -> None:
        path = self._copies / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def _copy_bytes(self, start: int, data: bytes) -> None:
        path = self._copies / "commitlog" / f"{start:020d}-{len(data)}.bytes"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    # the log

    def _cover(self, step: Cover, report: CheckReport) -> None:
        segment = next(s for s in reversed(report.segments) if s.start <= step.start)
        part = ReadOnlySegment(segment.path)
        self._copy_bytes(step.start, bytes(part.view[step.start - part.start : step.end - part.start]).rstrip(b"\0"))
        if step.ends_file:
            self._write(segment.path, step.start - part.start, encode_blank(step.end - step.start))
            return
        following = read_item(part.view, step.end - part.start, part.start, check_crc=False)
        stored = following.entry.store_timestamp if following.entry is not None else report.newest
        filler = Record(
            FILLER_TOPIC,
            queue_id=0,
            queue_offset=0,
            physical_offset=step.start,
            flag=0,
            sys_flag=ROLLBACK,
            born_timestamp=stored,
            born_host=bytes(4),
            born_port=0,
            store_timestamp=stored,
            store_host=bytes(4),
            store_port=0,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=bytes(step.end - step.start - LEAST_FILLER),
            properties=b"",
        )
        self._write(segment.path, step.start - part.start, encode_record(filler))

    def _cut(self, start: int, end: int, report: CheckReport) -> None:
        for segment in report.segments:
            begin = max(start - segment.start, 0)
            stop = min(end - segment.start, segment.length)
            if begin < stop:
                part = ReadOnlySegment(segment.path)
                self._copy_bytes(segment.start + begin, bytes(part.view[begin:stop]))
                with segment.path.open("r+b") as file:
                    file.truncate(begin)
                    file.truncate(segment.length)
                    os.fsync(file.fileno())

    def _write(self, path: Path, position: int, data: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    # data rebuilt from the log

    def _rebuild(self, steps: list[RebuildQueue], index: Index | None) -> None:
        # A topic whose name cannot be a folder name has no queue, whatever a record contains.
        steps = [step for step in steps if folder_name_problem(step.topic) is None]
        queues = {(s.topic, s.queue_id): self._writer(s) for s in steps if not s.batch}
        batches = {(s.topic, s.queue_id): self._writer(s) for s in steps if s.batch}
        delays = parse_delay_levels(StoreSettings.message_delay_level)
        for item in StoreScan(self._root).walk():
            entry = item.entry
            if entry is None:
                continue
            kind = entry.sys_flag & TRANSACTION_BITS
            key = (entry.topic, entry.queue_id)
            if key in batches:
                batches[key].append(BATCH_UNIT.pack(*unit_of(entry), NOT_COMPACTED))
            elif kind != PREPARED and kind != ROLLBACK and key in queues:
                tags = queue_tags_code(entry.topic, entry.properties, entry.store_timestamp, delays)
                queues[key].put(entry.queue_offset, UNIT.pack(entry.offset, entry.size, tags))
            for name, queue_id, number in stored_places(entry.topic, entry.queue_id, entry.properties):
                if (further := queues.get((name, queue_id))) is not None:
                    code = tags_code(get_property(entry.properties, names.TAGS))
                    further.put(number, UNIT.pack(entry.offset, entry.size, code))
            if index is not None and kind != ROLLBACK:
                index.put_record(entry.topic, entry.properties, entry.offset, entry.store_timestamp)
        for step in steps:
            (batches if step.batch else queues)[step.topic, step.queue_id].close(step.end)
        if index is not None:
            index.sync()
            index.close()

    def _writer(self, step: RebuildQueue) -> UnitWriter:
        family = BATCH_QUEUES if step.batch else QUEUES
        directory = queue_folder(self._root, family, step.topic, step.queue_id)
        unit = BATCH_UNIT.size if step.batch else UNIT.size
        size = _file_size(self._root / family, unit) or (_BATCH_SIZE if step.batch else _QUEUE_SIZE)
        self._move_away(directory.relative_to(self._root))
        log_files = segment_paths(self._root / "commitlog")
        log_file_size = max((path.stat().st_size for path in log_files), default=0)
        return UnitWriter(directory, unit, size, log_file_size)

    def _empty_index(self) -> Index:
        settings = StoreSettings(store_path_root_dir=str(self._root))
        for header in read_index_headers(self._root):
            file = ReadOnlySegment(header.path)
            slots = self._slots or (slots_of(header, file) if header.count > 1 else None)
            length = len(file.view)
            if slots is None and length != settings.index_file_size and (length - 40) % 84 == 0:
                slots = (length - 40) // 84  # four entries a slot, as in RocketMQ's defaults
            if slots is not None and (length - 40 - 4 * slots) % 20 == 0 and length > 40 + 4 * slots:
                settings.max_hash_slot_num = slots
                settings.max_index_num = (length - 40 - 4 * slots) // 20
                break
        self._move_away("index")
        return Index(settings)

    def _rewrite_checkpoint(self, newest: int) -> None:
        path = self._root / "checkpoint"
        checkpoint = Checkpoint(path)
        if checkpoint.load():
            self._move_away("checkpoint")
            checkpoint = Checkpoint(path)
            checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = newest
        self._copy("checkpoint")
        for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp"):
            setattr(checkpoint, name, max(0, min(getattr(checkpoint, name), newest)))
        checkpoint.write()


class UnitWriter:
    """Writes the units of one queue into new files.

    Args:
        directory: directory of the queue; it must not exist.
        unit: bytes of a unit.
        size: bytes of a file.
        log_file_size: bytes of a file of the commit log.
    """

    def __init__(self, directory: Path, unit: int, size: int, log_file_size: int) -> None:
        self._directory = directory
        self._unit = unit
        self._size = size - size % unit
        self._log_file_size = log_file_size
        self._buffer = bytearray()
        self._position = -1
        self._last: tuple[int, int] | None = None

    def put(self, number: int, unit: bytes) -> None:
        """Add the unit of a queue offset; skipped places get placeholders (`tianzhou.store.log.holes`)."""
        at = number * self._unit
        if at < self._position or self._position < 0:
            if self._position >= 0 and number:
                return
            # The first unit; or the topic was deleted and created again, so its units begin again.
            self._buffer.clear()
            if self._directory.exists():
                shutil.rmtree(self._directory)
            self._position = at - at % self._size
        physical, size, _ = UNIT.unpack(unit)
        hole = holes.before(physical, size, self._log_file_size)
        while self._position < at:
            self.append(hole)
        self.append(unit)
        self._last = physical, size

    def append(self, unit: bytes) -> None:
        """Add a unit after the last one."""
        self._position = max(self._position, 0) + self._unit
        self._buffer += unit
        if len(self._buffer) >= _BUFFER or self._position % self._size == 0:
            self._flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        begin = self._position - len(self._buffer)
        start = begin - begin % self._size
        path = self._directory / segment_name(start)
        self._directory.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(begin - start)
            file.write(self._buffer)
            file.truncate(self._size)
            file.flush()
            os.fsync(file.fileno())
        self._buffer.clear()

    def close(self, end: int) -> None:
        """Write the remaining units; add placeholders up to the offset `end`, unless there is no record at all."""
        missing = end - self._position // self._unit
        if self._last is not None and missing > 0:
            for hole in holes.behind(missing, *self._last, self._log_file_size):
                self.append(hole)
        self._flush()


def _file_size(root: Path, unit: int) -> int:
    """Return the length of a store's queue files; 0 without any."""
    for topic in sorted(root.iterdir()) if root.is_dir() else []:
        for queue in sorted(topic.iterdir()) if topic.is_dir() else []:
            for path in segment_paths(queue):
                length = path.stat().st_size
                if length and length % unit == 0:
                    return length
    return 0
