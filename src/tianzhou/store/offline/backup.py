"""The backup of a store, or of those of several brokers, while they run, and the restore of a backup to a folder.

The copy has the order that is safe for a crash at any moment: offsets of groups first, then queues, then the log, then
all other tables; of several stores each kind of all of them. So no offset and no unit is ahead of the log, and each
message in the log has its topic. The copy is that of a killed broker, and its first start recovers it
(docs/howto/backup.md). A member of a DLedger group must be stopped for its backup.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, NamedTuple

import msgspec

from tianzhou.errors import StoreError, StoreLocked
from tianzhou.file_modes import MODES, make_folders
from tianzhou.store.files.directories import sync_directory
from tianzhou.store.files.folder import StoreFolder
from tianzhou.store.offline.files import ReadOnlySegment, segment_paths
from tianzhou.store.offline.scan import member_folder

MANIFEST: Final = "backup.json"
"""Written last: a folder without it is no backup."""
FILES: Final = "files"
"""Folder of a backup with the files of the source folder."""
SETTINGS: Final = "settings"
"""Folder of a backup with the configuration."""
FORMAT: Final = 1
_PIECE: Final = 4 << 20
_QUEUES: Final = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
_OFFSETS: Final = ("consumerOffset", "lmqConsumerOffset", "delayOffset")
_LEFT_OUT: Final = frozenset({"index", "checkpoint", "abort", "abort.bak", "lock", "running.json", "proved.json"})
"""Names in a store's root that are not copied: rebuilt files, and files about the process that has the folder."""

Advance = Callable[[int], None]


class CopiedFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file of a backup.

    Attributes:
        size: its size, in bytes.
        held: bytes up to the last one that is not zero; the rest is zeros.
        sha256: digest of these bytes.
        whole: whether it is a complete file of the log, before the last one: no bytes are added to it any more.
    """

    size: int
    held: int
    sha256: str
    whole: bool = False


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """The content of a backup.

    Attributes:
        format: format of the backup.
        tianzhou: version that made it.
        made_ms: start of the backup, ms since the epoch.
        source: the source folder.
        store: the store's root in that folder, `.` when it is the folder.
        files: by path below the backup.
        settings: original path of each file below `settings`.
        more_stores: roots of the other brokers of that folder.
    """

    format: int
    tianzhou: str
    made_ms: int
    source: str
    store: str
    files: dict[str, CopiedFile]
    settings: dict[str, str]
    more_stores: list[str] = []

    @property
    def stores(self) -> list[str]:
        """Roots of all stores in the folder."""
        return [self.store, *self.more_stores]

    @property
    def held_bytes(self) -> int:
        """Number of copied bytes."""
        return sum(one.held for one in self.files.values())


def read_manifest(backup: Path) -> Manifest:
    """Return the manifest of a backup.

    Raises:
        StoreError: the folder is no backup, or one of a later version.
    """
    try:
        found = msgspec.json.decode((backup / MANIFEST).read_bytes(), type=Manifest)
    except OSError as error:
        raise StoreError(
            f"{backup}: is no backup, {MANIFEST} is missing ({error.strerror}); name a folder of `store backup`"
        ) from error
    except msgspec.MsgspecError as error:
        raise StoreError(f"{backup / MANIFEST}: cannot be read ({error}); take another backup") from error
    if found.format != FORMAT:
        raise StoreError(f"{backup}: has format {found.format}, this version reads {FORMAT}; use the one that made it")
    for name in (*found.files, *found.stores):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise StoreError(f"{backup / MANIFEST}: {name!r} is outside of the backup; take another one")
    return found


def back_up(
    folder: Path,
    roots: Sequence[Path],
    to: Path,
    *,
    logs: Sequence[Path] = (),
    settings: Mapping[str, Path] | None = None,
    previous: Path | None = None,
    version: str,
    now_ms: int,
    advance: Advance = lambda done: None,
) -> Manifest:
    """Copy a store, which may be in use, with its other files; or the stores of several brokers of one folder.

    Args:
        folder: the source folder: of `tianzhou serve`, or the store's root itself.
        roots: the root of each store in that folder.
        to: the backup's folder; it must not exist.
        logs: other directories of the commit log of the one store; they are copied to `commitlog` of the backup.
        settings: configuration files by their name in the backup.
        previous: a backup of the same store; the new one shares its unchanged files of the log.
        version: version of this program.
        now_ms: the time, ms since the epoch.
        advance: called with the number of bytes copied so far.

    Returns:
        The manifest.

    Raises:
        StoreError: the folder exists, or a file cannot be copied.
        StoreLocked: a store belongs to a running member of a DLedger group.
    """
    part = to.with_name(to.name + ".part")
    for path, why in ((to, "give a new one"), (part, "it is left of a backup that did not end; delete it")):
        if path.exists():
            raise StoreError(f"{path}: is there already; {why}")
    before = None if previous is None else (previous, read_manifest(previous))
    copier = _Copier(part, before, advance)
    try:
        with _stopped_members(roots):
            make_folders(part)
            for piece in _in_order(folder, roots, logs):
                copier.copy(piece)
        for name, path in (settings or {}).items():
            copier.copy(_Piece(f"{SETTINGS}/{name}", path), required=True)
        store, *more = (root.relative_to(folder).as_posix() for root in roots)
        origins = {name: str(path) for name, path in (settings or {}).items()}
        found = Manifest(FORMAT, version, now_ms, str(folder.resolve()), store, copier.done, origins, more)
        _write(part / MANIFEST, msgspec.json.format(msgspec.json.encode(found)))
        _sync_folders(part)
        part.rename(to)
        sync_directory(to.parent)
    except OSError as error:
        raise StoreError(f"{error.filename or to}: {error.strerror}; nothing is at {to}, delete {part}") from error
    return found


def restore(backup: Path, to: Path, *, advance: Advance = lambda done: None) -> Manifest:
    """Restore a backup to a folder, in the state after a crash. The configuration stays in the backup.

    Args:
        backup: the backup's folder.
        to: the folder to create; empty if it exists.
        advance: called with the number of bytes copied so far.

    Returns:
        The manifest.

    Raises:
        StoreError: the folder is not empty, or a file of the backup is damaged.
    """
    found = read_manifest(backup)
    if to.is_dir() and any(to.iterdir()):
        raise StoreError(f"{to}: has something in it; name an empty or a new folder")
    done = 0
    try:
        make_folders(to)
        for name, one in found.files.items():
            below = PurePosixPath(name)
            if below.parts[0] != FILES:
                continue
            target = to.joinpath(*below.parts[1:])
            make_folders(target.parent)
            with (backup / name).open("rb") as source:
                digest = _copy(source, target, one.held, one.size)
            if digest != one.sha256:
                raise StoreError(f"{backup / name}: is not as it was written; take another backup, and delete {to}")
            done += one.held
            advance(done)
        for store in found.stores:
            # With this marker, the start treats the store as that of a killed broker, and reads the log.
            _write(to / store / "abort", b"")
        _sync_folders(to)
    except OSError as error:
        raise StoreError(f"{error.filename or to}: {error.strerror}; delete {to} before the next attempt") from error
    return found


@contextmanager
def _stopped_members(roots: Sequence[Path]) -> Iterator[None]:
    """Lock the stores of members of DLedger groups, because a running member may cut its log during the copy."""
    with ExitStack() as stack:
        for root in roots:
            if (member := member_folder(root)) is None:
                continue
            folder = StoreFolder(root)
            try:
                folder.lock()
            except StoreLocked as error:
                raise StoreLocked(
                    f"{member}: is the log of a member of a DLedger group that is running ({error}); stop this member,"
                    " back up its folder, and start it again: the other members serve meanwhile"
                ) from error
            stack.callback(folder.unlock)
        yield


class _Piece(NamedTuple):
    name: str
    path: Path
    whole: bool = False


def _in_order(folder: Path, roots: Sequence[Path], logs: Sequence[Path]) -> Iterator[_Piece]:
    """Yield all files to copy; each folder is listed when its turn comes."""

    def named(path: Path) -> _Piece:
        return _Piece(f"{FILES}/{path.relative_to(folder).as_posix()}", path)

    offsets = [path for root in roots for path in _files(root / "config") if path.name.startswith(_OFFSETS)]
    yield from map(named, offsets)
    for root in roots:
        for queues in _QUEUES:
            yield from map(named, _files(root / queues))
    for root in roots:
        log = sorted((path for each in logs or [root / "commitlog"] for path in segment_paths(each)), key=_name)
        for path in log:
            name = (root.relative_to(folder) / "commitlog" / path.name).as_posix()
            yield _Piece(f"{FILES}/{name}", path, path is not log[-1])
    done = frozenset(offsets)
    for path in _files(folder):
        inside = next((path.relative_to(root).parts[0] for root in roots if path.is_relative_to(root)), "")
        left_out = inside in {*_QUEUES, *_LEFT_OUT, "commitlog"} or _is_work(inside) or path in done
        if not left_out and path.suffix != ".tmp":
            yield named(path)


def _name(path: Path) -> str:
    return path.name


def _is_work(name: str) -> bool:
    return name.startswith("repair-")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


class _Copier:
    """Copies files into a backup.

    Args:
        target: the backup.
        before: a previous backup, and its manifest.
        advance: called with the number of bytes copied so far.

    Attributes:
        done: copied files, by name.
    """

    def __init__(self, target: Path, before: tuple[Path, Manifest] | None, advance: Advance) -> None:
        self._target = target
        self._before = before
        self._advance = advance
        self._bytes = 0
        self.done: dict[str, CopiedFile] = {}

    def copy(self, piece: _Piece, *, required: bool = False) -> None:
        """Copy a file; skip a file that was deleted meanwhile.

        Raises:
            OSError: it cannot be copied, or it is required and does not exist.
        """
        target = self._target / piece.name
        try:
            status = piece.path.stat()
            make_folders(target.parent)
            if (shared := self._shared(piece, status)) is not None:
                self.done[piece.name] = shared
                return
            held = _held(piece.path)
            with piece.path.open("rb") as source:
                digest = _copy(source, target, held, status.st_size)
        except FileNotFoundError:
            if required:
                raise
            return
        os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))
        self.done[piece.name] = CopiedFile(status.st_size, held, digest, piece.whole)
        self._bytes += held
        self._advance(self._bytes)

    def _shared(self, piece: _Piece, status: os.stat_result) -> CopiedFile | None:
        """Return the file of the previous backup and link it, if it is the same; else None."""
        if self._before is None or not piece.whole:
            return None
        folder, manifest = self._before
        there, known = folder / piece.name, manifest.files.get(piece.name)
        if known is None or not known.whole or known.size != status.st_size:
            return None
        try:
            if there.stat().st_mtime_ns != status.st_mtime_ns:
                return None
            (self._target / piece.name).hardlink_to(there)
        except OSError:
            return None  # another disk, or a file system without links
        return known


def _held(path: Path) -> int:
    if len(path.name) == 20 and path.name.isdigit():
        return ReadOnlySegment(path).data_end(0)
    return path.stat().st_size


def _copy(source: BinaryIO, target: Path, held: int, size: int) -> str:
    """Copy `held` bytes and fill up with zeros; return their digest after the sync."""
    digest = hashlib.sha256()
    with _made(target) as file:
        left = held
        while left:
            piece = source.read(min(left, _PIECE))
            if not piece:
                raise StoreError(f"{getattr(source, 'name', target)}: ends {left} bytes early; try again")
            digest.update(piece)
            file.write(piece)
            left -= len(piece)
        file.flush()
        file.truncate(size)
        os.fsync(file.fileno())
    return digest.hexdigest()


def _made(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODES.files), "wb")


def _write(path: Path, text: bytes) -> None:
    with _made(path) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folders(folder: Path) -> None:
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        sync_directory(path)
