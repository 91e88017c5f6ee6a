"""A queue of byte strings in an SQLite file, which survives the end of its process, or of the power, at any moment.

The folder holds `outbox.db` (with SQLite's `-wal` and `-shm` beside it) and `lock`, which one process holds at a time.
Rows are written with `synchronous=FULL`, so that what `write` returned for is on the disk. They are deleted with
`synchronous=NORMAL`: after a power failure they may be handed out twice, but none is passed over.
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
from typing import NamedTuple

from tianzhou.client.producer.outbox.segment_files import read_segments
from tianzhou.errors import ClientError, ConfigError, OutboxFull
from tianzhou.file_modes import MODES, make_folders, sync_folder

_log = logging.getLogger(__name__)

DATABASE, LOCK = "outbox.db", "lock"
OVERHEAD_BYTES = 8
"""Bytes that a message counts beside its payload."""
MOST_FRAMES = 256
SPACE_WORTH_FREEING_BYTES = 1024 * 1024
_MADE = b"made\n"
"""Content of the lock file once the disk has the database."""
_REMEDY = "move all files out of the folder and start again with an empty outbox"
_TABLE = "CREATE TABLE IF NOT EXISTS waiting(id INTEGER PRIMARY KEY, crc INTEGER NOT NULL, payload BLOB NOT NULL)"


class Frame(NamedTuple):
    """A payload and its number; later ones have higher numbers."""

    payload: bytes
    number: int


class OutboxFile:
    """The queue. `append` and `take` touch memory only and belong to one thread; the others may run in any.

    Args:
        folder: made when it is missing.
        max_bytes: most bytes that may wait: payloads, and OVERHEAD_BYTES for each.

    Raises:
        ConfigError: the folder cannot be used, another process uses it, or the file is damaged.
    """

    def __init__(self, folder: Path | str, max_bytes: int) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        self.count = 0
        """Payloads that wait, those that are not written yet included."""
        self.bytes = 0
        """Their bytes."""
        self._path = self.folder / DATABASE
        self._unwritten: list[bytes] = []
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
                # SQLite would make it, and the files beside it, readable for everybody whom the umask lets.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODES.files))
                self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
                held.callback(self._database.close)
                self._prepare(made=made)
                if not made:
                    self._mark_made(guard)
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
        ((count, size),) = self._database.execute("SELECT COUNT(*), TOTAL(LENGTH(payload)) FROM waiting")
        self._add(count, int(size) + count * OVERHEAD_BYTES)

    def _mark_made(self, guard: int) -> None:
        """Note in the lock file that the disk has the database: from now on an empty or missing one is damage.

        Raises:
            OSError: the disk refused.
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
            self._add(len(payloads), _bytes_of(payloads))
            self.write(payloads)
        for segment in segments:
            segment.unlink()

    # --- writing ---------------------------------------------------------------------------------------------

    def append(self, payloads: list[bytes]) -> None:
        """Take payloads in, all of them or none; they are safe when `write` was called with what `take` gives.

        Raises:
            OutboxFull: there is no room.
        """
        size = _bytes_of(payloads)
        if self.bytes + size > self.max_bytes:
            raise OutboxFull(
                f"outbox {self.folder} holds {self.count} messages of {self.bytes} bytes, the limit is "
                f"{self.max_bytes} (outbox_max_bytes), and no broker answers; raise the limit or send later"
            )
        self._unwritten += payloads
        self._add(len(payloads), size)

    def take(self) -> list[bytes]:
        """The payloads appended since the last time."""
        taken, self._unwritten = self._unwritten, []
        return taken

    def write(self, payloads: Sequence[bytes]) -> None:
        """Return when payloads are on the disk, all of them.

        Raises:
            OutboxFull: the disk did not take them; they are in the outbox no more.
        """
        try:
            with self._transaction("FULL"):
                self._database.executemany(
                    "INSERT INTO waiting(crc, payload) VALUES(?, ?)", ((zlib.crc32(one), one) for one in payloads)
                )
        except sqlite3.Error as error:
            self._add(-len(payloads), -_bytes_of(payloads))
            raise OutboxFull(
                f"outbox {self.folder} cannot take {_bytes_of(payloads)} bytes, and no broker answers: "
                f"{self._failure(error)}"
            ) from error

    def sync(self) -> None:
        """Write what was appended."""
        if payloads := self.take():
            self.write(payloads)

    # --- reading ---------------------------------------------------------------------------------------------

    def peek(self, most_bytes: int) -> list[Frame]:
        """The first payloads that are written: at least one when there is any, else as many as have these bytes.

        Raises:
            ClientError: the file cannot be read.
        """
        frames: list[Frame] = []
        unsound: list[Frame] = []
        try:
            with self._using:
                rows = self._database.execute(f"SELECT payload, id, crc FROM waiting ORDER BY id LIMIT {MOST_FRAMES}")
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
            self.advance(unsound)
        return frames

    def advance(self, frames: Sequence[Frame]) -> None:
        """Payloads that `peek` gave are wanted no more.

        Raises:
            ClientError: the file cannot be written.
        """
        try:
            with self._transaction("NORMAL"):
                self._database.executemany("DELETE FROM waiting WHERE id = ?", ((frame.number,) for frame in frames))
            self._add(-len(frames), -_bytes_of([frame.payload for frame in frames]))
            if not self.count and self._path.stat().st_size > SPACE_WORTH_FREEING_BYTES:
                with self._using:
                    self._database.execute("VACUUM")
                    self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise ClientError(self._failure(error)) from error

    def close(self) -> None:
        """Write what was appended, and let go of the folder."""
        try:
            self.sync()
        finally:
            with self._using:
                self._held.close()

    # --- both ------------------------------------------------------------------------------------------------

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
        if isinstance(error, sqlite3.OperationalError):  # the disk is full or fails, or another process is in the way
            return f"{self._path} cannot be used now ({error})"
        return (
            f"outbox {self._path} is damaged ({error}); stop the producer, {_REMEDY} (sqlite3 {DATABASE} .recover "
            "shows what can still be read)"
        )


def _bytes_of(payloads: Sequence[bytes]) -> int:
    return sum(map(len, payloads)) + len(payloads) * OVERHEAD_BYTES
