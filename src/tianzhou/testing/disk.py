"""A disk that forgets: what was not synced may be gone, whole or in part, after the power fails.

The disk watches one folder in which a store of this process works for real. It keeps beside it what is certain to
have reached the platters: file contents by page when they were synced, names in a directory when the directory was.
`image` builds what a machine could find there after the power failed just now. The model is stricter than file
systems are:

- an unsynced page comes back as it was when it was synced last, as it is now, or as a mixture of both;
- the length of a file is lost with what made it longer or shorter, and so is its name with its directory's sync;
- the time of a file's last change is that of its last sync, or the present one;
- changes of one directory reach the disk in their order (journals do that), those of different directories in none.
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
    """The power failed. No code that handles errors gets to see it."""


class ForgetfulDisk:
    """Watches a folder, and remembers what of it is safe.

    Args:
        root: the folder; what is in it now counts as safe.
        rng: decides what survives.

    Attributes:
        operations: calls so far that change or sync something below the folder.
        fail_at: the number of the call at which the power fails; None for never.
        lost: whether it has failed; what is done afterwards is done to a folder nobody will look at.
        forgets: false lets everything that was written survive, as when only the process dies.
        target: where the image of the moment of failure goes.
        before_sync: called with the path before each sync; may raise an OSError, or take its time.
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

    # what the store does

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow everything that this process does below the folder."""
        with watching(lambda: (self,)):
            yield

    def holds(self, path: Path) -> bool:
        """Whether a path is in the folder, or the folder itself."""
        return path == self.root or str(path).startswith(self._prefix)

    def synced(self, path: Path, status: os.stat_result) -> None:
        """Take note that a file or a directory is synced as a whole.

        Raises:
            OSError: `before_sync` says so.
        """
        with self._lock:
            self._step(path, sync=True)
            if stat.S_ISDIR(status.st_mode):
                self._take_names(path)
            else:
                self._content[self._key(status)] = path.read_bytes()
                self._times[self._key(status)] = status.st_mtime_ns

    def pages_synced(self, path: Path, start: int, end: int) -> None:
        """Take note that some pages of a file are synced.

        Raises:
            OSError: `before_sync` says so.
        """
        with self._lock:
            self._step(path, sync=True)
            self._take_pages(path, start, end)

    def changed(self, path: Path, change: Callable[[], None], *, ends: bool) -> None:
        """Do something to a name or a length.

        Args:
            path: the name.
            change: does it.
            ends: whether what had the name until now has it no more.
        """
        with self._lock:
            self._step(path)
            dying = path.stat().st_ino if ends and path.exists() else None
            change()
            if dying is not None:
                # The number may be given to another file.
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
        """Let the power fail now: make the image, and let nothing go on.

        Raises:
            PowerLostError: always.
        """
        assert self.target is not None
        self.lost = True
        self.image(self.target)
        raise PowerLostError

    def write_back(self, share: float) -> None:
        """Let the kernel write some dirty pages on its own, in any order."""
        for path in self._files():
            key = self._key(path.stat())
            live, safe = path.read_bytes(), self._content.get(key, b"")
            if live == safe:
                continue
            for start in range(0, len(live), PAGE):
                if live[start : start + PAGE] != safe[start : start + PAGE] and self._rng.random() < share:
                    self._take_pages(path, start, start + PAGE)

    # what is safe

    def _key(self, status: os.stat_result) -> tuple[int, int]:
        return status.st_ino, self._generation.get(status.st_ino, 0)

    def _files(self) -> list[Path]:
        return sorted(Path(folder, name) for folder, _, files in os.walk(self.root) for name in files)

    def _take_names(self, folder: Path) -> None:
        self._names[str(folder)] = self._present(folder)

    def _present(self, folder: Path) -> dict[str, tuple[int, int] | None]:
        # By name: what survives is drawn in this order, and has to be the same wherever a seed is run.
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

    # after the power failed

    def image(self, target: Path) -> None:
        """Build in `target` what may be found after a power failure at this moment."""
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
            # Written while it was being changed: up to some byte it is the new one.
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
"""Functions of `os` that change names or lengths, and whether they end what had the name."""


@contextmanager
def watching(disks: Callable[[], Iterable[ForgetfulDisk]]) -> Iterator[None]:
    """Follow everything that this process does below the folders of some disks.

    Args:
        disks: those there are at the moment.
    """
    real: dict[str, Any] = {name: getattr(os, name) for name in ("fsync", "fdatasync", *_CHANGES)}
    # A map stays that of its file; the system's list of maps takes long to read.
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
    """The file that is mapped at an address of this process."""
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        for line in maps:
            span, _, _, _, _, *name = line.split(maxsplit=5)
            begin, _, end = span.partition("-")
            if int(begin, 16) <= address < int(end, 16):
                return Path(name[0].rstrip("\n")) if name else None
    return None
