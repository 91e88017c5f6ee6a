"""A disk that may lose data without a sync, whole or in part, in a power failure.

The disk watches one folder that a store of this process uses. It records the data that has certainly reached the
platters: pages of files after a sync of the file, names in a directory after a sync of the directory. `image` builds a
folder that a machine could find after a power failure at that moment. The model is stricter than file systems are:

- an unsynced page has its last synced content, its present content, or a mixture of both;
- a file's length may be lost until the file's sync, and its name until the directory's sync;
- the time of a file's last change is that of its last sync, or the present one;
- changes of one directory reach the disk in their order, as in a journal; changes of different directories in any
  order.
"""

from __future__ import annotations

import functools
import mmap
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

from tianzhou.store.files import pages

PAGE: Final = 4096
_SECTOR: Final = 512


class PowerLostError(BaseException):
    """The error of a power failure. It is a BaseException, so that no error handler catches it."""


class ForgetfulDisk:
    """Watches a folder, and records which of its data is safe.

    Args:
        root: the folder; its present content counts as safe.
        rng: decides which data survives.

    Attributes:
        operations: number of calls so far that change or sync a path in the folder.
        fail_at: number of the call at which the power fails; None for never.
        lost: whether the power has failed; later changes of the folder do not count.
        forgets: False keeps all written data, as when only the process dies.
        target: folder for the image of the moment of failure.
        before_sync: called with the path before each sync; may raise an OSError, or block.
    """

    def __init__(self, root: Path, rng: Random) -> None:
        self.root = root.resolve()
        self._prefix = f"{self.root}{os.sep}"
        self.operations = 0
        self.fail_at: int | None = None
        self.lost = False
        self.forgets = True
        self.target: Path | None = None
        self.before_sync: Callable[[Path], None] | None = None
        self._rng = rng
        self._lock = threading.RLock()
        self._generation: dict[int, int] = {}
        self._content: dict[tuple[int, int], bytes] = {}
        self._times: dict[tuple[int, int], int] = {}
        self._names: dict[str, dict[str, tuple[int, int] | None]] = {}
        for folder, _, files in os.walk(self.root):
            self._take_names(Path(folder))
            for name in files:
                path = Path(folder, name)
                status = path.stat()
                self._content[self._key(status)] = path.read_bytes()
                self._times[self._key(status)] = status.st_mtime_ns

    # calls of the store

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record all calls of this process that affect the folder."""
        with watching(lambda: (self,)):
            yield

    def holds(self, path: Path) -> bool:
        """Whether a path is in the folder, or the folder itself."""
        return path == self.root or str(path).startswith(self._prefix)

    def synced(self, path: Path, status: os.stat_result) -> None:
        """Record the sync of a whole file or directory.

        Raises:
            OSError: `before_sync` raised it.
        """
        with self._lock:
            self._step(path, sync=True)
            if stat.S_ISDIR(status.st_mode):
                self._take_names(path)
            else:
                self._content[self._key(status)] = path.read_bytes()
                self._times[self._key(status)] = status.st_mtime_ns

    def pages_synced(self, path: Path, start: int, end: int) -> None:
        """Record the sync of some pages of a file.

        Raises:
            OSError: `before_sync` raised it.
        """
        with self._lock:
            self._step(path, sync=True)
            self._take_pages(path, start, end)

    def changed(self, path: Path, change: Callable[[], None], *, ends: bool) -> None:
        """Change a name or a length.

        Args:
            path: the name.
            change: makes the change.
            ends: whether the present file loses its name.
        """
        with self._lock:
            self._step(path)
            dying = path.stat().st_ino if ends and path.exists() else None
            change()
            if dying is not None:
                # The file system may reuse the inode number for another file.
                self._generation[dying] = self._generation.get(dying, 0) + 1

    def _step(self, path: Path, *, sync: bool = False) -> None:
        if self.lost:
            return
        self.operations += 1
        if self.operations == self.fail_at:
            self.cut()
        if sync and self.before_sync is not None:
            self.before_sync(path)

    def cut(self) -> None:
        """Fail the power now: build the image, and stop the caller.

        Raises:
            PowerLostError: always.
        """
        assert self.target is not None
        self.lost = True
        self.image(self.target)
        raise PowerLostError

    def write_back(self, share: float) -> None:
        """Mark some dirty pages as safe, in any order, as the kernel writes them back."""
        for path in self._files():
            key = self._key(path.stat())
            live, safe = path.read_bytes(), self._content.get(key, b"")
            if live == safe:
                continue
            for start in range(0, len(live), PAGE):
                if live[start : start + PAGE] != safe[start : start + PAGE] and self._rng.random() < share:
                    self._take_pages(path, start, start + PAGE)

    # safe data

    def _key(self, status: os.stat_result) -> tuple[int, int]:
        return status.st_ino, self._generation.get(status.st_ino, 0)

    def _files(self) -> list[Path]:
        return sorted(Path(folder, name) for folder, _, files in os.walk(self.root) for name in files)

    def _take_names(self, folder: Path) -> None:
        self._names[str(folder)] = self._present(folder)

    def _present(self, folder: Path) -> dict[str, tuple[int, int] | None]:
        # Sorted by name, because random choices follow this order and must be the same wherever a seed runs.
        return {
            entry.name: None if entry.is_dir() else self._key(entry.stat(follow_symlinks=False))
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name)
        }

    def _take_pages(self, path: Path, start: int, end: int) -> None:
        live = path.read_bytes()
        key = self._key(path.stat())
        safe = bytearray(self._content.get(key, b"").ljust(len(live), b"\0")[: len(live)])
        start -= start % PAGE
        end += -end % PAGE
        safe[start:end] = live[start:end]
        self._content[key] = bytes(safe)

    # after the power failure

    def image(self, target: Path) -> None:
        """Build in `target` a folder that may be found after a power failure at this moment."""
        with self._lock:
            if self.forgets:
                self._image_of(self.root, target)
            else:
                shutil.copytree(self.root, target)

    def _image_of(self, folder: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        safe = self._names.get(str(folder), {})
        live = self._present(folder)
        for name, key in self._surviving_names(safe, live).items():
            if key is None:
                if (folder / name).is_dir():
                    self._image_of(folder / name, target / name)
                else:
                    (target / name).mkdir()
                continue
            present = folder / name
            content = self._content.get(key, b"")
            changed = self._times.get(key, 0)
            if live.get(name) == key:
                content = self._mixture(content, present.read_bytes())
                changed = self._rng.choice((changed, present.stat().st_mtime_ns))
            (target / name).write_bytes(content)
            os.utime(target / name, ns=(changed, changed))

    def _surviving_names(
        self, safe: dict[str, tuple[int, int] | None], live: dict[str, tuple[int, int] | None]
    ) -> dict[str, tuple[int, int] | None]:
        removed = sorted((name for name in safe if name not in live), reverse=True)
        changed = sorted(name for name in live if name not in safe or safe[name] != live[name])
        result = dict(safe)
        for name in removed[: self._rng.randint(0, len(removed))]:
            del result[name]
        for name in changed[: self._rng.randint(0, len(changed))]:
            result[name] = live[name]
        return result

    def _mixture(self, safe: bytes, live: bytes) -> bytes:
        rng = self._rng
        if safe == live:
            return live
        length = rng.choice((len(safe), len(live)))
        old, new = safe.ljust(length, b"\0")[:length], live.ljust(length, b"\0")[:length]
        mood = rng.random()
        pieces = []
        for start in range(0, length, PAGE):
            before, after = old[start : start + PAGE], new[start : start + PAGE]
            if before != after:
                after = self._page(before, after, mood)
            pieces.append(after)
        return b"".join(pieces)

    def _page(self, before: bytes, after: bytes, mood: float) -> bytes:
        rng = self._rng
        chance = rng.random()
        if chance < mood * 0.7:
            return before
        if chance < 0.7:
            return after
        if chance < 0.85:
            # A torn write: new bytes up to one position, old ones after it.
            cut = rng.randrange(len(after) + 1)
            return after[:cut] + before[cut:]
        return b"".join(
            (after if rng.random() < 0.5 else before)[at : at + _SECTOR] for at in range(0, len(after), _SECTOR)
        )


_CHANGES: Final = {
    "unlink": True,
    "replace": True,
    "rename": True,
    "rmdir": False,
    "truncate": False,
    "ftruncate": False,
}
"""Functions of `os` that change names or lengths, and whether the file at the name loses it."""


@contextmanager
def watching(disks: Callable[[], Iterable[ForgetfulDisk]]) -> Iterator[None]:
    """Record all calls of this process that affect the folders of some disks.

    Args:
        disks: returns the present disks.
    """
    real: dict[str, Any] = {name: getattr(os, name) for name in ("fsync", "fdatasync", *_CHANGES)}
    # A map belongs to one file for its whole life, and the system's list of maps is slow to read.
    mapped: dict[int, tuple[mmap.mmap, Path | None]] = {}

    def disk_of(target: Any) -> tuple[ForgetfulDisk | None, Path]:
        path = Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else Path(target)
        path = path if path.is_absolute() else Path.cwd() / path
        return next((disk for disk in disks() if disk.holds(path)), None), path

    def sync_fd(name: str) -> Callable[[int], None]:
        def call(fd: int) -> None:
            disk, path = disk_of(fd)
            if disk is None:
                real[name](fd)
            else:
                disk.synced(path, os.fstat(fd))

        return call

    def change(name: str) -> Callable[..., None]:
        def call(*arguments: Any, **keywords: Any) -> None:
            disk, path = disk_of(arguments[-1] if name in {"replace", "rename"} else arguments[0])
            work = functools.partial(real[name], *arguments, **keywords)
            if disk is None:
                work()
            else:
                disk.changed(path, work, ends=_CHANGES[name])

        return call

    def sync_pages(memory: mmap.mmap, address: int, start: int, end: int) -> None:
        if id(memory) not in mapped:
            mapped[id(memory)] = memory, _mapped_file(address)
        path = mapped[id(memory)][1]
        if path is None or not path.exists():
            return
        disk, path = disk_of(path)
        if disk is not None:
            disk.pages_synced(path, start, end)

    patches: list[Any] = [patch.object(pages, "sync", sync_pages)]
    patches += [patch.object(os, name, sync_fd(name)) for name in ("fsync", "fdatasync")]
    patches += [patch.object(os, name, change(name)) for name in _CHANGES]
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


def _mapped_file(address: int) -> Path | None:
    """Return the file that is mapped at an address of this process."""
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        for line in maps:
            span, _, _, _, _, *name = line.split(maxsplit=5)
            begin, _, end = span.partition("-")
            if int(begin, 16) <= address < int(end, 16):
                return Path(name[0].rstrip("\n")) if name else None
    return None
