"""Copies of the records that a slave cuts from the end of its log, made before the cut (docs/adr/0024).

Each cut has a folder `cut/FROM-TO` below the store's root. The folder is a store of its own, with a commit log that
begins at FROM, so that `tianzhou store dump` and `tianzhou store export` read it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from tianzhou.file_modes import MODES, make_folders, write_file
from tianzhou.records.layout import BLANK_SIZE
from tianzhou.store.files.directories import sync_directory
from tianzhou.store.offline.files import segment_paths
from tianzhou.store.offline.scan import StoreScan

FOLDER: Final = "cut"
"""Folder of all cuts below the store's root."""
_TOPICS: Final = Path("config", "topics.json")
_CHUNK_BYTES: Final = 1 << 20


class KeptRecords(NamedTuple):
    """The copies of a cut.

    Attributes:
        folder: their folder; None without copies.
        start: log offset of the first record.
        end: log offset after the last one.
        messages: number of whole records.
    """

    folder: Path | None
    start: int
    end: int
    messages: int

    def described(self, log_end: int) -> str:
        """Return a description of the copies.

        Args:
            log_end: end of the log before the cut.
        """
        if self.folder is None:
            return "none of them is kept aside (haSlaveCutKeepMax)"
        rest = log_end - self.end
        part = f"; the last {rest} bytes are not kept (haSlaveCutKeepMax)" if rest else ""
        return (
            f"{self.messages} messages from {self.start} to {self.end} are kept in {self.folder}{part}; read them by: "
            f"tianzhou store export {self.folder}"
        )


def keep_records(root: Path, log_folders: Sequence[Path], start: int, end: int, most_bytes: int) -> KeptRecords:
    """Copy the end of a log to its own folder. Blocks until the copy is synced.

    The oldest cuts are removed when all of them together are larger than `most_bytes`. Of a single larger cut, only the
    beginning is copied.

    Args:
        root: the store's root.
        log_folders: directories of commit-log segments.
        start: log offset of the first record to copy.
        end: log offset where the log ends.
        most_bytes: maximum bytes of all cuts.

    Raises:
        OSError: the disk refused; the log is unchanged.
    """
    kept_end = min(end, start + most_bytes)
    if kept_end <= start:
        return KeptRecords(None, start, start, 0)
    folder = root / FOLDER / f"{start:020d}-{end:020d}"
    if folder.exists():
        shutil.rmtree(folder)  # an incomplete copy from before a crash
    _make_room(root / FOLDER, most_bytes - (kept_end - start))
    log = folder / "commitlog"
    make_folders(log)
    for path in sorted((path for one in log_folders for path in segment_paths(one)), key=lambda path: path.name):
        first = int(path.name)
        low, high = max(first, start), min(first + path.stat().st_size, kept_end)
        if low < high:
            # Readers treat a record as whole only when there is room for a blank after it, as in a segment.
            room = 0 if high == first + path.stat().st_size else BLANK_SIZE
            _copy(path, low - first, log / f"{low:020d}", high - low, room)
    if (root / _TOPICS).is_file():
        make_folders(folder / _TOPICS.parent)
        # An export without a choice of topics uses the topics of the table.
        write_file(folder / _TOPICS, (root / _TOPICS).read_bytes())
    messages = 0
    for record, _ in StoreScan(folder).records(check_crc=False):
        messages += 1
        if start + most_bytes < end:
            kept_end = record.offset + record.size
    for directory in (log, folder / _TOPICS.parent, folder, root / FOLDER, root):
        if directory.exists():
            sync_directory(directory)
    return KeptRecords(folder, start, kept_end, messages)


def count_records(root: Path, log_folders: Sequence[Path], start: int, end: int, most: int) -> int:
    """Return the number of whole records between two offsets of a log, `most` at most. Blocks.

    Args:
        root: the store's root.
        log_folders: directories of commit-log segments.
        start: log offset of a record.
        end: log offset where the log ends.
        most: maximum number to count.
    """
    records = StoreScan(root, list(log_folders)).records(start, check_crc=False)
    return sum(record.offset < end for record, _ in islice(records, most))


def _make_room(folder: Path, most_bytes: int) -> None:
    """Remove the oldest cuts until the others have at most `most_bytes`."""
    cuts = sorted((path for path in folder.iterdir() if path.is_dir()), key=_age) if folder.is_dir() else []
    sizes = {cut: sum(path.stat().st_size for path in cut.rglob("*") if path.is_file()) for cut in cuts}
    while cuts and sum(sizes[cut] for cut in cuts) > most_bytes:
        shutil.rmtree(cuts.pop(0))


def _age(cut: Path) -> tuple[int, str]:
    return cut.stat().st_mtime_ns, cut.name


def _copy(source: Path, position: int, target: Path, size: int, room: int) -> None:
    with source.open("rb") as reader:
        reader.seek(position)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODES.of(target))
        with os.fdopen(fd, "wb") as writer:
            while size:
                chunk = reader.read(min(size, _CHUNK_BYTES))
                if not chunk:
                    raise OSError(f"{source} ends {size} bytes too early")
                writer.write(chunk)
                size -= len(chunk)
            writer.write(bytes(room))
            writer.flush()
            os.fsync(writer.fileno())
