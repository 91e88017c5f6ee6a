"""A queue of byte strings in an SQLite file, which survives a crash of its process or a power failure at any moment.

The folder has `outbox.db` (with SQLite's `-wal` and `-shm`) and `lock`. One process at a time locks `lock`, which also
has the note of written messages (`written_note`). Rows are written with `synchronous=FULL`, so that the disk has them
when `write` returns. They are deleted with `synchronous=NORMAL`: after a power failure they may be returned twice, but
none is skipped.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tianzhou.client.producer.outbox.outbox_store import MAX_FRAMES, OVERHEAD_BYTES, Frame, bytes_of
from tianzhou.client.producer.outbox.segment_files import read_segments
from tianzhou.client.producer.outbox.written_note import WrittenNote, missing_count, read_note
from tianzhou.errors import ClientError, ConfigError, OutboxFull
from tianzhou.file_modes import MODES, make_folders, sync_folder

_log = logging.getLogger(__name__)

DATABASE, LOCK, REFUSED_FILE = "outbox.db", "lock", "refused.jsonl"
SPACE_WORTH_FREEING_BYTES = 1024 * 1024
_MADE = b"made\n"
"""Content of the lock file once the disk has the database."""
_REMEDY = "move all files out of the folder and start again with an empty outbox"
_TABLE = "CREATE TABLE IF NOT EXISTS waiting(id INTEGER PRIMARY KEY, crc INTEGER NOT NULL, payload BLOB NOT NULL)"
_REMOVED_TABLE = "CREATE TABLE IF NOT EXISTS removed(up_to INTEGER NOT NULL)"
"""Table with one row: the number up to which all messages were removed. An empty table of messages lacks it."""
_NOTE_REMOVED = "UPDATE removed SET up_to = MAX(up_to, COALESCE((SELECT MIN(id) - 1 FROM waiting), ?))"


class OutboxFile:
    """The queue. Its methods block, and may run in any thread.

    Args:
        folder: the folder; it is created when it is missing.

    Attributes:
        count: number of payloads in the file.
        bytes: their bytes, with `OVERHEAD_BYTES` for each.
        lost: number of written payloads that are damaged or missing, as noticed since the start.

    Raises:
        ConfigError: the folder cannot be used, another process uses it, or the file is damaged.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.count = self.bytes = self.lost = 0
        self._path = self.folder / DATABASE
        self._counting = threading.Lock()
        self._using = threading.Lock()
        with ExitStack() as held:
            try:
                make_folders(self.folder)
                guard = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODES.files)
                held.callback(os.close, guard)
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
                made = os.pread(guard, len(_MADE), 0) == _MADE
                if made and not (self._path.exists() and self._path.stat().st_size):
                    state = "empty" if self._path.exists() else "gone"
                    raise ConfigError(
                        f"outbox {self._path} is damaged: the file is {state}, and messages may have waited in it; "
                        f"put back a copy of it, or {_REMEDY}"
                    )
                # SQLite would create it, and its other files, with permissions that depend only on the umask.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODES.files))
                self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
                held.callback(self._database.close)
                self._guard = guard
                self._prepare(made=made)
                if not made:
                    self._mark_made(guard)
                self._note()
            except BlockingIOError as error:
                raise ConfigError(f"outbox {folder} is in use by another producer; give each its own folder") from error
            except (OSError, sqlite3.OperationalError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                raise ConfigError(
                    f"outbox {folder} cannot be used ({why}); give a folder that can be written"
                ) from error
            except sqlite3.DatabaseError as error:
                raise ConfigError(self._failure(error)) from error
            self._take_over_segments()
            self._held = held.pop_all()

    def _prepare(self, *, made: bool) -> None:
        self._database.execute("PRAGMA journal_mode=WAL")
        ((problem,),) = self._database.execute("PRAGMA quick_check(1)")
        if problem != "ok":
            raise sqlite3.DatabaseError(" ".join(problem.split()))
        if made and not list(self._database.execute("SELECT 1 FROM sqlite_master WHERE name = 'waiting'")):
            raise sqlite3.DatabaseError("its table of messages is gone")
        self._database.execute(_TABLE)
        self._database.execute(_REMOVED_TABLE)
        self._database.execute("INSERT INTO removed SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM removed)")
        ((count, size, first, last),) = self._database.execute(
            "SELECT COUNT(*), TOTAL(LENGTH(payload)), MIN(id), MAX(id) FROM waiting"
        )
        ((removed,),) = self._database.execute("SELECT MAX(up_to) FROM removed")
        self._add(count, int(size) + count * OVERHEAD_BYTES)
        self._removed = max(removed, first - 1) if count else removed
        self._written = max(removed, last or 0)
        note = read_note(self._guard, len(_MADE))
        if note is not None:
            self._look_for_missing(note)

    def _look_for_missing(self, note: WrittenNote) -> None:
        after = max(self._removed, note.removed)
        ((found,),) = self._database.execute(
            "SELECT COUNT(*) FROM waiting WHERE id > ? AND id <= ?", (after, note.written)
        )
        missing = missing_count(note, self._removed, found)
        if missing:
            self.lost += missing
            _log.error(
                "outbox %s: %d messages are lost: messages up to number %d were written, and the database ends with "
                "number %d. Its write-ahead log %s-wal was damaged, cut or removed, or the database is an older copy. "
                "Check the disk, and send again what the topics lack; %d messages that are left are sent now",
                self._path, missing, note.written, self._written, DATABASE, self.count,
            )  # fmt: skip

    def _note(self) -> None:
        # Without the note a later loss is not noticed. The messages are stored anyway.
        try:
            os.pwrite(self._guard, WrittenNote(self._written, self._removed).encode(), len(_MADE))
        except OSError as error:
            _log.warning(
                "outbox %s: the numbers of written messages cannot be noted in %s (%s); a damaged write-ahead log may "
                "go unnoticed", self.folder, LOCK, error.strerror,
            )  # fmt: skip

    def _mark_made(self, guard: int) -> None:
        """Note in the lock file that the disk has the database. From now on an empty or missing database is damage.

        Raises:
            OSError: the write failed.
        """
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("PRAGMA wal_checkpoint(FULL)")
        os.pwrite(guard, _MADE, 0)
        os.fsync(guard)
        sync_folder(self.folder)

    def _take_over_segments(self) -> None:
        segments, payloads = read_segments(self.folder)
        if payloads:
            _log.info("outbox %s: %d messages come from %d segments", self.folder, len(payloads), len(segments))
            self.write(payloads)
        for segment in segments:
            segment.unlink()

    # --- writes ----------------------------------------------------------------------------------------------

    def write(self, payloads: Sequence[bytes]) -> None:
        """Write payloads, all or none, and return when the disk has them.

        Raises:
            OutboxFull: the write failed; the file has none of the payloads.
        """
        try:
            with self._transaction("FULL"):
                self._database.executemany(
                    "INSERT INTO waiting(id, crc, payload) VALUES(?, ?, ?)",
                    ((number, zlib.crc32(one), one) for number, one in enumerate(payloads, self._written + 1)),
                )
        except sqlite3.Error as error:
            raise OutboxFull(
                f"outbox {self.folder} cannot take {bytes_of(payloads)} bytes, and no broker answers: "
                f"{self._failure(error)}"
            ) from error
        self._written += len(payloads)
        self._add(len(payloads), bytes_of(payloads))
        self._note()

    # --- reads -----------------------------------------------------------------------------------------------

    def peek(self, most_bytes: int) -> list[Frame]:
        """Return the first written payloads of about `most_bytes` bytes, and at least one unless the file is empty.

        Raises:
            ClientError: the file cannot be read.
        """
        frames: list[Frame] = []
        unsound: list[Frame] = []
        try:
            with self._using:
                rows = self._database.execute(f"SELECT payload, id, crc FROM waiting ORDER BY id LIMIT {MAX_FRAMES}")
                for payload, number, crc in rows:
                    (frames if zlib.crc32(payload) == crc else unsound).append(Frame(payload, number))
                    most_bytes -= len(payload) + OVERHEAD_BYTES
                    if frames and most_bytes <= 0:
                        break
                rows.close()
        except sqlite3.Error as error:
            raise ClientError(self._failure(error)) from error
        if unsound:
            _log.error(
                "outbox %s is damaged: messages %s are lost, their bytes are not those that were written",
                self._path,
                ", ".join(str(frame.number) for frame in unsound),
            )
            self.lost += len(unsound)
            self.advance(unsound)
        return frames

    def advance(self, frames: Sequence[Frame]) -> None:
        """Delete payloads that `peek` returned.

        Raises:
            ClientError: the file cannot be written.
        """
        if not frames:
            return
        try:
            with self._transaction("NORMAL"):
                self._database.executemany("DELETE FROM waiting WHERE id = ?", ((frame.number,) for frame in frames))
                self._database.execute(_NOTE_REMOVED, (max(frame.number for frame in frames),))
                ((self._removed,),) = self._database.execute("SELECT MAX(up_to) FROM removed")
            self._add(-len(frames), -bytes_of([frame.payload for frame in frames]))
            self._note()
            if not self.count and self._path.stat().st_size > SPACE_WORTH_FREEING_BYTES:
                with self._using:
                    self._database.execute("VACUUM")
                    self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise ClientError(self._failure(error)) from error

    def set_aside(self, record: bytes) -> None:
        """Append a line to the file of refused messages.

        Raises:
            ClientError: the file cannot be written.
        """
        path = self.folder / REFUSED_FILE
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags, MODES.files), "ab") as aside:
                aside.write(record + b"\n")
        except OSError as error:
            raise ClientError(
                f"a refused message cannot be written to {path} ({error.strerror}); make room, or correct its mode"
            ) from error

    def close(self) -> None:
        """Close the database, and unlock the folder."""
        with self._using:
            self._held.close()

    # --- helpers ---------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, synchronous: str) -> Iterator[None]:
        with self._using:
            self._database.execute(f"PRAGMA synchronous={synchronous}")
            self._database.execute("BEGIN IMMEDIATE")
            with self._database:  # commits, or rolls back
                yield

    def _add(self, count: int, size: int) -> None:
        with self._counting:
            self.count += count
            self.bytes += size

    def _failure(self, error: sqlite3.Error) -> str:
        if isinstance(error, sqlite3.OperationalError):  # the disk is full or fails, or another process locks the file
            return f"{self._path} cannot be used now ({error})"
        return (
            f"outbox {self._path} is damaged ({error}); stop the producer, {_REMEDY} (sqlite3 {DATABASE} .recover "
            "shows what can still be read)"
        )
