"""A queue of byte strings on disk that survives the end of its process at any moment.

The folder holds numbered segments of frames (length, checksum, payload, big-endian) and a file `position` with the
segment and offset of the first frame that is still wanted. Segments are only appended to and only deleted whole, and
a number is never used twice, so that a position that is behind, or lost, leads to frames being handed out twice, but
never to one being passed over.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import zlib
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from tianzhou.errors import ConfigError, OutboxFull

_log = logging.getLogger(__name__)

SEGMENT_BYTES = 8 * 1024 * 1024
_HEAD = Struct(">II")
_LOCK, _POSITION = "lock", "position"


class Frame(NamedTuple):
    """A payload, and where the next frame begins."""

    payload: bytes
    segment: int
    end: int


class OutboxFile:
    """The queue; `sync` may run in another thread than `append`, but not at the same time as `advance` or `peek`.

    Args:
        folder: made when it is missing.
        max_bytes: most bytes of frames that are still wanted.
        segment_bytes: a segment of so many bytes is closed.

    Raises:
        ConfigError: the folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: Path | str, max_bytes: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._dirty: list[int] = []
        self._tail_fd = -1
        self._tail_size = 0
        self.count = 0
        """Frames that are still wanted."""
        self.bytes = 0
        """Their bytes."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._guard = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(
                f"outbox {folder} cannot be used ({error.strerror}); give a folder that can be written"
            ) from error
        try:
            fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._guard)
            raise ConfigError(f"outbox {folder} is in use by another producer; give each its own folder") from error
        self._open()

    # --- opening ---------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._segments = sorted(int(path.stem) for path in self.folder.glob("*.log") if path.stem.isdecimal())
        wanted, offset = self._read_position()
        self._next = max([wanted, *self._segments]) + 1 if self._segments or wanted >= 0 else 0
        while self._segments and self._segments[0] < wanted:
            self._delete(self._segments.pop(0))
        if not self._segments or self._segments[0] != wanted:
            offset = 0
        self._head = offset
        for index, segment in enumerate(self._segments):
            self._scan(segment, offset if index == 0 else 0, last=index == len(self._segments) - 1)
        if not self.count:
            self._start_anew()

    def _read_position(self) -> tuple[int, int]:
        try:
            segment, offset = map(int, (self.folder / _POSITION).read_text(encoding="ascii").split())
        except (OSError, ValueError):
            return -1, 0
        return segment, offset

    def _scan(self, segment: int, offset: int, *, last: bool) -> None:
        """Count a segment's frames; cut what a dying process has left half written."""
        path = self._path(segment)
        data = path.read_bytes()
        at = offset
        while (frame := _frame_at(data, at)) is not None:
            self.count += 1
            self.bytes += _HEAD.size + len(frame)
            at += _HEAD.size + len(frame)
        if at >= len(data):
            return
        if last:
            _log.info("outbox %s: cut %d bytes that were half written", path, len(data) - at)
        else:
            _log.error("outbox %s is damaged at byte %d: the %d bytes from there are lost", path, at, len(data) - at)
        os.truncate(path, at)

    # --- writing ---------------------------------------------------------------------------------------------

    def append(self, payloads: list[bytes]) -> None:
        """Append frames, all of them or none; `sync` makes them safe.

        Raises:
            OutboxFull: they do not fit, or the disk takes no more.
        """
        data = b"".join(_HEAD.pack(len(p), zlib.crc32(p)) + p for p in payloads)
        if self.bytes + len(data) > self.max_bytes:
            raise OutboxFull(
                f"outbox {self.folder} holds {self.count} messages of {self.bytes} bytes, the limit is "
                f"{self.max_bytes} (outbox_max_bytes), and no broker answers; raise the limit or send later"
            )
        with self._lock:
            try:
                if self._tail_fd < 0 or self._tail_size >= self._segment_bytes:
                    self._roll()
                self._write(data)
            except OSError as error:
                raise OutboxFull(
                    f"outbox {self.folder} cannot take {len(data)} bytes: {error.strerror}, and no broker answers"
                ) from error
            if self._tail_fd not in self._dirty:
                self._dirty.append(self._tail_fd)
        self.count += len(payloads)
        self.bytes += len(data)

    def _write(self, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._tail_fd, view) :]
        except OSError:
            os.ftruncate(self._tail_fd, self._tail_size)
            raise
        self._tail_size += len(data)

    def _roll(self) -> None:
        """Begin a segment; the former stays open until it is synced."""
        former, number = self._tail_fd, self._next
        self._tail_fd = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._tail_size = 0
        self._next += 1
        if not self._segments:
            self._head = 0
        self._segments.append(number)
        if former >= 0 and former not in self._dirty:
            os.close(former)
        _sync_folder(self.folder)

    def sync(self) -> None:
        """Return when everything appended so far is on the disk.

        Raises:
            OutboxFull: the disk failed.
        """
        with self._lock:
            dirty, self._dirty = self._dirty, []
            tail = self._tail_fd
        for fd in dirty:
            try:
                os.fdatasync(fd)
            except OSError as error:
                raise OutboxFull(f"outbox {self.folder}: the disk failed ({error.strerror})") from error
            if fd != tail:
                os.close(fd)

    # --- reading ---------------------------------------------------------------------------------------------

    def peek(self, most_bytes: int) -> list[Frame]:
        """The first frames of the first segment, at least one when there is any, else so many as have these bytes."""
        if not self.count:
            return []
        while True:
            segment = self._segments[0]
            with self._path(segment).open("rb") as file:
                file.seek(self._head)
                data = file.read(max(most_bytes, _HEAD.size))
                if len(data) >= _HEAD.size:
                    wanted = _HEAD.size + _HEAD.unpack_from(data)[0]
                    data += file.read(max(0, wanted - len(data)))
            frames = []
            at = 0
            while (payload := _frame_at(data, at)) is not None:
                at += _HEAD.size + len(payload)
                frames.append(Frame(payload, segment, self._head + at))
            if frames:
                return frames
            if data:
                self._give_up_head(segment)
            else:
                self._delete(self._segments.pop(0))
                self._head = 0
            if not self.count or not self._segments:
                return []

    def _give_up_head(self, segment: int) -> None:
        """Pass over the rest of a segment whose next frame is not sound any more, and count what is left."""
        _log.error("outbox %s is damaged at byte %d: what follows in it is lost", self._path(segment), self._head)
        with self._lock:
            if segment == self._segments[-1] and self._tail_fd >= 0:
                if self._tail_fd not in self._dirty:
                    self._dirty.append(self._tail_fd)
                self._tail_fd = -1
        self._path(segment).rename(self._path(segment).with_suffix(".damaged"))
        self._segments.pop(0)
        self._head = self.count = self.bytes = 0
        for other in self._segments:
            self._scan(other, 0, last=False)

    def advance(self, frames: list[Frame]) -> None:
        """The first frames, as `peek` gave them, are wanted no more."""
        last = frames[-1]
        self._head = last.end
        self.count -= len(frames)
        self.bytes -= sum(_HEAD.size + len(frame.payload) for frame in frames)
        self._write_position(last.segment, last.end)
        if not self.count:
            self._start_anew()

    def _write_position(self, segment: int, offset: int) -> None:
        # Without a sync: a position that is behind costs nothing but frames handed out twice.
        path = self.folder / _POSITION
        fresh = path.with_suffix(".new")
        fresh.write_text(f"{segment} {offset}\n", encoding="ascii")
        fresh.replace(path)

    def _start_anew(self) -> None:
        """Everything is handed out: give the space back."""
        with self._lock:
            dirty, self._dirty = self._dirty, []
            for fd in {*dirty, self._tail_fd} - {-1}:
                os.close(fd)
            self._tail_fd = -1
            for segment in self._segments:
                self._delete(segment)
            self._segments = []
            self._head = self.bytes = self._tail_size = 0

    def _delete(self, segment: int) -> None:
        self._path(segment).unlink(missing_ok=True)

    def _path(self, segment: int) -> Path:
        return self.folder / f"{segment:020}.log"

    def close(self) -> None:
        """Sync, and let go of the folder."""
        try:
            self.sync()
        finally:
            if self._tail_fd >= 0:
                os.close(self._tail_fd)
                self._tail_fd = -1
            os.close(self._guard)


def _frame_at(data: bytes, at: int) -> bytes | None:
    """The payload of the frame at an offset; None when no whole and sound one is there."""
    if len(data) - at < _HEAD.size:
        return None
    size, crc = _HEAD.unpack_from(data, at)
    payload = data[at + _HEAD.size : at + _HEAD.size + size]
    return payload if len(payload) == size and zlib.crc32(payload) == crc else None


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
