"""Log collection: lines of files become messages of a topic, files that are rotated are followed, nothing needs Spark.

How far each file has been sent stands in a file of its own, written after the brokers have acknowledged: killed at any
moment, the collector goes on with lines that were not acknowledged, and may send the last ones twice, which their
properties `file`, `inode` and `position` tell. Lines of a file keep their order: they share a sharding key.
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
"""A line of more bytes than this becomes several messages."""
PRINT_BYTES = 256
"""Bytes compared, at its beginning and before the position, to know a file from another."""
QUIET_S = 2.0
"""A last line without an end is sent when its file was rotated away and nobody has written to it for this time."""
Place = tuple[int, int]
"""Device and inode: what stays the same when a file is renamed."""


@dataclass
class LogFile:
    """A file that is followed.

    Attributes:
        name: the path it had when it was found; what its lines are known by, also after it was renamed.
        path: where it is now.
        device: with `inode`, which file it is.
        inode: see `device`.
        position: the first byte that has not been sent.
        fingerprint: of the bytes around, see `fingerprint_of`.
        done_with: rotated away, so its last line counts as whole, ended or not.
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
        """Which file it is."""
        return self.device, self.inode


@dataclass
class Lines:
    """Lines to send, and where their file goes on behind them."""

    file: LogFile
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    position: int = 0

    def messages(self, topic: str, host: str, tags: str | None = None) -> Iterator[Message]:
        """Each line as a message.

        Args:
            topic: where it goes.
            host: the machine it is from.
            tags: a tag for all.
        """
        for at, line in self.lines:
            properties = {"file": self.file.name, "inode": str(self.file.inode), "position": str(at), "host": host}
            yield Message(topic, line, tags, properties=properties, sharding_key=f"{host}:{self.file.name}")


def fingerprint_of(file: IO[bytes], position: int) -> str | None:
    """What distinguishes a file from its successor: a digest of its first bytes and of those before `position`.

    None when the file is shorter than that.
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
    """The paths a pattern matches, absolute or not, which `Path.glob` does not take."""
    return glob.glob(pattern, recursive=True)  # noqa: PTH207


class Positions:
    """The file that keeps how far each log has been sent; one process at a time has it.

    Args:
        path: the file.

    Raises:
        ConfigError: another process has it, or it is not one of ours.
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
        """What was saved last."""
        if self.is_new:
            return []
        try:
            return [LogFile(**entry) for entry in json.loads(self._path.read_text(encoding="utf-8"))["files"]]
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"--positions {self._path}: is no file of positions; give another name") from None

    def save(self, files: Iterable[LogFile]) -> None:
        """Put a new state in place of the old one; either is on the disk, whatever happens."""
        new = self._path.with_name(self._path.name + ".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump({"files": [asdict(entry) for entry in files]}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self.is_new = False

    def close(self) -> None:
        """Let others have it."""
        self._lock.close()


class Follower:
    """Finds the files, and what is new in them.

    Args:
        patterns: paths with `*`, `?` and `**`.
        positions: keeps how far each file is.
        from_end: on the very first start, leave out what is in the files already.
        now: seconds since the epoch.
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
        """What is new, at most a megabyte of each file; call `sent` for each before taking the next."""
        self._look()
        behind: set[str] = set()
        # What was rotated away comes first, and whole, before anything of the file that took its name.
        for file in sorted(self._files.values(), key=lambda file: not file.done_with):
            if not file.done_with and file.name in behind:
                continue
            if (found := self._read(file)) is not None:
                yield found
                behind.add(file.name)

    def sent(self, lines: Lines) -> None:
        """The lines are acknowledged: keep that."""
        file = lines.file
        file.position = lines.position
        file.fingerprint = fingerprint_of(self._open[file.place], file.position) or ""
        self._positions.save(self._files.values())

    def close(self) -> None:
        """Close the files."""
        for handle in self._open.values():
            handle.close()
        self._open.clear()

    # --- which files there are

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
        """Where a followed file may have been renamed or copied to: beside it, its name and something more."""
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
        """The followed file this new one is a copy of, as `copytruncate` makes them."""
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
        """Deleted: what an open handle still gives is read, then it is forgotten."""
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
        """Emptied in place: what is left is read from its copy, if there is one, then the file from its start."""
        for path in others:
            if path != file.path and self._begins_as(path, file):
                found = Path(path).stat()
                self._add((found.st_dev, found.st_ino), path, file)
                break
        file.position, file.fingerprint = 0, ""

    # --- what is in them

    def _handle(self, file: LogFile) -> IO[bytes] | None:
        if file.place not in self._open:
            try:
                handle = Path(file.path).open("rb")  # noqa: SIM115 - stays open, so that a deleted file is read to its end
            except OSError:
                return None
            found = os.fstat(handle.fileno())
            if (found.st_dev, found.st_ino) != file.place:  # renamed this very moment; the next look finds it
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
        """Whether its writer has let go of a file that was rotated away, as far as anyone can tell."""
        return self._now() - os.fstat(handle.fileno()).st_mtime >= QUIET_S
