"""The store's root folder: its lock, and the marker of a clean stop (store.md §1, §9.3)."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tianzhou.errors import StoreLocked, StoreUnreadable
from tianzhou.file_modes import MODES, write_file
from tianzhou.store.files.directories import make_directory, sync_directory

logger = logging.getLogger(__name__)

_LOCKS: Final = Path("/proc/locks")
_held: Final[set[Path]] = set()
_FLOCK: Final = struct.Struct("hhqqi4x")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class StoreFolder:
    """The root folder, its lock and its abort marker.

    Args:
        root: the folder; it is created when absent.
    """

    __slots__ = ("_directories", "_fd", "root")

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fd = -1
        self._directories: list[int] = []

    @property
    def abort_path(self) -> Path:
        """The marker file that exists while a broker runs, and after a stop that was not clean."""
        return self.root / "abort"

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the last user of the folder stopped cleanly; true for a new folder."""
        return not self.abort_path.exists()

    def lock(self) -> None:
        """Lock the folder for this process, as RocketMQ does: an exclusive lock on the first byte of `lock`.

        Raises:
            StoreLocked: another process, or another store in this one, holds the lock.
            StoreUnreadable: the folder cannot be created or written.
        """
        try:
            make_directory(self.root)
            root = self.root.resolve()
            if root in _held:
                raise StoreLocked(
                    f"store {self.root} is open in this process already; give each broker its own storePathRootDir"
                )
            fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODES.files)
        except OSError as error:
            raise StoreUnreadable(
                f"store {self.root} cannot be used: {error.strerror}: {error.filename}; "
                "make the folder writable for this user or set storePathRootDir"
            ) from error
        try:
            # Java's FileLock takes POSIX record locks, so brokers of both kinds exclude each other.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(fd)
            raise StoreLocked(self._who_holds()) from error
        try:
            if os.pread(fd, 5, 0) != b"lock":
                # Write only in this case: `StoreNote` uses the file's time to detect that another kind of broker had
                # the folder.
                os.ftruncate(fd, 0)
                os.pwrite(fd, b"lock", 0)
                os.fsync(fd)
        except OSError as error:
            os.close(fd)
            raise StoreUnreadable(
                f"store {self.root} cannot be used: {error.strerror}: {root / 'lock'}; free space"
            ) from error
        self._fd = fd
        _held.add(root)

    def is_there(self) -> bool:
        """Whether the folder's path still points to the locked folder; also true while none is locked."""
        if self._fd < 0:
            return True
        try:
            there, held = os.stat(self.root / "lock"), os.fstat(self._fd)  # noqa: PTH116 - quicker
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)

    def lock_directories(self, written: Sequence[Path], read: Sequence[Path] = ()) -> None:
        """Lock the directories of the log, which may be elsewhere and may be configured for another store, too.

        The lock is on the directory itself, because another kind of broker would fail on an unknown file in it.

        Args:
            written: directories for this store alone; missing ones are created.
            read: directories that other stores may read as well.

        Raises:
            StoreLocked: another store uses one of them.
            OSError: one cannot be created or opened.
        """
        present: set[tuple[int, int]] = set()
        for directory, kind in [(path, fcntl.LOCK_EX) for path in written] + [(path, fcntl.LOCK_SH) for path in read]:
            if kind == fcntl.LOCK_EX:
                make_directory(directory)
            elif not directory.is_dir():
                continue
            fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            there = os.fstat(fd)
            if (there.st_dev, there.st_ino) in present:
                os.close(fd)
                continue
            present.add((there.st_dev, there.st_ino))
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                if error.errno == errno.EWOULDBLOCK:
                    raise StoreLocked(self._who_uses(directory, there)) from None
                # Some network file systems have no such locks.
                logger.warning(
                    "%s cannot be locked (%s); see to it that no other store names it", directory, error.strerror
                )
                continue
            self._directories.append(fd)
            _descriptors.add(fd)

    def _who_uses(self, directory: Path, there: os.stat_result) -> str:
        pid = _flock_holder(there)
        if pid == os.getpid():
            holder = "another store of this process"
        else:
            holder = f"process {pid}" if pid else "another process"
        return (
            f"store {self.root}: the commit-log folder {directory} is in use by {holder}; stop that broker, or give "
            "this one its own storePathCommitLog"
        )

    def _who_holds(self) -> str:
        try:
            pid = self.abort_path.read_text().strip()
        except OSError:
            pid = ""
        holder = f"process {pid}" if pid else "another process"
        return (
            f"store {self.root} is in use by {holder} (file `lock` is locked); "
            "stop that broker, or give this one its own storePathRootDir"
        )

    @property
    def _running_path(self) -> Path:
        return self.root / "running.json"

    @property
    def pages_survived(self) -> bool:
        """Whether the last process with the folder died under the present kernel.

        Then all its writes to mapped files exist, synced or not.
        """
        try:
            note = json.loads(self._running_path.read_bytes())
            return bool(
                note["boot"] == _BOOT_ID.read_text().strip() and str(note["pid"]) == self.abort_path.read_text().strip()
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    @property
    def power_failed(self) -> bool:
        """Whether the last process of ours with the folder ran under another kernel, which ended with it.

        This is unknown for a folder that Apache's broker had last.
        """
        try:
            note = json.loads(self._running_path.read_bytes())
            last = self.abort_path.read_bytes().strip()
            # A power failure may have lost the marker's text. A different number is of a broker that ran after ours.
            is_ours = not last.isdigit() or last == str(note["pid"]).encode()
            return bool(is_ours and note["boot"] != _BOOT_ID.read_text().strip())
        except OSError:
            return False
        except (ValueError, KeyError, TypeError):
            return True

    def mark_running(self) -> None:
        """Write the abort marker; its previous content is saved in `abort.bak`."""
        try:
            previous = self.abort_path.read_bytes()
        except FileNotFoundError:
            previous = b""
        write_file(self.root / "abort.bak", previous)
        write_file(self.abort_path, str(os.getpid()).encode())
        if _BOOT_ID.exists():
            note = {"pid": os.getpid(), "boot": _BOOT_ID.read_text().strip()}
            write_file(self._running_path, json.dumps(note).encode() + b"\n")
        sync_directory(self.root)

    def mark_stopped(self) -> None:
        """Remove the abort marker, because all records are on disk and dispatched."""
        self._running_path.unlink(missing_ok=True)
        self.abort_path.unlink(missing_ok=True)
        sync_directory(self.root)

    def unlock(self) -> None:
        """Unlock the folder, and the directories of its log."""
        for fd in self._directories:
            _descriptors.discard(fd)
            # A child that was just forked may not have closed its copies yet, so closing this descriptor is not enough.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)
        self._directories.clear()
        if self._fd >= 0:
            _held.discard(self.root.resolve())
            os.close(self._fd)
            self._fd = -1


_descriptors: Final[set[int]] = set()
"""Descriptors of locked directories."""


def _forget_descriptors() -> None:
    # Otherwise a forked child would hold the lock after its parent's death.
    for fd in _descriptors:
        os.close(fd)
    _descriptors.clear()


os.register_at_fork(after_in_child=_forget_descriptors)


def _flock_holder(there: os.stat_result) -> int:
    """Return the process that has locked a directory; 0 where the system does not report it."""
    file = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == file:
            return int(fields[4])
    return 0


def is_held(root: Path) -> bool:
    """Whether a broker has the folder open; the check locks and writes no file."""
    if root.resolve() in _held:
        # A close of the file would release this process's lock, so do not open it.
        return True
    try:
        with root.joinpath("lock").open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
