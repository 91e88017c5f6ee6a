"""The checkpoint: store times up to which the log, the queues and the index are on disk (store.md §9.1)."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from tianzhou.file_modes import MODES

SIZE: Final = 4096
_FIELDS: Final = struct.Struct(">qqqqq")
_SAFETY_MS: Final = 3000


class Checkpoint:
    """The file `checkpoint`.

    Args:
        path: the file; it is created by the first `write`.

    Attributes:
        physic_msg_timestamp: store time of the newest record known to be on disk, ms.
        logics_msg_timestamp: store time of the newest record whose queue unit is on disk, ms.
        index_msg_timestamp: store time of the newest record in a completed index file, ms.
        master_flushed_offset: written back as read (replication).
        confirm_phy_offset: written back as read (replication).
    """

    __slots__ = (
        "_written",
        "confirm_phy_offset",
        "index_msg_timestamp",
        "logics_msg_timestamp",
        "master_flushed_offset",
        "path",
        "physic_msg_timestamp",
    )

    def __init__(self, path: Path) -> None:
        self.path = path
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        self.master_flushed_offset = 0
        self.confirm_phy_offset = 0
        self._written = b""

    def load(self) -> list[str]:
        """Read the file if it exists; an empty or invalid file counts as missing.

        Returns:
            Descriptions of errors, for the log.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        if not data:
            return []
        if len(data) != SIZE:
            return [f"{self.path} is {len(data)} bytes long, not {SIZE}; it is rebuilt"]
        (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        ) = _FIELDS.unpack_from(data)
        self._written = data[: _FIELDS.size]
        return []

    @property
    def min_timestamp(self) -> int:
        """Store time, ms, up to which records need no check after a crash."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SAFETY_MS)

    def encode(self) -> bytes:
        """Return the five fields as stored."""
        return _FIELDS.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        )

    def write(self, fields: bytes | None = None) -> None:
        """Write and sync the given (else the present) fields; no effect when the file has them.

        Raises:
            OSError: the disk refused the write.
        """
        data = self.encode() if fields is None else fields
        if data == self._written:
            return
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODES.files)
        try:
            if os.fstat(fd).st_size != SIZE:
                os.ftruncate(fd, SIZE)
            os.pwrite(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        self._written = data
