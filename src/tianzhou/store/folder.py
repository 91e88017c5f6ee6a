"""The store's root folder: who holds it, and whether the last stop was clean (store.md §1, §9.3)."""

from __future__ import annotations

import fcntl
import json
import os
import struct
from pathlib import Path
from typing import Final

from tianzhou.errors import StoreLocked, StoreUnreadable

_held: Final[set[Path]] = set()
_FLOCK: Final = struct.Struct("hhqqi4x")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class StoreFolder:
    """The root folder, its lock and its abort marker.

    Args:
        root: the folder; it is made when absent.
    """

    __slots__ = ("_fd", "root")

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fd = -1

    @property
    def abort_path(self) -> Path:
        """The marker that is there while a broker runs, and after it when it did not stop cleanly."""
        return self.root / "abort"

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the last user of the folder said good-bye; true for a new folder."""
        return not self.abort_path.exists()

    def lock(self) -> None:
        """Take the folder for this process, as RocketMQ does: an exclusive lock on the first byte of `lock`.

        Raises:
            StoreLocked: another process, or another store in this one, holds it.
            StoreUnreadable: the folder cannot be made or written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            root = self.root.resolve()
            if root in _held:
                raise StoreLocked(
                    f"store {self.root} is open in this process already; give each broker its own storePathRootDir"
                )
            fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnreadable(
                f"store {self.root} cannot be used: {error.strerror}: {error.filename}; "
                "make the folder writable for this user or set storePathRootDir"
            ) from error
        try:
            # POSIX record locks are what Java's FileLock takes, so brokers of either kind exclude each other.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(fd)
            raise StoreLocked(self._who_holds()) from error
        try:
            if os.pread(fd, 5, 0) != b"lock":
                # Only then: by when it was written `StoreNote` knows whether another kind of broker had the folder.
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
        """Whether the process that last had the folder died under the present kernel.

        All that it wrote into mapped files is then there, whether it had reached the disk or not.
        """
        try:
            said = json.loads(self._running_path.read_bytes())
            return bool(
                said["boot"] == _BOOT_ID.read_text().strip() and str(said["pid"]) == self.abort_path.read_text().strip()
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def mark_running(self) -> None:
        """Write the abort marker; what it said before goes to `abort.bak`."""
        try:
            previous = self.abort_path.read_bytes()
        except FileNotFoundError:
            previous = b""
        self.root.joinpath("abort.bak").write_bytes(previous)
        self.abort_path.write_bytes(str(os.getpid()).encode())
        if _BOOT_ID.exists():
            note = {"pid": os.getpid(), "boot": _BOOT_ID.read_text().strip()}
            self._running_path.write_text(json.dumps(note) + "\n")
        self.sync()

    def mark_stopped(self) -> None:
        """Remove the abort marker: everything is on disk and dispatched."""
        self._running_path.unlink(missing_ok=True)
        self.abort_path.unlink(missing_ok=True)
        self.sync()

    def sync(self) -> None:
        """Bring the folder's own entries to the disk."""
        fd = os.open(self.root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def unlock(self) -> None:
        """Let others have the folder."""
        if self._fd >= 0:
            _held.discard(self.root.resolve())
            os.close(self._fd)
            self._fd = -1


def is_held(root: Path) -> bool:
    """Whether a broker has the folder open; nothing is locked or written to find out."""
    if root.resolve() in _held:
        # Closing the file would give up this process's lock, so it is not even opened.
        return True
    try:
        with root.joinpath("lock").open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
