"""Log collection: lines of files become messages of a topic. Rotated files are followed. Needs no Spark.

The collector stores the position of each file in a file of its own, after the brokers have acknowledged the lines. If
it is killed at any moment, it continues with the unacknowledged lines and may send the last ones twice. The properties
`file`, `inode` and `position` identify such repetitions. Lines of a file have the same sharding key, so their order is
preserved.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import io
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from tianzhou.errors import ConfigError
from tianzhou.model import Message

READ_BYTES = 1 << 20
"""Maximum bytes of a message. A longer line becomes several messages."""
PRINT_BYTES = 256
"""Maximum bytes that are compared at a file's beginning and before its position, to distinguish files."""
QUIET_S = 2.0
"""Seconds without writes after which the unterminated last line of a rotated file is sent."""
Place = tuple[int, int]
"""Device and inode. They do not change when a file is renamed."""


@dataclass
class LogFile:
    """A followed file.

    Attributes:
        name: the path at which it was found. Its lines have this name even after it was renamed.
        path: its present path.
        device: device of the file.
        inode: inode of the file.
        position: offset of the first byte that has not been sent.
        fingerprint: digest of some of its bytes, see `fingerprint_of`.
        done_with: whether it was rotated, so that its last line is complete even without a line feed.
    """

    name: str
    path: str
    device: int
    inode: int
    position: int = 0
    fingerprint: str = ""
    done_with: bool = False

    @property
    def place(self) -> Place:
        """Device and inode of the file."""
        return self.device, self.inode


@dataclass
class Lines:
    """Lines to send, and the position in their file after them."""

    file: LogFile
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    position: int = 0

    def messages(self, topic: str, host: str, tags: str | None = None) -> Iterator[Message]:
        """Return each line as a message.

        Args:
            topic: the target topic.
            host: name of this machine.
            tags: a tag for all messages.
        """
        for at, line in self.lines:
            properties = {"file": self.file.name, "inode": str(self.file.inode), "position": str(at), "host": host}
            yield Message(topic, line, tags, properties=properties, sharding_key=f"{host}:{self.file.name}")


def fingerprint_of(file: IO[bytes], position: int) -> str | None:
    """Return a digest of a file's first bytes and of its bytes before `position`; None if the file is shorter.

    The digest distinguishes the file from its successor.
    """
    digest = hashlib.blake2s(digest_size=16)
    size = min(position, PRINT_BYTES)
    for at in (0, position - size):
        file.seek(at)
        part = file.read(size)
        if len(part) < size:
            return None
        digest.update(part)
    return digest.hexdigest()


def matching(pattern: str) -> list[str]:
    """Return the paths that match an absolute or relative pattern. `Path.glob` accepts no absolute patterns."""
    return glob.glob(pattern, recursive=True)  # noqa: PTH207


class Positions:
    """The file with the positions of all logs. One process at a time may open it.

    Args:
        path: the file.

    Raises:
        ConfigError: another process has opened it, or it is not a file of positions.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = path.with_name(path.name + ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise ConfigError(f"--positions {path}: another collector uses it; give each its own") from None
        self.is_new = not path.exists()

    def load(self) -> list[LogFile]:
        """Return the saved positions."""
        if self.is_new:
            return []
        try:
            return [LogFile(**entry) for entry in json.loads(self._path.read_text(encoding="utf-8"))["files"]]
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"--positions {self._path}: is no file of positions; give another name") from None

    def save(self, files: Iterable[LogFile]) -> None:
        """Replace the saved positions atomically. After a crash either the old or the new state is on disk."""
        new = self._path.with_name(self._path.name + ".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump({"files": [asdict(entry) for entry in files]}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self.is_new = False

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()


class Follower:
    """A search for the files of some patterns, and for new lines in them.

    Args:
        patterns: paths with `*`, `?` and `**`.
        positions: the file of positions.
        from_end: whether to skip the present lines at the very first start.
        now: returns the seconds since the epoch.
    """

    def __init__(
        self,
        patterns: Iterable[str],
        positions: Positions,
        *,
        from_end: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._patterns = list(patterns)
        self._positions = positions
        self._files = {file.place: file for file in positions.load()}
        self._open: dict[Place, IO[bytes]] = {}
        self._skip = from_end and positions.is_new

    def poll(self) -> Iterator[Lines]:
        """Yield new lines, at most a megabyte per file. Call `sent` for each result before the next is requested."""
        self._look()
        behind: set[str] = set()
        # Rotated files come first and must be read completely before the files that replaced them.
        for file in sorted(self._files.values(), key=lambda file: not file.done_with):
            if not file.done_with and file.name in behind:
                continue
            if (found := self._read(file)) is not None:
                yield found
                behind.add(file.name)

    def sent(self, lines: Lines) -> None:
        """Save the position after acknowledged lines."""
        file = lines.file
        file.position = lines.position
        file.fingerprint = fingerprint_of(self._open[file.place], file.position) or ""
        self._positions.save(self._files.values())

    def close(self) -> None:
        """Close the files."""
        for handle in self._open.values():
            handle.close()
        self._open.clear()

    # --- the files

    def _look(self) -> None:
        wanted = dict(self._stats(path for pattern in self._patterns for path in matching(pattern)))
        siblings = dict(self._stats(self._siblings()))
        everywhere = siblings | wanted
        known = set(self._files)
        for place, path in wanted.items():
            if place not in self._files:
                self._add(place, path, self._copied_from(path, known))
        for place in known:
            file = self._files[place]
            if place not in everywhere:
                self._gone(file)
                continue
            file.path = everywhere[place]
            file.done_with = file.path != file.name and file.name in everywhere.values()
            if not self._is_same(file):
                self._truncated(file, [path for at, path in siblings.items() if at not in self._files])
        if self._skip:
            self._positions.save(self._files.values())
            self._skip = False

    @staticmethod
    def _stats(paths: Iterable[str]) -> Iterator[tuple[Place, str]]:
        for path in sorted(paths):
            try:
                found = Path(path).stat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield (found.st_dev, found.st_ino), path

    def _siblings(self) -> Iterator[str]:
        """Return paths to which a followed file may have been renamed or copied: its name with a suffix."""
        for name in {file.name for file in self._files.values()}:
            yield from matching(glob.escape(name) + "*")

    def _add(self, place: Place, path: str, source: LogFile | None) -> LogFile:
        file = LogFile(path if source is None else source.name, path, *place)
        if source is not None:
            file.position, file.fingerprint, file.done_with = source.position, source.fingerprint, True
        self._files[place] = file
        if self._skip and (handle := self._handle(file)) is not None:
            file.position = handle.seek(0, os.SEEK_END)
            file.fingerprint = fingerprint_of(handle, file.position) or ""
        return file

    def _copied_from(self, path: str, known: Iterable[Place]) -> LogFile | None:
        """Return the followed file of which this new file is a copy, as `copytruncate` makes them."""
        for place in known:
            file = self._files[place]
            if file.position and path.startswith(file.name) and path != file.name and self._begins_as(path, file):
                return file
        return None

    @staticmethod
    def _begins_as(path: str, file: LogFile) -> bool:
        try:
            with Path(path).open("rb") as other:
                return fingerprint_of(other, file.position) == file.fingerprint
        except OSError:
            return False

    def _gone(self, file: LogFile) -> None:
        """Mark a deleted file. Its remaining bytes are read through an open handle, then it is dropped."""
        file.done_with = True
        handle = self._open.get(file.place)
        if handle is None or handle.seek(0, os.SEEK_END) <= file.position:
            self._forget(file)

    def _forget(self, file: LogFile) -> None:
        self._files.pop(file.place, None)
        if handle := self._open.pop(file.place, None):
            handle.close()

    def _is_same(self, file: LogFile) -> bool:
        if not file.position:
            return True
        handle = self._handle(file)
        return handle is None or fingerprint_of(handle, file.position) == file.fingerprint

    def _truncated(self, file: LogFile, others: Iterable[str]) -> None:
        """Handle a file that was truncated.

        The unread bytes are read from its copy, if there is one. The file is then read from its start.
        """
        for path in others:
            if path != file.path and self._begins_as(path, file):
                found = Path(path).stat()
                self._add((found.st_dev, found.st_ino), path, file)
                break
        file.position, file.fingerprint = 0, ""

    # --- the lines

    def _handle(self, file: LogFile) -> IO[bytes] | None:
        if file.place not in self._open:
            try:
                handle = Path(file.path).open("rb")  # noqa: SIM115 - stays open, so that a deleted file is read to its end
            except OSError:
                return None
            found = os.fstat(handle.fileno())
            if (found.st_dev, found.st_ino) != file.place:  # It was renamed at this moment. The next search finds it.
                handle.close()
                return None
            self._open[file.place] = handle
        return self._open[file.place]

    def _read(self, file: LogFile) -> Lines | None:
        handle = self._handle(file)
        if handle is None:
            return None
        handle.seek(file.position)
        data = handle.read(READ_BYTES)
        whole = data.rfind(b"\n") + 1
        if not whole and (len(data) == READ_BYTES or (file.done_with and self._is_quiet(handle))):
            whole = len(data)
        if not whole:
            return None
        lines, at = [], file.position
        for line in io.BytesIO(data[:whole]):
            if text := line.rstrip(b"\r\n"):
                lines.append((at, text))
            at += len(line)
        return Lines(file, lines, at)

    def _is_quiet(self, handle: IO[bytes]) -> bool:
        """Whether the writer of a rotated file has probably closed it."""
        return self._now() - os.fstat(handle.fileno()).st_mtime >= QUIET_S
